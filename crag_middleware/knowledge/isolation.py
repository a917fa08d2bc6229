"""A place for each tenant, a collection or a database of its own, behind the methods that one shared collection has.

The tenant column is written, filtered on and checked in every place all the same: that a place is one tenant's is a second wall, not the only one.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn

from grpc import RpcError
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from pymilvus import MilvusClient, MilvusException

from crag_middleware.adapters.milvus_errors import diagnosis, guarded
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import IngestError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.knowledge.making import Making, patiently
from crag_middleware.knowledge.rows import Row, batched
from crag_middleware.knowledge.schema import ID, TENANT
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.tenancy import check_agent_id

MAX_OPEN = 256
"""Places held open, those used last; another one is opened again when it is needed."""

MAX_BASE = 255 - len("_") - 64
"""The longest name that names of places can begin with: Milvus allows 255 characters, and the digest takes 64."""


class _Where(NamedTuple):
    """A tenant's place: the collection, and the database that holds it if the tenant has one of its own."""

    collection: str
    database: str | None


class TenantStores(Knowledge):
    """Knowledge with a place for each tenant; get one from `open_knowledge(..., isolation="collection")` or `isolation="database"`.

    A place is made when something is first written for a tenant, never by looking. Its name is the base name and the SHA-256 of the tenant's id.
    The methods are those of `Knowledge`. There is no search over all tenants and no deleting by an expression, since no collection holds all rows;
    `place(agent_id)` is one tenant's `langchain_milvus.Milvus` store, on which these work. Rows of two tenants may have the same id.

    Threads and event loops may share it.

    Args:
        making: How the base collection was made, its language known.
        connection: What `MilvusClient` is given.
        base: Over the base collection.

    Attributes:
        isolation: `collection` or `database`.
        base: A store over the base collection: without rows, it keeps what the places have in common.
        collection_name: The base name.
    """

    def __init__(self, making: Making, connection: Mapping[str, Any], base: KnowledgeStore) -> None:
        self.isolation: str = making.isolation
        self.base = base
        self.collection_name: str = base.collection_name
        self._dimension = making.dimension
        self._embedder = making.embeddings
        self._making = replace(making, isolation=f"{making.isolation} of a tenant")
        self._connection = connection
        self._client = base.client
        self._lock = threading.Lock()
        self._opened = lru_cache(MAX_OPEN)(self._open)
        self._connected = lru_cache(MAX_OPEN)(self._connect)

    @property
    def embeddings(self) -> Embeddings:
        """What makes the dense vectors."""
        return self._embedder

    def __getattr__(self, name: str) -> NoReturn:
        """Says why something of a `langchain_milvus.Milvus` store is not here."""
        kind = type(self).__name__
        if name.startswith("_") or not hasattr(KnowledgeStore, name):
            msg = f"{kind!r} object has no attribute {name!r}"
        else:
            msg = f"{kind!r} has no `{name}`: each tenant's rows lie in a {self.isolation} of its own; use `place(agent_id).{name}` for one tenant"
        raise AttributeError(msg, name=name, obj=self)

    def place(self, agent_id: str, *, timeout_s: float | None = None) -> KnowledgeStore | None:
        """The store over the tenant's own collection; None if nothing was ever written for the tenant, or all was purged."""
        where = self._where(agent_id)
        shorter = min((s for s in (timeout_s, self._making.timeout_s) if s is not None), default=None)
        with guarded(self.collection_name):
            return self._opened(where) if self._exists(where, shorter) else None

    def purge(self, agent_id: str) -> int:
        """Drops the tenant's collection, and its database unless something else is in it; says how many rows that were.

        What the agent remembers elsewhere keeps its copies: checkpoints and receipts, exports, the logs and traces of others.

        Raises:
            TenantError: `agent_id` is no tenant id.
            IngestError: Milvus failed; the same call again goes on.
            RetrievalError: What is there could not be read.
        """
        where, rows = self._where(agent_id), self.count(agent_id)
        with self._lock, _failing("could not be dropped"):
            if where.database is None:
                self._client.drop_collection(where.collection, timeout=self._making.timeout_s)
            elif self._has_database(where.database, self._making.timeout_s):
                own = self._connected(where.database)
                own.drop_collection(where.collection, timeout=self._making.timeout_s)
                if not own.list_collections(timeout=self._making.timeout_s):
                    self._client.drop_database(where.database, timeout=self._making.timeout_s)
        return rows

    def _add(self, rows: Sequence[Row], batch_size: int, timeout_s: float | None) -> list[str]:
        for tenant, own in _by_tenant(rows, batch_size):
            self._made(tenant)._add(own, batch_size, timeout_s)
        return [row[ID] for row in rows]

    async def _aadd(self, rows: Sequence[Row], batch_size: int, timeout_s: float | None) -> list[str]:
        for tenant, own in _by_tenant(rows, batch_size):
            place = await run_in_executor(None, self._made, tenant)
            await place._aadd(own, batch_size, timeout_s)
        return [row[ID] for row in rows]

    def _where(self, agent_id: str) -> _Where:
        """The tenant's place, whether it is there or not: the digest has a fixed length, so that two base names never lead to one place."""
        own = f"{self.collection_name}_{sha256(check_agent_id(agent_id).encode()).hexdigest()}"
        return _Where(self.collection_name, own) if self.isolation == "database" else _Where(own, None)

    def _made(self, agent_id: str) -> KnowledgeStore:
        """The tenant's store, its place made if it is missing."""
        where = self._where(agent_id)
        with _failing("could not be opened or made"):
            if not self._exists(where, self._making.timeout_s):
                with self._lock:
                    self._make(where)
            return self._opened(where)

    def _make(self, where: _Where) -> None:
        if where.database is not None and not self._has_database(where.database, self._making.timeout_s):
            try:
                self._client.create_database(where.database, timeout=self._making.timeout_s)
            except MilvusException:
                if not self._has_database(where.database, self._making.timeout_s):  # else another process has just made it
                    raise
        client = self._client if where.database is None else self._connected(where.database)
        patiently(lambda: self._making.ensure(client, where.collection))

    def _exists(self, where: _Where, timeout_s: float | None) -> bool:
        if where.database is None:
            return bool(self._client.has_collection(where.collection, timeout=timeout_s))
        # Milvus answers for a collection in a database that is not there with an error, and not with no.
        if not self._has_database(where.database, timeout_s):
            return False
        return bool(self._connected(where.database).has_collection(where.collection, timeout=timeout_s))

    def _has_database(self, database: str, timeout_s: float | None) -> bool:
        return database in self._client.list_databases(timeout=timeout_s)

    def _open(self, where: _Where) -> KnowledgeStore:
        client = self._client if where.database is None else self._connected(where.database)
        own = {} if where.database is None else {"db_name": where.database}

        def attempt() -> KnowledgeStore:
            self._making.checked(client, where.collection)
            return self._making.store({**self._connection, **own}, where.collection)

        return patiently(attempt)

    def _connect(self, database: str) -> MilvusClient:
        return MilvusClient(**{**self._connection, "db_name": database})


def _by_tenant(rows: Sequence[Row], batch_size: int) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each tenant, in their order.

    Raises:
        ConfigError: `batch_size` can't be one.
    """
    batched(rows, batch_size)
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[TENANT]].append(row)
    return iter(found.items())


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Milvus' errors as ours."""
    with redacted_logs():
        try:
            yield
        except (MilvusException, RpcError) as error:
            reason, why = diagnosis(error)
            limit = "; a server holds so many collections and databases only (docs/tenants.md)" if reason == "failed" else ""
            msg = f"a tenant's own place {what}: {why}; the same call again goes on{limit}"
            # Not `from error`: it quotes names.
            raise IngestError(msg, reason=reason) from None
