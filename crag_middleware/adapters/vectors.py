"""Any LangChain embeddings, their replies checked and brought to length 1."""

import math
from collections.abc import Callable, Collection, Sequence
from operator import mul
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.errors import GraphBubbleUp

from crag_middleware.errors import ConfigError, CRAGError, let_pass
from crag_middleware.types import Memo

Vector = Sequence[float]
"""Of length 1, or all zeros."""


class Vectors:
    """Embeddings as one of our parts uses them.

    Args:
        embeddings: Any LangChain embeddings.
        error: What their failures are raised as.

    Raises:
        ConfigError: These are no embeddings.
    """

    def __init__(self, embeddings: Embeddings, error: type[CRAGError]) -> None:
        methods = (getattr(embeddings, name, None) for name in ("embed_query", "embed_documents"))
        if isinstance(embeddings, type) or not all(map(callable, methods)):
            msg = f"`embeddings` must be LangChain embeddings with `embed_query` and `embed_documents`, got {type(embeddings).__name__}"
            raise ConfigError(msg)
        self._embeddings = embeddings
        self._error = error

    def query(self, text: str, memo: Memo | None = None) -> Vector:
        """The vector of a question.

        Args:
            text: The question.
            memo: Where it is kept for the rest of the turn.

        Raises:
            CRAGError: `error`: the embeddings failed, or this is no vector.
        """
        known = {} if memo is None else memo
        key = (Vectors, id(self._embeddings), "query", text)
        if key not in known:
            known[key] = self._unit(self._call(lambda: self._embeddings.embed_query(text)))
        vector: Vector = known[key]
        return vector

    def documents(self, texts: Sequence[str], memo: Memo | None = None) -> tuple[Vector, ...]:
        """A vector for each text, in their order; those not known yet are embedded in one batch, each once.

        Raises:
            CRAGError: `error`: as for `query`, or there are not as many vectors as texts.
        """
        known = {} if memo is None else memo
        keys = {text: (Vectors, id(self._embeddings), "document", text) for text in texts}
        new = [text for text, key in keys.items() if key not in known]
        found = self._call(lambda: self._embeddings.embed_documents(new)) if new else []
        if not isinstance(found, Collection) or len(found) != len(new):
            got = len(found) if isinstance(found, Collection) else type(found).__name__
            msg = f"the embeddings must return a list with one vector for each of {len(new)} texts, got {got}"
            raise self._error(msg, reason="invalid_reply")
        known.update(zip(map(keys.__getitem__, new), map(self._unit, found), strict=True))
        return tuple(known[keys[text]] for text in texts)

    def similarity(self, a: Vector, b: Vector) -> float:
        """Cosine similarity, in [-1, 1].

        Raises:
            CRAGError: `error`: the vectors are not of one size.
        """
        if len(a) != len(b):
            msg = f"the embeddings must return vectors of one size, got {len(a)} and {len(b)} numbers"
            raise self._error(msg, reason="invalid_reply")
        return float(sum(map(mul, a, b)))

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - raised on as ours
            let_pass(error)
            msg = f"the embeddings failed: {type(error).__name__}"
            # Not `from error`: models quote passages in theirs, and causes are printed with every traceback.
            raise self._error(msg) from None

    def _unit(self, vector: Any) -> Vector:
        """What the embeddings gave for one text, at length 1."""
        try:
            size, length = len(vector), math.hypot(*vector)
        except (TypeError, ValueError, OverflowError):
            size, length = 0, math.nan
        if not size or not math.isfinite(length):
            msg = f"the embeddings must return a list of finite numbers for each text, got {type(vector).__name__} that is none"
            raise self._error(msg, reason="invalid_reply")
        return [float(x) / (length or 1.0) for x in vector]
