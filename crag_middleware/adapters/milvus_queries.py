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
from crag_middleware.findings import Trouble
from crag_middleware.pool import Pools
from crag_middleware.ports import Bound
from crag_middleware.steps import Call
from crag_middleware.tenancy import Scope, digest
from crag_middleware.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

SHARE_OF_EMBEDDING = 0.5
"""Of the time that is left, for an embedding model while another leg waits to be asked: one that hangs must not take the other with it."""


class EmbeddingError(RetrievalError):
    """An embedding model failed, or was late."""


@dataclass(frozen=True, slots=True)
class Embed:
    """Asks an embedding model for the question's vector, for so many seconds at most."""

    embedder: Embedder
    question: str
    timeout_s: float
    scope: Scope

    @property
    def call(self) -> Call[Any]:
        """What a driver performs."""
        return Call("embedder", (self.question,), {}, self.timeout_s, _as_it_is, EmbeddingError)

    def world(self, pools: Pools) -> World:
        """What a driver needs to perform it, with these threads where the model blocks."""
        bound = Bound("Embeddings.embed_query", self.embedder.embed_query, self.embedder.aembed_query, instant=False)
        return World({"embedder": bound}, report=lambda stage: None, tenant=digest(self.scope.agent_id), pools=pools)


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


def queries(legs: Sequence[Leg], question: str, scope: Scope, deadline: float) -> Search[tuple[list[Query], tuple[Trouble, ...]]]:
    """What each leg searches for; one that finds no words in the question is left out.

    Args:
        legs: Those with an embedder first.
        question: What is searched for.
        scope: Whose search it is: a tenant whose calls hang must not take all threads.
        deadline: When the whole search must have ended, by `time.monotonic`.

    Returns:
        The queries, and a trouble for each leg that is done without since its embedder failed or was late.

    Raises:
        RetrievalError: An embedder makes vectors of another size than its field holds, or one failed and no leg is left.
    """
    asked: list[Query] = []
    failed: dict[str, str] = {}
    for place, leg in enumerate(legs, 1):
        value: Any = question
        if leg.embedder is not None:
            share = SHARE_OF_EMBEDDING if asked or place < len(legs) else 1.0
            try:
                value = checked((yield Embed(leg.embedder, question, share * time_left(deadline), scope)), leg)
            except EmbeddingError as error:
                failed[leg.field] = error.reason
                continue
            except (CRAGError, GraphBubbleUp):
                raise
            except Exception as error:  # noqa: BLE001 - what came is no vector; told, or raised on as ours where nothing is left to ask
                failed[leg.field] = type(error).__name__
                continue
        if len(value):
            asked.append(Query(leg, value))
    troubles = tuple(Trouble(field, "timeout" if why == "timeout" else "embedding") for field, why in failed.items())
    if failed and not asked:
        msg = f"the embedding model failed with {', '.join(dict.fromkeys(failed.values()))}"
        # Not `from` theirs: models quote the question in it, and causes are printed with every traceback.
        raise RetrievalError(msg, reason=troubles[0].reason) from None
    for field, why in failed.items():
        logger.warning("the embedding model of vector field %r failed with %s; the other legs were searched", field, why)
    return asked, troubles


def _as_it_is(vector: Any) -> Any:
    return vector


def time_left(deadline: float) -> float:
    """Seconds until the deadline.

    Raises:
        TimeoutError: There are none.
    """
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
