"""Grading by any of LangChain's rerankers: cross-encoders, and document compressors that tell a relevance score."""

import asyncio
import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.inner_model import failed, model_name
from crag_middleware.calibration import Calibration, shipped, sigmoid
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.stages.decide import label
from crag_middleware.stages.fences import seen
from crag_middleware.stages.prompting import clip
from crag_middleware.types import EvaluatorKey, Grade, Passage, Thresholds

RERANKER_THRESHOLDS = Thresholds(lower=0.2, upper=0.8)
"""For the probabilities of an uncalibrated reranker."""

VERSION = "pairs-1"
"""Of the texts that are scored: title and clipped passage."""

PROBE = (
    "What is the boiling point of water?",
    ("At sea level, water boils at 100 degrees Celsius.", "The book was written by a schoolteacher from Lisbon."),
)
"""A question with its answer and a text about something else: log odds of these two lie far outside of [0, 1], probabilities inside."""

ROUNDING = 1e-3
"""How far outside of [0, 1] a probability may lie."""

PLACE = "crag_place"
"""The metadata key by which a document is known again."""

Asked = tuple[str, Sequence[str]]
Scores = Sequence[float | None]
"""A score for each text, None for one that the reranker left out."""


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
        found = next((one for one in (reranker, getattr(reranker, "model", None)) if callable(getattr(one, "score", None))), reranker)
        if not callable(getattr(found, "score", None)) and not callable(getattr(found, "compress_documents", None)):
            msg = f"`reranker` must be a LangChain cross-encoder or document compressor, got {type(reranker).__name__}"
            raise ConfigError(msg)
        if scores not in ("auto", "probability", "logit"):
            msg = f'`scores` must be "auto", "probability" or "logit", got {scores!r}'
            raise ConfigError(msg)
        if max_passage_chars < 100:
            msg = f"`max_passage_chars` must be at least 100, got {max_passage_chars!r}"
            raise ConfigError(msg)
        self._reranker: Any = found
        self._scores = scores
        self._max_chars = max_passage_chars

    @property
    def thresholds(self) -> Thresholds:
        """Where the probabilities are cut without a calibration."""
        return RERANKER_THRESHOLDS

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are: the reranker's model, or its class if it names none."""
        return EvaluatorKey(type(self).__name__, model_name(self._reranker) or type(self._reranker).__name__, VERSION)

    @property
    def calibration(self) -> Calibration | None:
        """The shipped calibration of this evaluator on this model, if there is one."""
        return shipped(self.key)

    def grade(self, question: str, passages: Sequence[Passage]) -> tuple[Grade, ...]:
        """One grade for each passage, in their order.

        Raises:
            GradingError: The reranker failed, or returned what are no scores.
        """
        return finish(self._steps(question, passages), self._score)

    async def agrade(self, question: str, passages: Sequence[Passage]) -> tuple[Grade, ...]:
        """The async form of `grade`; a cross-encoder, which has none, runs in a thread."""
        return await afinish(self._steps(question, passages), self._ascore)

    def _steps(self, question: str, passages: Sequence[Passage]) -> Generator[Asked, Scores, tuple[Grade, ...]]:
        texts = {p.id: text for p in passages if (text := self._text(p, question))}
        if texts and self._scores == "auto":
            probed = yield PROBE
            self._scores = "probability" if all(score is None or _is_fraction(score) for score in probed) else "logit"
        scores = (yield seen(question), tuple(texts.values())) if texts else ()
        found = dict(zip(texts, scores, strict=True))
        return tuple(self._grade(p.id, found.get(p.id), "left out" if p.id in texts else "empty") for p in passages)

    def _text(self, passage: Passage, question: str) -> str:
        body = seen(clip(passage.text, question, self._max_chars)).strip()
        return "\n".join(filter(None, (seen(passage.title).strip(), body))) if body else ""

    def _grade(self, passage_id: str, score: float | None, otherwise: str) -> Grade:
        if score is None:
            return Grade(passage_id=passage_id, probability=0.0, label="incorrect", reason=otherwise)
        if self._scores == "probability" and not _is_fraction(score):
            msg = 'the reranker gave a score outside of [0, 1] after others inside; say what they are: RerankerEvaluator(reranker, scores="logit")'
            raise GradingError(msg, reason="invalid_reply")
        probability = sigmoid(score) if self._scores == "logit" else min(1.0, max(0.0, score))
        return label(Grade(passage_id=passage_id, probability=probability, label="ungraded"), self.thresholds)

    def _score(self, asked: Asked) -> Scores:
        query, texts = asked
        with _ours():
            if self._compresses:
                found = _uncapped(self._reranker, len(texts)).compress_documents(_documents(texts), query)
            else:
                found = self._reranker.score([(query, text) for text in texts])
            return self._read(found, len(texts))

    async def _ascore(self, asked: Asked) -> Scores:
        if not self._compresses:
            return await asyncio.to_thread(self._score, asked)
        query, texts = asked
        with _ours():
            found = await _uncapped(self._reranker, len(texts)).acompress_documents(_documents(texts), query)
            return self._read(found, len(texts))

    @property
    def _compresses(self) -> bool:
        return not callable(getattr(self._reranker, "score", None))

    def _read(self, found: Any, count: int) -> Scores:
        """The scores in what the reranker returned, one for each text."""
        if self._compresses:
            kept = {document.metadata.get(PLACE): _number(document.metadata.get("relevance_score")) for document in found}
            if not kept.keys() <= set(range(count)):
                msg = "the reranker must return the documents that it was given, with their metadata"
                raise GradingError(msg, reason="invalid_reply")
            return [kept.get(place) for place in range(count)]
        scores = [_number(score) for score in found]
        if len(scores) != count:
            msg = f"the reranker must return one score for each of {count} texts, got {len(scores)}"
            raise GradingError(msg, reason="invalid_reply")
        return scores


@contextmanager
def _ours() -> Iterator[None]:
    """The reranker's failures as our error; they may quote passages, so only their class and status are told."""
    try:
        yield
    except (GraphBubbleUp, GradingError):
        raise
    except Exception as error:  # noqa: BLE001 - raised on as ours
        raise failed(GradingError, "grade", error, who="reranker") from None


def _uncapped(reranker: Any, count: int) -> Any:
    """The reranker, or a copy of it that keeps as many documents as it gets."""
    return reranker.model_copy(update={"top_n": count}) if isinstance(getattr(reranker, "top_n", None), int) else reranker


def _documents(texts: Sequence[str]) -> list[Document]:
    return [Document(page_content=text, metadata={PLACE: place}) for place, text in enumerate(texts)]


def _number(score: Any) -> float:
    try:
        number = float(score)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        msg = f"the reranker must tell a finite number for each text, a compressor as `relevance_score`, got {type(score).__name__} that is none"
        raise GradingError(msg, reason="invalid_reply")
    return number


def _is_fraction(score: float) -> bool:
    return -ROUNDING <= score <= 1 + ROUNDING
