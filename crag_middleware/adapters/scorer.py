"""Scores of texts by any of LangChain's rerankers: cross-encoders, and document compressors that tell a relevance score or at least an order."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.inner_model import failed, model_name
from crag_middleware.errors import ConfigError, CRAGError, let_pass
from crag_middleware.stages.fences import seen
from crag_middleware.stages.prompting import clip
from crag_middleware.types import Passage

VERSION = "pairs-1"
"""Of the texts that are scored: title and clipped passage."""

PLACE = "crag_place"
"""The metadata key by which a document is known again."""

SCORE = "relevance_score"
"""The metadata key under which LangChain's compressors tell a document's score."""

Asked = tuple[str, Sequence[str]]
"""A question and the texts to be scored against it."""

Scores = Sequence[float | None]
"""A score for each text, None for one that the reranker left out."""


class Scorer:
    """A reranker as one of our parts uses it.

    So that a compressor leaves out nothing for want of room, a `top_n` is raised to the number of texts, in a copy. Where several of its documents are
    parts of one text, as a splitter makes them, the best one counts.

    Args:
        reranker: A cross-encoder, or a document compressor. Of a `CrossEncoderReranker`, which tells no scores, its cross-encoder is used.
        task: What it is for, as a verb, for messages.
        error: What its failures are raised as.
        max_passage_chars: Longer passages are clipped to head, best-matching window and tail.
        by_place: A compressor may tell an order only; its scores are then the places in it, from 1 for the best down to 1/n for the last of n.

    Raises:
        ConfigError: This is no reranker, or `max_passage_chars` is out of range.
    """

    def __init__(
        self,
        reranker: BaseCrossEncoder | BaseDocumentCompressor,
        *,
        task: str,
        error: type[CRAGError],
        max_passage_chars: int,
        by_place: bool = False,
    ) -> None:
        found = next((one for one in (reranker, getattr(reranker, "model", None)) if callable(getattr(one, "score", None))), reranker)
        if not callable(getattr(found, "score", None)) and not callable(getattr(found, "compress_documents", None)):
            msg = f"`reranker` must be a LangChain cross-encoder or document compressor, got {type(reranker).__name__}"
            raise ConfigError(msg)
        self._reranker: Any = found
        self._task = task
        self._error = error
        self._max_chars = checked_max_chars(max_passage_chars)
        self._by_place = by_place

    @property
    def pairwise(self) -> bool:
        """Whether each text is scored by itself, so that scores of several calls can be compared."""
        return callable(getattr(self._reranker, "score", None))

    @property
    def model(self) -> str:
        """The reranker's model, or its class if it names none."""
        return model_name(self._reranker) or type(self._reranker).__name__

    def text(self, passage: Passage, question: str) -> str:
        """What of a passage is scored, as `scored_text` has it."""
        return scored_text(passage, question, self._max_chars)

    def score(self, asked: Asked) -> Scores:
        """One score for each text, in their order; higher is better.

        Raises:
            CRAGError: `error`: the reranker failed, or returned what are no scores.
        """
        query, texts = asked
        with self._ours():
            if self.pairwise:
                return self._pairs(self._reranker.score([(query, text) for text in texts]), len(texts))
            return self._kept(_uncapped(self._reranker, len(texts)).compress_documents(_documents(texts), query), len(texts))

    async def ascore(self, asked: Asked) -> Scores:
        """The async form of `score`; a cross-encoder, which has none, runs in a thread."""
        if self.pairwise:
            return await asyncio.to_thread(self.score, asked)
        query, texts = asked
        with self._ours():
            return self._kept(await _uncapped(self._reranker, len(texts)).acompress_documents(_documents(texts), query), len(texts))

    def _pairs(self, found: Any, count: int) -> Scores:
        scores = [self._number(score) for score in found]
        if len(scores) != count:
            msg = f"the reranker must return one score for each of {count} texts, got {len(scores)}"
            raise self._error(msg, reason="invalid_reply")
        return scores

    def _kept(self, found: Sequence[Document], count: int) -> Scores:
        places = [document.metadata.get(PLACE) for document in found]
        if not set(places) <= set(range(count)):
            msg = "the reranker must return the documents that it was given, with their metadata"
            raise self._error(msg, reason="invalid_reply")
        told = [document.metadata.get(SCORE) for document in found]
        if self._by_place and all(score is None for score in told):
            order = list(dict.fromkeys(places))
            best = {place: 1 - at / len(order) for at, place in enumerate(order)}
        else:
            best = {}
            for place, score in zip(places, map(self._number, told), strict=True):
                best[place] = max(score, best.get(place, score))
        return [best.get(place) for place in range(count)]

    def _number(self, score: Any) -> float:
        try:
            number = float(score)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            msg = (
                f"the reranker must tell a finite number for each text, a compressor as `{SCORE}`, got {type(score).__name__} that is none"
            )
            raise self._error(msg, reason="invalid_reply")
        return number

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """The reranker's failures as our error; they may quote passages, so only their class and status are told."""
        try:
            yield
        except (GraphBubbleUp, CRAGError):
            raise
        except Exception as error:  # noqa: BLE001 - raised on as ours
            let_pass(error)
            raise failed(self._error, self._task, error, who="reranker") from None


def scored_text(passage: Passage, question: str, max_chars: int) -> str:
    """A passage's title and its text, clipped to about `max_chars`; empty if the text is blank."""
    body = seen(clip(passage.text, question, max_chars)).strip()
    return "\n".join(filter(None, (seen(passage.title).strip(), body))) if body else ""


def checked_max_chars(max_passage_chars: int) -> int:
    """The limit, if a passage clipped to it still says something.

    Raises:
        ConfigError: It is below 100.
    """
    if max_passage_chars < 100:
        msg = f"`max_passage_chars` must be at least 100, got {max_passage_chars!r}"
        raise ConfigError(msg)
    return max_passage_chars


def _uncapped(reranker: Any, count: int) -> Any:
    """The reranker, or a copy of it that keeps as many documents as it gets."""
    return reranker.model_copy(update={"top_n": count}) if isinstance(getattr(reranker, "top_n", None), int) else reranker


def _documents(texts: Sequence[str]) -> list[Document]:
    return [Document(page_content=text, metadata={PLACE: place}) for place, text in enumerate(texts)]
