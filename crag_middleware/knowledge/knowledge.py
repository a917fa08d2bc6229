"""The knowledge of many tenants, wherever each one's rows lie: what goes in, and what an operator asks of one tenant."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crag_middleware.errors import ConfigError
from crag_middleware.knowledge import admin, migrate
from crag_middleware.knowledge import ingest as ingesting
from crag_middleware.knowledge.rows import Row, listed, prepare_rows, with_vectors
from crag_middleware.knowledge.tenant_rows import BATCH

if TYPE_CHECKING:
    from crag_middleware.knowledge.store import KnowledgeStore


class Knowledge(ABC):
    """What every kind of knowledge offers; get one from `open_knowledge`.

    Each text needs a tenant: `agent_id` in its metadata, or the keyword `agent_id=` of the call, which wins. Known metadata keys have fields of
    their own, free ones are kept as JSON. Everything is checked before anything is embedded or written; all rows are upserted, so repeating a
    call replaces its rows.
    """

    _dimension: int
    _embedder: Embeddings

    @abstractmethod
    def place(self, agent_id: str, *, timeout_s: float | None = None) -> "KnowledgeStore | None":
        """The store that holds the tenant's rows; None if nothing was ever written for the tenant. Looking makes nothing.

        Args:
            agent_id: The tenant.
            timeout_s: Seconds that Milvus may take to say whether there is one, where that is less than the store's own deadline.

        Raises:
            TenantError: `agent_id` is no tenant id.
            RetrievalError: Milvus failed.
        """

    @abstractmethod
    def _add(self, rows: Sequence[Row], batch_size: int, timeout_s: float | None) -> list[str]:
        """Embeds rows that have no vector, and writes them; their ids."""

    @abstractmethod
    async def _aadd(self, rows: Sequence[Row], batch_size: int, timeout_s: float | None) -> list[str]:
        """The async form of `_add`."""

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        timeout: float | None = None,
        batch_size: int = BATCH,
        *,
        ids: Sequence[str | None] | None = None,
        agent_id: str | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed and store texts.

        Args:
            texts: What is to be found; none may be blank or longer than 65,535 bytes in UTF-8. An empty list is fine.
            metadatas: One mapping a text.
            timeout: Deadline of each call of Milvus, in seconds, unless the store has one.
            batch_size: Texts embedded and rows written at once.
            ids: One id a text; None inside means "compute it".
            agent_id: The tenant of all texts, over whatever their metadata says.
            kwargs: None are known; they are refused.

        Returns:
            The ids in the order of the texts.

        Raises:
            TenantError: A text has no usable tenant, or its id exists under another one. Nothing was written.
            ConfigError: A text, an id or a metadata value can't be stored. Nothing was written.
            IngestError: Embedding or writing failed; what was written before stays, and repeating the call is safe.
        """
        return self._add(_prepare(texts, metadatas, ids, agent_id, kwargs), batch_size, timeout)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the name in langchain-milvus
        batch_size: int = BATCH,
        *,
        ids: Sequence[str | None] | None = None,
        agent_id: str | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """The async form of `add_texts`."""
        return await self._aadd(_prepare(texts, metadatas, ids, agent_id, kwargs), batch_size, timeout)

    def add_embeddings(
        self,
        texts: list[str],
        embeddings: Sequence[Any],
        metadatas: list[dict[str, Any]] | None = None,
        timeout: float | None = None,
        batch_size: int = BATCH,
        *,
        ids: Sequence[str | None] | None = None,
        agent_id: str | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Store texts with vectors made elsewhere, one a text; otherwise as `add_texts`."""
        rows = with_vectors(_prepare(texts, metadatas, ids, agent_id, kwargs), embeddings, self._dimension)
        return self._add(rows, batch_size, timeout)

    async def aadd_embeddings(
        self,
        texts: list[str],
        embeddings: Sequence[Any],
        metadatas: list[dict[str, Any]] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the name in langchain-milvus
        batch_size: int = BATCH,
        *,
        ids: Sequence[str | None] | None = None,
        agent_id: str | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """The async form of `add_embeddings`."""
        rows = with_vectors(_prepare(texts, metadatas, ids, agent_id, kwargs), embeddings, self._dimension)
        return await self._aadd(rows, batch_size, timeout)

    def add_documents(self, documents: Iterable[Document], **kwargs: Any) -> list[str]:
        """Embed and store documents with their metadata; `Document.id` is the id unless `ids=` is given. Keywords as in `add_texts`."""
        return self.add_texts(**_parts(documents, kwargs))

    async def aadd_documents(self, documents: Iterable[Document], **kwargs: Any) -> list[str]:
        """The async form of `add_documents`."""
        return await self.aadd_texts(**_parts(documents, kwargs))

    def upsert(
        self,
        ids: Sequence[str | None] | None = None,
        documents: Iterable[Document] | None = None,
        batch_size: int = BATCH,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Store documents in place of those with the same ids: `add_documents` does the same and returns the ids."""
        self.add_documents(documents or [], ids=ids, batch_size=batch_size, timeout=timeout, **kwargs)

    async def aupsert(
        self,
        ids: Sequence[str | None] | None = None,
        documents: Iterable[Document] | None = None,
        batch_size: int = BATCH,
        timeout: float | None = None,  # noqa: ASYNC109  # the name in langchain-milvus
        **kwargs: Any,
    ) -> None:
        """The async form of `upsert`."""
        await self.aadd_documents(documents or [], ids=ids, batch_size=batch_size, timeout=timeout, **kwargs)

    # The operator's side of it, a file for each.
    ingest = ingesting.ingest
    sources = admin.sources
    count = admin.count
    delete_source = admin.delete_source
    purge = admin.purge
    export = admin.export
    migrate_from = migrate.migrate_from


def _prepare(
    texts: Iterable[str],
    metadatas: Sequence[Mapping[str, Any]] | None,
    ids: Sequence[str | None] | None,
    agent_id: str | None,
    unknown: Mapping[str, Any],
) -> list[Row]:
    if unknown:
        msg = f"unknown keywords: {', '.join(sorted(unknown))}; known are metadatas, ids, agent_id, batch_size and timeout"
        raise ConfigError(msg)
    return prepare_rows(texts, metadatas, ids, agent_id=agent_id, now_ms=time.time_ns() // 1_000_000)


def _parts(documents: Iterable[Document], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The documents as arguments of `add_texts`."""
    documents = listed("documents", documents)
    if strangers := {type(document).__name__ for document in documents if not isinstance(document, Document)}:
        msg = f"`documents` must be Documents, got {', '.join(sorted(strangers))}; for plain texts use `add_texts`"
        raise ConfigError(msg)
    own = {"ids": [document.id for document in documents]} if keywords.get("ids") is None else {}
    return {
        **keywords,
        **own,
        "texts": [document.page_content for document in documents],
        "metadatas": [document.metadata for document in documents],
    }
