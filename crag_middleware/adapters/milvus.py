"""Search in Milvus: hybrid, one tenant's rows only, the same code for a Lite file and for a server."""

import asyncio
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeVar

import grpc
from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus
from langchain_milvus.utils.sparse import BaseSparseEmbedding
from langgraph.errors import GraphBubbleUp
from pymilvus import AnnSearchRequest, MilvusException, RRFRanker

from crag_middleware.adapters.milvus_clients import LoopClients
from crag_middleware.adapters.milvus_errors import NOT_LOADED, diagnosis, guarded
from crag_middleware.adapters.milvus_schema import Leg, read_layout
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.adapters.rows import LEGS, from_hit, similarity
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ConfigError, CRAGError, RetrievalError, TenantError
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.question import unicode
from crag_middleware.tenancy import Scope, check_agent_id, check_owners, combine, misread_by_server, row_expression, tenant_expression
from crag_middleware.types import Passage

T = TypeVar("T")
Hit = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Embed:
    """Asks an embedding model for the question's vector."""

    embedder: Embeddings | BaseSparseEmbedding
    question: str


@dataclass(frozen=True, slots=True)
class _Ask:
    """Calls a method of the Milvus client."""

    method: str
    arguments: Mapping[str, Any]


_Step = _Embed | _Ask
_Search = Generator[_Step, Any, T]
"""A search, written once: it yields what it needs from the world, and `retrieve` or `aretrieve` answers."""


@dataclass(frozen=True, slots=True)
class _Query:
    """The question as one leg takes it: a vector, or its text."""

    leg: Leg
    value: Any


class MilvusRetriever:
    """Passages of one tenant from a LangChain `Milvus` store.

    Each leg (dense, BM25, client-side sparse) brings its candidates under the tenant's filter, reciprocal ranks fuse them, and the tenant of every
    row that comes back is checked. It reads what the collection looks like when built; afterwards threads and event loops may share it.

    Args:
        store: Brings the connection, the embeddings and the consistency level.
        settings: `candidates`, `rrf_k`, `min_confidence`, `filter` and `explain` count here. With `explain` each passage's `metadata["legs"]`
            holds the rank and score that each leg gave it.
        tenant_field: The VARCHAR column that names a row's tenant, by default `agent_id`; or a key, such as `metadata["agent_id"]`.

    Raises:
        ConfigError: The collection is missing, its rows can't be told apart by tenant, or a filter names what it does not have.
    """

    def __init__(self, store: Milvus, *, settings: CRAGSettings | None = None, tenant_field: str | None = None) -> None:
        self._store = store
        self._settings = settings or CRAGSettings()
        self._clients = LoopClients(store._connection_args)
        with redacted_logs():
            self._layout = read_layout(store, tenant_field)
        self._rows = row_expression(self._settings.filter, self._settings.min_confidence, self._layout.fields)
        if self._rows and not self._layout.lite and misread_by_server(self._rows):
            msg = "`filter` must not hold Chinese characters beyond U+FFFF: a Milvus server misreads them"
            raise ConfigError(msg)

    def retrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> list[Passage]:
        """At most `limit` passages of the tenant, best first; `timeout_s` bounds each call to Milvus by what is left of it.

        Raises:
            TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
            RetrievalError: The search failed; its `reason` says how.
        """

        def perform(step: _Step) -> Any:
            match step:
                case _Embed(embedder, text):
                    return embedder.embed_query(text)
                case _Ask(method, arguments):
                    return getattr(self._store.client, method)(**arguments)

        with guarded(self._layout.collection):
            return finish(self._search(question, agent_id, limit, monotonic() + timeout_s), perform)

    async def aretrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> list[Passage]:
        """The async form of `retrieve`: ends after `timeout_s`, blocks no event loop, may be called from any."""

        async def perform(step: _Step) -> Any:
            match step:
                case _Embed(embedder, text):
                    return await embedder.aembed_query(text)
                case _Ask(method, arguments):
                    return await getattr(await self._clients.get(), method)(**arguments)

        with guarded(self._layout.collection):
            async with asyncio.timeout(timeout_s):
                return await afinish(self._search(question, agent_id, limit, monotonic() + timeout_s), perform)

    def _search(self, question: str, agent_id: str, limit: int, deadline: float) -> _Search[list[Passage]]:
        scope = Scope(check_agent_id(agent_id))
        expression = self._expression(scope)
        queries = yield from _queries(self._layout.legs, unicode(question))
        if not queries:
            return []
        found = yield from self._fetch(*self._request(queries, expression, limit), scope, deadline)
        single = queries[0].leg.metric if len(queries) == 1 else None
        passages = [
            from_hit(hit, self._layout, rank=rank, score=similarity(hit["distance"], single) if single else hit["distance"])
            for rank, hit in enumerate(found, 1)
        ]
        if not self._settings.explain:
            return passages
        legs: dict[str, dict[str, dict[str, float]]] = {p.id: {} for p in passages}
        for query in queries:
            hits = yield from self._fetch(*self._request([query], expression, self._candidates(limit)), scope, deadline)
            for rank, hit in enumerate(hits, 1):
                score = similarity(hit["distance"], query.leg.metric)
                said = {"rank": rank} | ({"score": score} if math.isfinite(score) else {})
                legs.get(str(hit[self._layout.primary]), {})[query.leg.field] = said
        return [replace(p, metadata={**p.metadata, LEGS: legs[p.id]}) for p in passages]

    def _expression(self, scope: Scope) -> str:
        """Which rows may be seen: the tenant's, narrowed by the settings."""
        tenant = tenant_expression(self._layout.tenant.path, scope)
        if not self._layout.lite and misread_by_server(tenant):
            msg = "`agent_id` must not hold Chinese characters beyond U+FFFF: a Milvus server would look for another id"
            raise TenantError(msg, reason="no_tenant")
        return combine(tenant, self._rows)

    def _candidates(self, limit: int) -> int:
        return max(self._settings.candidates, limit)

    def _request(self, queries: Sequence[_Query], expression: str, limit: int) -> tuple[str, dict[str, Any]]:
        """The client's method and its arguments: a plain search for one leg, a hybrid one for several, the filter on each leg.

        A filter for the hybrid search as a whole is ignored by Milvus.
        """
        common = {
            "collection_name": self._layout.collection,
            "limit": limit,
            "output_fields": list(self._layout.output),
            "consistency_level": self._store.consistency_level,
        }
        params = [{"metric_type": q.leg.metric, "params": dict(q.leg.params)} for q in queries]
        if len(queries) == 1:
            (query,) = queries
            return "search", common | {
                "data": [query.value],
                "anns_field": query.leg.field,
                "search_params": params[0],
                "filter": expression,
            }
        requests = [
            AnnSearchRequest([q.value], q.leg.field, param, limit=self._candidates(limit), expr=expression)
            for q, param in zip(queries, params, strict=True)
        ]
        return "hybrid_search", common | {"reqs": requests, "ranker": RRFRanker(self._settings.rrf_k)}

    def _fetch(self, method: str, arguments: dict[str, Any], scope: Scope, deadline: float) -> _Search[Sequence[Hit]]:
        """The tenant's hits, best first.

        A collection that is not loaded is loaded once. Where a connection was lost, as an idle one may be, the search is sent once more.
        """
        try:
            found = yield _Ask(method, arguments | {"timeout": _left(deadline)})
        except (MilvusException, grpc.RpcError) as error:
            if getattr(error, "code", None) == NOT_LOADED:
                yield _Ask("load_collection", {"collection_name": self._layout.collection, "timeout": _left(deadline)})
            elif diagnosis(error)[0] != "unavailable" or monotonic() >= deadline:
                raise
            found = yield _Ask(method, arguments | {"timeout": _left(deadline)})
        hits: Sequence[Hit] = found[0]
        check_owners((self._layout.tenant.owner(hit["entity"]) for hit in hits), scope)
        return hits


def _queries(legs: Sequence[Leg], question: str) -> _Search[list[_Query]]:
    """What each leg searches for; a leg that finds no words in the question is left out."""
    queries = []
    for leg in legs:
        value: Any = question
        if leg.embedder is not None:
            try:
                value = yield _Embed(leg.embedder, question)
            except (CRAGError, GraphBubbleUp):
                raise
            except Exception as error:  # noqa: BLE001 - raised on as ours
                msg = f"the embedding model failed with {type(error).__name__}"
                # Not `from error`: models quote the question in theirs, and causes are printed with every traceback.
                raise RetrievalError(msg, reason="embedding") from None
        if leg.dimension is not None and len(value) != leg.dimension:
            msg = (
                f"the embedding model makes vectors of {len(value)} numbers, but field `{leg.field}` holds vectors of {leg.dimension}: "
                "open the collection with the embeddings it was made with"
            )
            raise RetrievalError(msg, reason="embedding_dimension")
        if len(value):
            queries.append(_Query(leg, value))
    return queries


def _left(deadline: float) -> float:
    """Seconds until the deadline.

    Raises:
        TimeoutError: There are none.
    """
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
