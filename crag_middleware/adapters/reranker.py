"""Reranking by any of LangChain's rerankers: cross-encoders, and document compressors that tell a relevance score or an order."""

import logging
import math
import time
from collections.abc import Generator, Sequence

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor

from crag_middleware.adapters.fan_out import SHARE_OF_TIME
from crag_middleware.adapters.scorer import VERSION, Asked, Scorer, Scores
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ConfigError, RerankError
from crag_middleware.stages.fences import seen
from crag_middleware.types import EvaluatorKey, Passage

logger = logging.getLogger(__name__)

MAX_PASSAGE_CHARS = 1500
"""Most rerankers read 512 tokens."""

PassageScores = tuple[float | None, ...]
"""A score for each passage, higher is better; None for one that was not scored."""


class ModelReranker:
    """Orders passages by a cross-encoder or by a document compressor that reranks, on whatever scale its scores are.

    Args:
        reranker: A cross-encoder (`score(pairs)`), or a document compressor that sets `relevance_score` in its documents' metadata, such as
            `CohereRerank` or `FlashrankRerank`, or tells an order only, such as `LLMListwiseRerank`: its scores are the places, from 1 for the best down to
            1/n. Of a `CrossEncoderReranker`, which tells no scores, its cross-encoder is used. A `top_n` is raised to the number of passages, in a copy.
        floor: Passages that score below it are left out of the turn. It is on the reranker's own scale, so it belongs to one model and means nothing to a
            compressor that tells an order only, which then fails. None to leave out nothing.
        batch_size: Pairs that a cross-encoder is given at a time; between batches the deadline is looked at. A compressor gets all passages in one call, since
            what it says in one can't be compared with what it says in another.
        max_passage_chars: Longer passages are clipped for scoring to head, best-matching window and tail.

    Raises:
        ConfigError: This is no reranker, or an argument is out of range.
    """

    def __init__(
        self,
        reranker: BaseCrossEncoder | BaseDocumentCompressor,
        *,
        floor: float | None = None,
        batch_size: int = 32,
        max_passage_chars: int = MAX_PASSAGE_CHARS,
    ) -> None:
        if batch_size < 1:
            msg = f"`batch_size` must be at least 1, got {batch_size!r}"
            raise ConfigError(msg)
        self.floor: float | None = checked_floor(floor)
        self._scorer = Scorer(reranker, task="rerank", error=RerankError, max_passage_chars=max_passage_chars, by_place=floor is None)
        self._batch_size = batch_size

    @property
    def key(self) -> EvaluatorKey:
        """Whose scores these are: the reranker's model, or its class if it names none."""
        return EvaluatorKey(type(self).__name__, self._scorer.model, VERSION)

    def rerank(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0) -> PassageScores:
        """One score for each passage, in their order.

        Args:
            question: What the passages should answer.
            passages: Best first, since those that there is no time for are the last.
            timeout_s: Batches that would end later are not begun; the first one always is.

        Returns:
            None for a blank passage, for one that a compressor left out, and for one that there was no time for, which is logged.

        Raises:
            RerankError: The reranker failed, or returned what are no scores.
        """
        return finish(self._steps(question, passages, timeout_s), self._scorer.score)

    async def arerank(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0) -> PassageScores:
        """The async form of `rerank`; a cross-encoder, which has none, runs in a thread."""
        return await afinish(self._steps(question, passages, timeout_s), self._scorer.ascore)

    def _steps(self, question: str, passages: Sequence[Passage], timeout_s: float) -> Generator[Asked, Scores, PassageScores]:
        texts = {place: text for place, p in enumerate(passages) if (text := self._scorer.text(p, question))}
        places, size = list(texts), self._batch_size if self._scorer.pairwise else max(1, len(texts))
        asked, begun = seen(question), time.monotonic()
        found: dict[int, float | None] = {}
        for batches, start in enumerate(range(0, len(places), size)):
            mean_s = (time.monotonic() - begun) / max(1, batches)
            if batches and mean_s * (batches + 1) > SHARE_OF_TIME * timeout_s:
                logger.warning("%d of %d passages were not reranked for want of time", len(places) - start, len(places))
                break
            batch = places[start : start + size]
            found.update(zip(batch, (yield asked, tuple(texts[place] for place in batch)), strict=True))
        return tuple(found.get(place) for place in range(len(passages)))


def checked_floor(floor: float | None) -> float | None:
    """The floor, if scores can be compared with it.

    Raises:
        ConfigError: It is no finite number.
    """
    if floor is not None and (not isinstance(floor, int | float) or not math.isfinite(floor)):
        msg = f"`floor` must be a finite number on the reranker's own scale, or None, got {floor!r}"
        raise ConfigError(msg)
    return floor
