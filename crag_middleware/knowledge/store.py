"""The store that `open_knowledge` returns: a `langchain_milvus.Milvus` whose ingest fills, checks and never crosses tenants.

This is the operator's path: whoever holds the store may write for every tenant and search all of them. Agents go through the middleware.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_milvus import BM25BuiltInFunction, Milvus
from langgraph.errors import GraphBubbleUp
from pymilvus import MilvusException

from crag_middleware.adapters.milvus_clients import LoopClients
from crag_middleware.adapters.milvus_errors import NOT_LOADED, diagnosis
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import ConfigError, CRAGError, IngestError, TenantError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.knowledge.rows import Row, batched, with_vectors
from crag_middleware.knowledge.schema import DENSE, ID, INDEXES, SEARCH_PARAMS, SPARSE, TENANT, TEXT
from crag_middleware.knowledge.tenant_rows import IDS_AT_ONCE, metadata_of, one_of
from crag_middleware.settings import CRAGSettings
from crag_middleware.tenancy import check_agent_id

_DEFAULTS = CRAGSettings()


class KnowledgeStore(Knowledge, Milvus):
    """A hybrid, tenant-partitioned Milvus store; get one from `open_knowledge`.

    What goes in, and what an operator asks of one tenant, is told at `Knowledge`. Ids are looked up before they are written and refused when another
    tenant has them; two writers that bring the same id of their own for two tenants in the same instant can still pass each other.

    Searches of this class see every tenant unless `expr=` says otherwise.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        connection_args: Mapping[str, Any],
        *,
        collection: str,
        dimension: int,
        consistency_level: str,
        timeout_s: float | None,
    ) -> None:
        self._dimension = dimension
        self._embedder = embeddings
        super().__init__(
            embedding_function=embeddings,
            builtin_function=BM25BuiltInFunction(input_field_names=TEXT, output_field_names=SPARSE),
            collection_name=collection,
            connection_args=dict(connection_args),
            consistency_level=consistency_level,
            index_params=[dict(index) for index in INDEXES.values()],
            search_params=[dict(params) for params in SEARCH_PARAMS],
            primary_field=ID,
            text_field=TEXT,
            vector_field=[DENSE, SPARSE],
            partition_key_field=TENANT,
            timeout=timeout_s,
        )
        # The inherited async client would be bound to the first event loop that uses it.
        self._async_milvus_client = _ClientOfEachLoop(connection_args)

    def place(self, agent_id: str, *, timeout_s: float | None = None) -> "KnowledgeStore":
        """This store: one place holds every tenant's rows."""
        check_agent_id(agent_id)
        return self

    def delete(self, ids: list[str] | None = None, expr: str | None = None, **kwargs: Any) -> bool | None:
        """Delete rows by id, of whatever tenant, else by a Milvus expression; False if Milvus refused."""
        with redacted_logs():
            return super().delete(expr=_chosen(ids, expr), **kwargs)

    async def adelete(self, ids: list[str] | None = None, expr: str | None = None, **kwargs: Any) -> bool | None:
        """The async form of `delete`."""
        # The inherited one says True whatever Milvus answers: pymilvus' async delete does not raise.
        return await run_in_executor(None, self.delete, ids, expr, **kwargs)

    def get_pks(self, expr: str, **kwargs: Any) -> Any:
        """The ids of the rows that match a Milvus expression, of whatever tenant."""
        with redacted_logs():
            return super().get_pks(expr, **kwargs)

    async def aget_pks(self, expr: str, **kwargs: Any) -> Any:
        """The async form of `get_pks`."""
        with redacted_logs():
            return await super().aget_pks(expr, **kwargs)

    def search_by_metadata(self, expr: str, fields: list[str] | None = None, limit: int = 10) -> list[Document]:
        """Rows that match a Milvus expression, of whatever tenant; none if Milvus refused."""
        with redacted_logs():
            return super().search_by_metadata(expr, fields, limit)

    async def asearch_by_metadata(self, expr: str, fields: list[str] | None = None, limit: int = 10) -> list[Document]:
        """The async form of `search_by_metadata`."""
        with redacted_logs():
            return await super().asearch_by_metadata(expr, fields, limit)

    @classmethod
    def from_texts(cls, *_: Any, **__: Any) -> "KnowledgeStore":
        """Refused: a collection is made by `open_knowledge`."""
        msg = "a knowledge collection is made or opened with `open_knowledge(...)`; then call `add_texts` or `add_documents` on it"
        raise ConfigError(msg)

    @classmethod
    async def afrom_texts(cls, *_: Any, **__: Any) -> "KnowledgeStore":
        """Refused like `from_texts`."""
        return cls.from_texts()

    def _add(self, rows: Sequence[Row], batch_size: int, timeout_s: float | None) -> list[str]:
        batches = list(batched(_latest(rows), batch_size))
        self._refuse_foreign_ids(rows, timeout_s)
        for done, batch in enumerate(batches):
            with _told(done * batch_size, len(rows)):
                if DENSE not in batch[0]:
                    batch = with_vectors(batch, self._embedder.embed_documents([row[TEXT] for row in batch]), self._dimension)
                self._write(batch, timeout_s)
        return [row[ID] for row in rows]

    async def _aadd(self, rows: Sequence[Row], batch_size: int, timeout_s: float | None) -> list[str]:
        batches = list(batched(_latest(rows), batch_size))
        await run_in_executor(None, self._refuse_foreign_ids, rows, timeout_s)
        for done, batch in enumerate(batches):
            with _told(done * batch_size, len(rows)):
                if DENSE not in batch[0]:
                    batch = with_vectors(batch, await self._embedder.aembed_documents([row[TEXT] for row in batch]), self._dimension)
                await run_in_executor(None, self._write, batch, timeout_s)
        return [row[ID] for row in rows]

    def _refuse_foreign_ids(self, rows: Sequence[Row], timeout_s: float | None) -> None:
        """Passes if no id of the rows exists under another tenant."""
        for part in batched(rows, IDS_AT_ONCE):
            tenants = {row[ID]: row[TENANT] for row in part}
            with _told(0, len(rows)), redacted_logs():
                wanted = {"filter": one_of(ID, tenants), "output_fields": [ID, TENANT], "consistency_level": "Strong"}
                found = self._call("query", timeout_s, **wanted)
            if foreign := {hit[ID] for hit in found if tenants.get(hit[ID]) != hit[TENANT]}:
                position = next(place for place, row in enumerate(rows) if row[ID] in foreign)
                msg = f"documents[{position}]: its id exists under another tenant; give it another id, or none so that one is computed"
                raise TenantError(msg, reason="foreign_id")

    def _write(self, rows: Sequence[Row], timeout_s: float | None) -> None:
        with redacted_logs():
            self._call("upsert", timeout_s, data=rows)

    def _call(self, method: str, timeout_s: float | None, **arguments: Any) -> Any:
        """What the client's method returns. A collection that is not loaded is loaded once."""
        call, timeout = getattr(self.client, method), self.timeout or timeout_s
        try:
            return call(self.collection_name, timeout=timeout, **arguments)
        except MilvusException as error:
            if error.code != NOT_LOADED:
                raise
            self.client.load_collection(self.collection_name, timeout=timeout)
            return call(self.collection_name, timeout=timeout, **arguments)

    # Every inherited search by meaning or words ends in one of these two.

    def _collection_hybrid_search(self, *args: Any, **kwargs: Any) -> list[list[dict[str, Any]]] | None:
        with redacted_logs():
            return super()._collection_hybrid_search(*args, **_search_options(kwargs))

    async def _acollection_hybrid_search(self, *args: Any, **kwargs: Any) -> list[list[dict[str, Any]]] | None:
        with redacted_logs():
            return await super()._acollection_hybrid_search(*args, **_search_options(kwargs))

    def _remove_forbidden_fields(self, fields: list[str]) -> list[str]:
        # The inherited one lengthens the store's own list of vector fields at each call, which breaks the next weighted search.
        return [field for field in fields if field not in INDEXES]

    def _parse_document(self, data: dict[str, Any]) -> Document:
        """A stored row as it was given, with its id on the document."""
        return Document(page_content=data[TEXT], metadata=metadata_of(data), id=data.get(ID))


class _ClientOfEachLoop:
    """Passes each call on to the async client of the event loop that makes it."""

    def __init__(self, connection_args: Mapping[str, Any]) -> None:
        self._clients = LoopClients(connection_args)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(await self._clients.get(), method)(*args, **kwargs)

        return call


def _chosen(ids: Sequence[str] | None, expr: str | None) -> str:
    """Which rows to delete; the inherited form writes ids as Python does, which Milvus reads differently."""
    if (not ids and not expr) or isinstance(ids, str):
        msg = "nothing to delete: give `ids` as a list, or `expr`"
        raise ConfigError(msg)
    return one_of(ID, ids) if ids else expr or ""


def _latest(rows: Sequence[Row]) -> list[Row]:
    """The rows without repeated ids, which a server refuses within one call; the last one counts."""
    return list({row[ID]: row for row in rows}.values())


@contextmanager
def _told(done: int, total: int) -> Iterator[None]:
    """Failures of the embeddings and of Milvus as ours, with how far the call came."""
    try:
        yield
    except (CRAGError, GraphBubbleUp):
        raise
    except Exception as error:  # noqa: BLE001 - raised on as ours
        reason, what = diagnosis(error)
        msg = f"ingest failed after {done} of {total} rows (those are stored; the same call again replaces them and goes on): {what}"
        # Not `from error`: Milvus and embeddings quote rows in theirs, and causes are printed with every traceback.
        raise IngestError(msg, reason=reason) from None


def _search_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Inherited searches with rank fusion and as many candidates as the middleware's, instead of raw scores added up and 4."""
    if "filter" in given:
        msg = "`filter=` does nothing in langchain-milvus and the search would cover every tenant; pass `expr=` with a Milvus expression"
        raise ConfigError(msg)
    ranker = {} if "reranker" in given else {"ranker_type": "rrf", "ranker_params": {"k": _DEFAULTS.rrf_k}}
    return {"fetch_k": max(given.get("k", 0), _DEFAULTS.candidates), **ranker, **given}
