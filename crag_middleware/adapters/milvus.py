"""Search in Milvus: hybrid, one tenant's rows only, the same code for a Lite file and for a server."""

import asyncio
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic, time_ns
from typing import Any

import grpc
from langchain_milvus import Milvus
from pymilvus import AnnSearchRequest, MilvusException, RRFRanker

from crag_middleware.adapters.milvus_clients import LoopClients
from crag_middleware.adapters.milvus_copies import Place, depth, fused, most_copies, ordered, places
from crag_middleware.adapters.milvus_errors import NOT_LOADED, diagnosis, guarded
from crag_middleware.adapters.milvus_legs import Embedder
from crag_middleware.adapters.milvus_neighbours import MAX_ROWS, beside, rows_beside
from crag_middleware.adapters.milvus_queries import Ask, Embed, Query, Search, Step, queries, time_left
from crag_middleware.adapters.milvus_schema import read_layout
from crag_middleware.adapters.milvus_vectors import unit
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.adapters.rows import LEGS, from_hit, similarity
from crag_middleware.drive import afinish, arun, finish, run
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.findings import Found
from crag_middleware.pool import Pools
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.question import unicode
from crag_middleware.stages.sameness import Looks
from crag_middleware.stages.stops import HAN
from crag_middleware.steps import ask
from crag_middleware.tenancy import Scope, check_agent_id, check_owners, combine, misread_by_server, row_expression, tenant_expression
from crag_middleware.types import Passage

logger = logging.getLogger(__name__)

CHINESE = re.compile(f"[{HAN}]")

ENDING = {"content_hash": "text", "fetched_at": "number", "expires_at": "number"}
"""Columns by which a collection of `open_knowledge` is known: in another one `expires_at` may be anything but milliseconds."""


class MilvusRetriever:
    """Passages of one tenant from a LangChain `Milvus` store.

    Each leg (a vector field: dense, BM25, learned sparse) brings its candidates under the tenant's filter, reciprocal ranks fuse them, and the tenant of
    every row that comes back is checked. Where the hits repeat a text, the legs are asked once more, deeper, and each text counts once (docs/legs.md).
    It reads what the collection looks like when built; afterwards threads and event loops may share it.

    Args:
        store: Brings the connection, the embeddings and the consistency level.
        settings: `candidates`, `rrf_k`, `min_confidence`, `filter` and `explain` count here. With `explain` each passage's `metadata["legs"]`
            holds the rank and score that each leg gave it.
        tenant_field: The VARCHAR column that names a row's tenant, by default `agent_id`; or a key, such as `metadata["agent_id"]`.
        embedders: By vector field, what embeds a question for those that the store has no embedder for: `Embeddings` for a dense one,
            `BaseSparseEmbedding` for a sparse one. Over the store's own.
        with_vectors: Whether a passage comes with its vector of the first dense leg, at length 1.

    Raises:
        ConfigError: The collection is missing, its rows can't be told apart by tenant, a filter names what it does not have, or an embedder fits no field.
    """

    def __init__(
        self,
        store: Milvus,
        *,
        settings: CRAGSettings | None = None,
        tenant_field: str | None = None,
        embedders: Mapping[str, Embedder] | None = None,
        with_vectors: bool = False,
    ) -> None:
        self._store = store
        self._settings = settings or CRAGSettings()
        self._clients = LoopClients(store._connection_args)
        self._pools = Pools()
        with redacted_logs():
            self._layout = read_layout(store, tenant_field, embedders)
        self._dense = self._layout.dense if with_vectors else None
        self._deaf = [leg.field for leg in self._layout.legs if not leg.splits_chinese]
        self._rows = row_expression(self._settings.filter, self._settings.min_confidence, self._layout.fields)
        self._ends = ENDING.items() <= self._layout.fields.columns.items()
        if self._rows and not self._layout.lite and misread_by_server(self._rows):
            msg = "`filter` must not hold Chinese characters beyond U+FFFF: a Milvus server misreads them"
            raise ConfigError(msg)

    @property
    def left_behind(self) -> Mapping[str, int]:
        """Calls of blocking embedding models that outlived their deadline and still run."""
        return self._pools.left_behind

    def retrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Found:
        """At most `limit` passages of the tenant, best first; `timeout_s` bounds each call to Milvus by what is left of it.

        An embedder that fails, or takes more than half of the time, costs its own leg alone as long as another one is left: `Found.troubles` names it.

        Raises:
            TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
            RetrievalError: The search failed; its `reason` says how.
        """
        with guarded(self._layout.collection):
            return finish(self._search(question, agent_id, limit, monotonic() + timeout_s), self._perform)

    async def aretrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Found:
        """The async form of `retrieve`: ends after `timeout_s`, blocks no event loop, may be called from any."""
        with guarded(self._layout.collection):
            async with asyncio.timeout(timeout_s):
                return await afinish(self._search(question, agent_id, limit, monotonic() + timeout_s), self._aperform)

    def neighbours(self, passages: Sequence[Passage], *, agent_id: str, reach: int, timeout_s: float) -> list[list[Passage]]:
        """For each passage the chunks of its document that stand at most `reach` places before or after it, in the document's order, without itself.

        They are found by `doc_id` (else `source`), `version` and `chunk_index`, as columns or as keys; empty for a passage without these. One query serves
        all passages, under the same conditions as a search.

        Raises:
            TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
            RetrievalError: The query failed; its `reason` says how.
        """
        with guarded(self._layout.collection):
            return finish(self._beside(passages, agent_id, reach, monotonic() + timeout_s), self._perform)

    async def aneighbours(self, passages: Sequence[Passage], *, agent_id: str, reach: int, timeout_s: float) -> list[list[Passage]]:
        """The async form of `neighbours`: ends after `timeout_s`."""
        with guarded(self._layout.collection):
            async with asyncio.timeout(timeout_s):
                return await afinish(self._beside(passages, agent_id, reach, monotonic() + timeout_s), self._aperform)

    def _perform(self, step: Step) -> Any:
        match step:
            case Embed():
                return run(ask(step.call), step.world(self._pools))
            case Ask(method, arguments):
                return getattr(self._store.client, method)(**arguments)

    async def _aperform(self, step: Step) -> Any:
        match step:
            case Embed():
                return await arun(ask(step.call), step.world(self._pools))
            case Ask(method, arguments):
                return await getattr(await self._clients.get(), method)(**arguments)

    def _search(self, question: str, agent_id: str, limit: int, deadline: float) -> Search[Found]:
        scope = Scope(check_agent_id(agent_id))
        expression = self._expression(scope)
        question = unicode(question)
        self._tell_deaf(question)
        asked, troubles = yield from queries(self._layout.legs, question, scope, deadline)
        if not asked:
            return Found((), troubles)
        found = yield from self._found(asked, expression, limit, scope, deadline)
        looks = Looks()
        copies = most_copies(found, looks)
        if copies == 1 and not self._settings.explain:
            return Found(ordered(found, looks), troubles)
        legs: dict[str, list[Passage]] = {}
        candidates = self._candidates(limit)
        for query in asked:
            legs[query.leg.field] = yield from self._found([query], expression, depth(candidates, copies), scope, deadline)
        standing = places(legs, candidates, looks)
        if copies > 1:
            found = fused(legs, standing, rrf_k=self._settings.rrf_k, limit=limit, looks=looks)
        if self._settings.explain:
            found = [_explained(p, standing, looks) for p in found]
        return Found(ordered(found, looks), troubles)

    def _beside(self, passages: Sequence[Passage], agent_id: str, reach: int, deadline: float) -> Search[list[list[Passage]]]:
        scope = Scope(check_agent_id(agent_id))
        rows = rows_beside(passages, reach, self._layout.fields) if reach > 0 else None
        if rows is None:
            return [[] for _ in passages]
        arguments = self._common(MAX_ROWS) | {"filter": combine(self._expression(scope), rows)}
        hits = yield from self._ask("query", arguments, deadline)
        check_owners((self._layout.tenant.owner(hit) for hit in hits), scope)
        primary = self._layout.primary
        return beside(passages, [from_hit({"entity": hit, primary: hit[primary]}, self._layout, rank=0, score=None) for hit in hits], reach)

    def _expression(self, scope: Scope) -> str:
        """Which rows may be seen: the tenant's, narrowed by the settings, without those that have expired."""
        tenant = tenant_expression(self._layout.tenant.path, scope)
        if not self._layout.lite and misread_by_server(tenant):
            msg = "`agent_id` must not hold Chinese characters beyond U+FFFF: a Milvus server would look for another id"
            raise TenantError(msg, reason="no_tenant")
        current = f"expires_at is null or expires_at > {time_ns() // 1_000_000}" if self._ends else None
        return combine(combine(tenant, self._rows), current)

    def _tell_deaf(self, question: str) -> None:
        """Warns once, at the first question with Chinese in it, of keyword legs that find no words in Chinese."""
        if self._deaf and CHINESE.search(question):
            fields, self._deaf = self._deaf, []
            logger.warning(
                "collection %r: the analyzer behind %s takes a run of Chinese for one word, so Chinese questions find next to nothing by keyword; make the "
                "collection with a Chinese analyzer, such as `{'tokenizer': 'jieba'}`, or with `open_knowledge`",
                self._layout.collection,
                ", ".join(fields),
            )

    def _candidates(self, limit: int) -> int:
        return max(self._settings.candidates, limit)

    def _common(self, limit: int) -> dict[str, Any]:
        """What every call says."""
        return {
            "collection_name": self._layout.collection,
            "limit": limit,
            "output_fields": [*self._layout.output],
            "consistency_level": self._store.consistency_level,
        }

    def _request(self, asked: Sequence[Query], expression: str, limit: int) -> tuple[str, dict[str, Any]]:
        """The client's method and its arguments: a plain search for one leg, a hybrid one for several, the filter on each leg.

        A filter for the hybrid search as a whole is ignored by Milvus.
        """
        common = self._common(limit)
        if self._dense:
            common["output_fields"].append(self._dense.field)
        params = [{"metric_type": q.leg.metric, "params": dict(q.leg.params)} for q in asked]
        if len(asked) == 1:
            (query,) = asked
            return "search", common | {
                "data": [query.value],
                "anns_field": query.leg.field,
                "search_params": params[0],
                "filter": expression,
            }
        requests = [
            AnnSearchRequest([q.value], q.leg.field, param, limit=self._candidates(limit), expr=expression)
            for q, param in zip(asked, params, strict=True)
        ]
        return "hybrid_search", common | {"reqs": requests, "ranker": RRFRanker(self._settings.rrf_k)}

    def _found(self, asked: Sequence[Query], expression: str, limit: int, scope: Scope, deadline: float) -> Search[list[Passage]]:
        """The tenant's passages, best first; of one query with the leg's own scores, higher is better."""
        (hits,) = yield from self._ask(*self._request(asked, expression, limit), deadline)
        check_owners((self._layout.tenant.owner(hit["entity"]) for hit in hits), scope)
        return [self._passage(hit, rank, asked[0].leg.metric if len(asked) == 1 else None) for rank, hit in enumerate(hits, 1)]

    def _passage(self, hit: Mapping[str, Any], rank: int, metric: str | None) -> Passage:
        """A hit as a passage; `metric` is that of its distance, None for a fused one."""
        score = hit["distance"] if metric is None else similarity(hit["distance"], metric)
        if self._dense is None:
            return from_hit(hit, self._layout, rank=rank, score=score)
        entity = dict(hit["entity"])
        vector = unit(entity.pop(self._dense.field, None), self._dense.kind)
        return replace(from_hit({**hit, "entity": entity}, self._layout, rank=rank, score=score), vector=vector)

    def _ask(self, method: str, arguments: dict[str, Any], deadline: float) -> Search[Any]:
        """What the client answers.

        A collection that is not loaded is loaded once. Where a connection was lost, as an idle one may be, the question is sent once more.
        """
        try:
            return (yield Ask(method, arguments | {"timeout": time_left(deadline)}))
        except (MilvusException, grpc.RpcError) as error:
            if getattr(error, "code", None) == NOT_LOADED:
                yield Ask("load_collection", {"collection_name": self._layout.collection, "timeout": time_left(deadline)})
            elif diagnosis(error)[0] != "unavailable" or monotonic() >= deadline:
                raise
            return (yield Ask(method, arguments | {"timeout": time_left(deadline)}))


def _explained(passage: Passage, standing: Mapping[str, Mapping[str, Place]], looks: Looks) -> Passage:
    """The passage with the rank and score that each leg gave its text."""
    text = looks[passage.text].normal
    legs = {}
    for field, at in standing.items():
        if place := at.get(text):
            score = place.score
            legs[field] = {"rank": place.rank} | ({"score": score} if score is not None and math.isfinite(score) else {})
    return replace(passage, metadata={**passage.metadata, LEGS: legs})
