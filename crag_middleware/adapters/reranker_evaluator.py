"""Grading by any of LangChain's rerankers: cross-encoders, and document compressors that tell a relevance score."""

from collections.abc import Generator, Sequence
from typing import Literal

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor

from crag_middleware.adapters.scorer import VERSION, Asked, Scorer, Scores
from crag_middleware.calibration import Calibration, shipped, sigmoid
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.stages.decide import label
from crag_middleware.stages.fences import seen
from crag_middleware.types import EvaluatorKey, Grade, Passage, Thresholds

RERANKER_THRESHOLDS = Thresholds(lower=0.2, upper=0.8)
"""For the probabilities of an uncalibrated reranker."""

PROBE = (
    "What is the boiling point of water?",
    ("At sea level, water boils at 100 degrees Celsius.", "The book was written by a schoolteacher from Lisbon."),
)
"""A question with its answer and a text about something else: log odds of these two lie far outside of [0, 1], probabilities inside."""

ROUNDING = 1e-3
"""How far outside of [0, 1] a probability may lie."""


class RerankerEvaluator:
    """Grades passages by a reranker, all in one call, without a chat model.

    What a compressor leaves out of its result gets probability 0: it is worth less to it than all that it kept. So that it leaves out nothing for
    want of room, a `top_n` is raised to the number of passages, in a copy.

    Args:
        reranker: A cross-encoder (`score(pairs)`), or a document compressor that sets `relevance_score` in its documents' metadata, such as
            `CohereRerank` or `FlashrankRerank`. Of a `CrossEncoderReranker`, which tells no scores, its cross-encoder is used.
        scores: What the reranker's scores are: probabilities, or log odds (any number, which becomes a probability by the logistic function).
            With `auto` it is asked once, before its first grading, about an answer and an off-topic text of our own, and what its scores of these
            are, all others are taken to be.
        max_passage_chars: Longer passages are clipped for grading to head, best-matching window and tail; most rerankers read 512 tokens.

    Raises:
        ConfigError: This is no reranker, or an argument is out of range.
    """

    def __init__(
        self,
        reranker: BaseCrossEncoder | BaseDocumentCompressor,
        *,
        scores: Literal["auto", "probability", "logit"] = "auto",
        max_passage_chars: int = 1500,
    ) -> None:
        if scores not in ("auto", "probability", "logit"):
            msg = f'`scores` must be "auto", "probability" or "logit", got {scores!r}'
            raise ConfigError(msg)
        self._scorer = Scorer(reranker, task="grade", error=GradingError, max_passage_chars=max_passage_chars)
        self._scores = scores

    @property
    def thresholds(self) -> Thresholds:
        """Where the probabilities are cut without a calibration."""
        return RERANKER_THRESHOLDS

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are: the reranker's model, or its class if it names none."""
        return EvaluatorKey(type(self).__name__, self._scorer.model, VERSION)

    @property
    def calibration(self) -> Calibration | None:
        """The shipped calibration of this evaluator on this model, if there is one."""
        return shipped(self.key)

    def grade(self, question: str, passages: Sequence[Passage]) -> tuple[Grade, ...]:
        """One grade for each passage, in their order.

        Raises:
            GradingError: The reranker failed, or returned what are no scores.
        """
        return finish(self._steps(question, passages), self._scorer.score)

    async def agrade(self, question: str, passages: Sequence[Passage]) -> tuple[Grade, ...]:
        """The async form of `grade`; a cross-encoder, which has none, runs in a thread."""
        return await afinish(self._steps(question, passages), self._scorer.ascore)

    def _steps(self, question: str, passages: Sequence[Passage]) -> Generator[Asked, Scores, tuple[Grade, ...]]:
        texts = {p.id: text for p in passages if (text := self._scorer.text(p, question))}
        if texts and self._scores == "auto":
            probed = yield PROBE
            self._scores = "probability" if all(score is None or _is_fraction(score) for score in probed) else "logit"
        scores = (yield seen(question), tuple(texts.values())) if texts else ()
        found = dict(zip(texts, scores, strict=True))
        return tuple(self._grade(p.id, found.get(p.id), "left out" if p.id in texts else "empty") for p in passages)

    def _grade(self, passage_id: str, score: float | None, otherwise: str) -> Grade:
        if score is None:
            return Grade(passage_id=passage_id, probability=0.0, label="incorrect", reason=otherwise)
        if self._scores == "probability" and not _is_fraction(score):
            msg = 'the reranker gave a score outside of [0, 1] after others inside; say what they are: RerankerEvaluator(reranker, scores="logit")'
            raise GradingError(msg, reason="invalid_reply")
        probability = sigmoid(score) if self._scores == "logit" else min(1.0, max(0.0, score))
        return label(Grade(passage_id=passage_id, probability=probability, label="ungraded"), self.thresholds)


def _is_fraction(score: float) -> bool:
    return -ROUNDING <= score <= 1 + ROUNDING
