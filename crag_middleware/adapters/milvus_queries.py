"""What a search asks of the world, and what each leg searches for."""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.milvus_legs import Embedder, Leg
from crag_middleware.adapters.milvus_vectors import checked
from crag_middleware.errors import CRAGError, RetrievalError
from crag_middleware.types import Trouble

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Embed:
    """Asks an embedding model for the question's vector."""

    embedder: Embedder
    question: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Calls a method of the Milvus client."""

    method: str
    arguments: Mapping[str, Any]


Step = Embed | Ask
Search = Generator[Step, Any, T]
"""A search, written once: it yields what it needs from the world, and a sync or an async method answers."""


@dataclass(frozen=True, slots=True)
class Query:
    """The question as one leg takes it: a vector, or its text."""

    leg: Leg
    value: Any


def queries(legs: Sequence[Leg], question: str) -> Search[tuple[list[Query], tuple[Trouble, ...]]]:
    """What each leg searches for; one that finds no words in the question is left out.

    Returns:
        The queries, and a trouble for each leg that is done without since its embedder failed.

    Raises:
        RetrievalError: An embedder makes vectors of another size than its field holds, or one failed and no leg is left.
    """
    asked: list[Query] = []
    failed: dict[str, str] = {}
    for leg in legs:
        value: Any = question
        if leg.embedder is not None:
            try:
                value = checked((yield Embed(leg.embedder, question)), leg)
            except (CRAGError, GraphBubbleUp):
                raise
            except Exception as error:  # noqa: BLE001 - told, or raised on as ours where nothing is left to ask
                failed[leg.field] = type(error).__name__
                continue
        if len(value):
            asked.append(Query(leg, value))
    if failed and not asked:
        msg = f"the embedding model failed with {', '.join(dict.fromkeys(failed.values()))}"
        # Not `from` theirs: models quote the question in it, and causes are printed with every traceback.
        raise RetrievalError(msg, reason="embedding") from None
    for field, kind in failed.items():
        logger.warning("the embedding model of vector field %r failed with %s; the other legs were searched", field, kind)
    return asked, tuple(Trouble(field, "embedding") for field in failed)


def time_left(deadline: float) -> float:
    """Seconds until the deadline.

    Raises:
        TimeoutError: There are none.
    """
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
