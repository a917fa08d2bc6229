"""What a user may give as knowledge, turned into a retriever: a Milvus store, one for each tenant, a LangChain retriever, or an object with `retrieve`."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.vectorstores import VectorStoreRetriever
from langchain_milvus import Milvus
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.milvus_schema import split_key
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.adapters.rows import from_document
from crag_middleware.adapters.tenant_retriever import TenantPlaces, TenantRetriever
from crag_middleware.errors import ConfigError, CRAGError, RetrievalError, let_pass
from crag_middleware.ports import AsyncRetriever, Retriever
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.question import unicode
from crag_middleware.tenancy import Scope, check_agent_id, check_owners
from crag_middleware.types import Passage

logger = logging.getLogger(__name__)


def as_retriever_port(
    given: object, *, tenant_field: str | None = None, settings: CRAGSettings | None = None, with_vectors: bool = False
) -> Retriever | AsyncRetriever:
    """The retriever for what was given.

    Args:
        given: A LangChain `Milvus` store or its retriever (both are searched by `MilvusRetriever`), knowledge with such a store for each tenant, another
            LangChain retriever, or an object with `retrieve` or `aretrieve`.
        tenant_field: Where a row or document names its tenant; None for `agent_id`. Only for a store or retriever of LangChain.
        settings: Goes to `MilvusRetriever`; nothing else obeys `filter`, `min_confidence` and `explain`.
        with_vectors: Whether passages of a Milvus store bring their dense vectors.

    Raises:
        ConfigError: It is none of these, can't be searched by tenant, or would not do what an argument says.
    """
    if isinstance(given, VectorStoreRetriever) and isinstance(given.vectorstore, Milvus):
        _check_options(given)
        given = given.vectorstore
    if isinstance(given, Milvus):
        return MilvusRetriever(given, settings=settings, tenant_field=tenant_field, with_vectors=with_vectors)
    if isinstance(given, BaseRetriever):
        _check_unused(given, settings)
        return LangChainRetriever(given, tenant_field="agent_id" if tenant_field is None else tenant_field)
    if callable(getattr(given, "retrieve", None)) or callable(getattr(given, "aretrieve", None)):
        _check_unused(given, settings)
        _check_field(given, tenant_field)
        return given  # type: ignore[return-value]  # told apart by its methods, which is what the protocols say
    if isinstance(given, TenantPlaces):
        _check_field(given, tenant_field)
        return TenantRetriever(given, settings=settings, with_vectors=with_vectors)
    msg = (
        "`vector_store` must be knowledge of `open_knowledge`, another langchain_milvus.Milvus store, a LangChain retriever "
        f"(any other vector store has `as_retriever()`), or an object with `retrieve` or `aretrieve`, got {type(given).__name__}"
    )
    raise ConfigError(msg)


def _check_field(given: object, tenant_field: str | None) -> None:
    if tenant_field is not None:
        msg = f"`tenant_field` does nothing for {type(given).__name__}, which is passed `agent_id` and finds the tenant's rows itself; leave it out"
        raise ConfigError(msg)


def _check_options(retriever: VectorStoreRetriever) -> None:
    """Refuses search options that would select rows, and names those that are not used."""
    options = retriever.search_kwargs
    if refused := [f"`{name}`" for name in ("filter", "expr") if options.get(name)]:
        msg = (
            f"the retriever's search_kwargs must not hold {' or '.join(refused)}: langchain-milvus ignores `filter`, and an `expr` can widen the "
            "tenant's rows; give the condition as data with `CRAGSettings(filter={...})`"
        )
        raise ConfigError(msg)
    if options or retriever.search_type != "similarity":
        logger.warning(
            "the retriever's search type and search_kwargs %s are not used; set `top_k` and `candidates` instead", sorted(options)
        )


def _check_unused(given: object, settings: CRAGSettings | None) -> None:
    """Refuses settings that only a Milvus search obeys: who narrows the rows must not believe it was done."""
    if settings is None:
        return
    wanted = {"filter": bool(settings.filter), "min_confidence": settings.min_confidence is not None, "explain": settings.explain}
    if unused := [f"`{name}`" for name, is_set in wanted.items() if is_set]:
        msg = (
            f"the settings {', '.join(unused)} work for a langchain_milvus.Milvus store and would do nothing for {type(given).__name__}; "
            "leave them out and narrow the search in the retriever itself"
        )
        raise ConfigError(msg)


class LangChainRetriever:
    """Passages from any LangChain retriever.

    The retriever is passed `agent_id`, `limit` and `timeout_s` if its methods name them; otherwise it has to know the tenant by itself.

    Args:
        retriever: Finds documents, best first.
        tenant_field: The metadata key in which each document names its tenant. None declares that no document is anybody's: every tenant may
            see all of them.
    """

    def __init__(self, retriever: BaseRetriever, *, tenant_field: str | None = "agent_id") -> None:
        keyed = None if tenant_field is None else split_key(tenant_field)
        self._retriever = retriever
        self._tenant_field = keyed[1] if keyed else tenant_field
        self._accepted = _parameters(retriever._get_relevant_documents)
        self._has_async_form = self._accepted <= _parameters(retriever._aget_relevant_documents)

    def retrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> list[Passage]:
        """At most `limit` of the documents found, as passages, in their order.

        Raises:
            TenantError: `agent_id` is no tenant id, or a document is not this tenant's.
            RetrievalError: The retriever failed.
        """
        with _guarded():
            scope = Scope(check_agent_id(agent_id))
            return self._passages(self._retriever.invoke(unicode(question), CONFIG, **self._options(scope, limit, timeout_s)), scope, limit)

    async def aretrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> list[Passage]:
        """The async form of `retrieve`; it ends after `timeout_s` seconds."""
        with _guarded():
            scope = Scope(check_agent_id(agent_id))
            options = self._options(scope, limit, timeout_s)
            async with asyncio.timeout(timeout_s):
                if self._has_async_form:
                    found = await self._retriever.ainvoke(unicode(question), CONFIG, **options)
                else:
                    found = await asyncio.to_thread(self._retriever.invoke, unicode(question), CONFIG, **options)
            return self._passages(found, scope, limit)

    def _options(self, scope: Scope, limit: int, timeout_s: float) -> dict[str, Any]:
        offered = {"agent_id": scope.agent_id, "limit": limit, "timeout_s": timeout_s}
        return {name: value for name, value in offered.items() if name in self._accepted}

    def _passages(self, found: object, scope: Scope, limit: int) -> list[Passage]:
        if not isinstance(found, list) or not all(isinstance(d, Document) for d in found):
            msg = f"a LangChain retriever must return a list of documents, got {type(found).__name__}"
            raise RetrievalError(msg, reason="invalid_reply")
        if self._tenant_field is not None:
            check_owners((d.metadata.get(self._tenant_field) for d in found), scope)
        return [from_document(d, rank=rank, tenant_field=self._tenant_field) for rank, d in enumerate(found[:limit], 1)]


CONFIG: RunnableConfig = {"run_name": "crag.retrieve"}
"""Names the call in traces; callbacks, tags and metadata come from the ambient config."""


def _parameters(method: Callable[..., object]) -> frozenset[str]:
    """The parameters that the method names: what its `**kwargs` would do with ours is unknown."""
    return frozenset({"agent_id", "limit", "timeout_s"} & inspect.signature(method).parameters.keys())


@contextmanager
def _guarded() -> Iterator[None]:
    """Keeps private text out of Milvus' logs, and turns foreign errors into ours.

    Not `from` theirs: they may quote documents or the question, and causes are printed with every traceback.
    """
    with redacted_logs():
        try:
            yield
        except (CRAGError, GraphBubbleUp):
            raise
        except TimeoutError:
            msg = "the retriever took too long"
            raise RetrievalError(msg, reason="timeout") from None
        except Exception as error:  # noqa: BLE001 - raised on as ours
            let_pass(error)
            msg = f"the retriever failed with {type(error).__name__}"
            raise RetrievalError(msg) from None
