"""Search where each tenant has a Milvus store of its own: the tenant's store is found first, then searched like any other."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from time import monotonic
from typing import Protocol, TypeVar, runtime_checkable

from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.drive import arun
from crag_middleware.errors import RetrievalError
from crag_middleware.findings import Found
from crag_middleware.pool import Pools
from crag_middleware.ports import Bound
from crag_middleware.settings import CRAGSettings
from crag_middleware.steps import MAIN, Call, ask
from crag_middleware.tenancy import check_agent_id, digest
from crag_middleware.types import Passage
from crag_middleware.world import World

T = TypeVar("T")

MAX_OPEN = 256
"""Tenants whose retriever is kept, those who asked last."""

GONE = frozenset({"collection_missing", "failed"})
"""How a search may fail where the tenant's store was dropped since it was opened, as another process may do."""


@runtime_checkable
class TenantPlaces(Protocol):
    """Knowledge with a store for each tenant, such as that of `open_knowledge(..., isolation="collection")`."""

    @property
    def base(self) -> Milvus:
        """A store that looks as each tenant's does; what is in it is not searched."""
        ...

    @property
    def embeddings(self) -> Embeddings:
        """What makes the vectors of every store."""
        ...

    def place(self, agent_id: str, *, timeout_s: float | None = None) -> Milvus | None:
        """The tenant's store; None if there is none. It asks, and so may block; it makes nothing."""
        ...


class TenantRetriever:
    """Passages from each tenant's own store; none for a tenant without one, which is not made by a search.

    Threads and event loops may share it.

    Args:
        places: Has the stores.
        settings: As for `MilvusRetriever`.
        with_vectors: As for `MilvusRetriever`.

    Raises:
        ConfigError: A filter names what the stores don't have.
    """

    def __init__(self, places: TenantPlaces, *, settings: CRAGSettings | None = None, with_vectors: bool = False) -> None:
        self._places = places
        self._over = partial(MilvusRetriever, settings=settings, with_vectors=with_vectors)
        self._over(places.base)
        self._pools = Pools()
        self._lock = Lock()
        self._known: OrderedDict[str, MilvusRetriever] = OrderedDict()
        self._finding = Bound("TenantPlaces.place", self._find, None, instant=False)

    @property
    def left_behind(self) -> Mapping[str, int]:
        """Calls of blocking embedding models, and searches for a tenant's store, that outlived their deadline and still run."""
        return self._pools.left_behind

    def retrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Found:
        """As `MilvusRetriever.retrieve`, in the tenant's own store.

        Raises:
            TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
            RetrievalError: The search failed; its `reason` says how.
        """
        return self._ask(agent_id, timeout_s, Found(()), lambda it, s: it.retrieve(question, agent_id=agent_id, limit=limit, timeout_s=s))

    async def aretrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Found:
        """The async form of `retrieve`: ends after `timeout_s`, blocks no event loop, may be called from any."""
        return await self._aask(
            agent_id, timeout_s, Found(()), lambda it, s: it.aretrieve(question, agent_id=agent_id, limit=limit, timeout_s=s)
        )

    def neighbours(self, passages: Sequence[Passage], *, agent_id: str, reach: int, timeout_s: float) -> list[list[Passage]]:
        """As `MilvusRetriever.neighbours`, in the tenant's own store.

        Raises:
            TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
            RetrievalError: The query failed; its `reason` says how.
        """
        none: list[list[Passage]] = [[] for _ in passages]
        return self._ask(agent_id, timeout_s, none, lambda it, s: it.neighbours(passages, agent_id=agent_id, reach=reach, timeout_s=s))

    async def aneighbours(self, passages: Sequence[Passage], *, agent_id: str, reach: int, timeout_s: float) -> list[list[Passage]]:
        """The async form of `neighbours`: ends after `timeout_s`."""
        none: list[list[Passage]] = [[] for _ in passages]
        return await self._aask(
            agent_id, timeout_s, none, lambda it, s: it.aneighbours(passages, agent_id=agent_id, reach=reach, timeout_s=s)
        )

    def _ask(self, agent_id: str, timeout_s: float, nothing: T, search: Callable[[MilvusRetriever, float], T]) -> T:
        """What the tenant's retriever answers in what is left of the time; nothing if there is none, or none any more."""
        deadline = monotonic() + timeout_s
        retriever = self._recall(agent_id) or self._find(agent_id, timeout_s)
        if retriever is None:
            return nothing
        try:
            return search(retriever, deadline - monotonic())
        except RetrievalError as error:
            if error.reason not in GONE or self._find(agent_id, deadline - monotonic()):
                raise
            return nothing

    async def _aask(self, agent_id: str, timeout_s: float, nothing: T, search: Callable[[MilvusRetriever, float], Awaitable[T]]) -> T:
        """The async form of `_ask`."""
        deadline = monotonic() + timeout_s
        retriever = self._recall(agent_id) or await self._afind(agent_id, timeout_s)
        if retriever is None:
            return nothing
        try:
            return await search(retriever, deadline - monotonic())
        except RetrievalError as error:
            if error.reason not in GONE or await self._afind(agent_id, deadline - monotonic()):
                raise
            return nothing

    def _recall(self, agent_id: str) -> MilvusRetriever | None:
        """The tenant's retriever if it is known, without asking anybody."""
        check_agent_id(agent_id)
        with self._lock:
            if agent_id in self._known:
                self._known.move_to_end(agent_id)
            return self._known.get(agent_id)

    def _find(self, agent_id: str, timeout_s: float) -> MilvusRetriever | None:
        """The tenant's retriever if Milvus has a store for it."""
        store = self._places.place(agent_id, timeout_s=max(timeout_s, 0.001))
        if store is None:
            with self._lock:
                self._known.pop(agent_id, None)
            return None
        found = self._over(store)
        found._pools = self._pools  # one set of threads for the embedding model, as it is one model
        with self._lock:
            found = self._known.setdefault(agent_id, found)
            self._known.move_to_end(agent_id)
            if len(self._known) > MAX_OPEN:
                self._known.popitem(last=False)
        return found

    async def _afind(self, agent_id: str, timeout_s: float) -> MilvusRetriever | None:
        """The async form of `_find`: in a thread, which is left behind if that is late."""
        call = Call(MAIN, (agent_id, timeout_s), {}, timeout_s, _as_it_is, RetrievalError)
        return await arun(ask(call), World({MAIN: self._finding}, report=lambda stage: None, tenant=digest(agent_id), pools=self._pools))


def _as_it_is(found: MilvusRetriever | None) -> MilvusRetriever | None:
    return found
