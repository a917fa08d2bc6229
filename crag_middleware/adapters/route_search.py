"""The sync and async search of a route that is no Milvus store: a LangChain retriever, an object with `retrieve`, a function."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from langchain_milvus import Milvus
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.langchain_retriever import LangChainRetriever
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.adapters.rows import OWNER, from_document
from crag_middleware.errors import ConfigError, CRAGError, RetrievalError, let_pass
from crag_middleware.findings import Found
from crag_middleware.stages.question import unicode
from crag_middleware.tenancy import Scope, check_agent_id, check_owners
from crag_middleware.types import Passage

OFFERED = frozenset({"agent_id", "limit", "timeout_s"})
"""The keywords that a search may name."""


@dataclass(frozen=True, slots=True)
class RoutePort:
    """A `Retriever` port of two functions; None for a form that it lacks."""

    retrieve: Callable[..., Sequence[Passage]] | None
    aretrieve: Callable[..., Awaitable[Sequence[Passage]]] | None


def of_retriever(given: BaseRetriever, *, public: bool, tenant_field: str | None) -> RoutePort:
    """That of a LangChain retriever; each document names its tenant, unless it is public.

    Raises:
        ConfigError: It is public and can't do without `agent_id`.
    """
    port = _Public(given) if public else LangChainRetriever(given, tenant_field=OWNER if tenant_field is None else tenant_field)
    return RoutePort(port.retrieve, port.aretrieve if _waits_by_itself(given) else None)


class _Public(LangChainRetriever):
    """A LangChain retriever that is never told whose question it is."""

    def __init__(self, retriever: BaseRetriever) -> None:
        for method in (retriever._get_relevant_documents, retriever._aget_relevant_documents):
            named = inspect.signature(method).parameters.get("agent_id")
            if named is not None and named.default is named.empty:
                raise ConfigError(_NEEDS_TENANT)
        super().__init__(retriever, tenant_field=None)
        self._accepted -= {"agent_id"}

    def _passages(self, found: object, scope: Scope, limit: int) -> list[Passage]:
        passages = super()._passages(found, scope, limit)
        _check_named_owners(found, scope)
        return passages


def _waits_by_itself(retriever: BaseRetriever) -> bool:
    """Whether its async form is one of its own, and serves on any event loop.

    Where there is none, LangChain runs the sync one in a small pool of threads: one that hangs keeps them from others, and `asyncio.run` waits for it at its
    end. A driver's own thread can be left behind. The async client of a Milvus store belongs to the event loop that used it first.
    """
    if isinstance(retriever, VectorStoreRetriever):
        store = retriever.vectorstore
        return not isinstance(store, Milvus) and type(store).asimilarity_search is not VectorStore.asimilarity_search
    return type(retriever)._aget_relevant_documents is not BaseRetriever._aget_relevant_documents


def of_methods(given: object, *, name: str, public: bool) -> RoutePort:
    """That of an object with `retrieve` or `aretrieve`, or of a function; each is passed only the keywords that it names.

    A coroutine function counts as the async form, under whatever name.

    Args:
        given: The object or function.
        name: The route's name, for messages.
        public: Whether it is never told whose question it is.

    Raises:
        ConfigError: It is neither, can't be called so, or can't be told whose question it is and is not public.
    """
    sync, async_ = getattr(given, "retrieve", None), getattr(given, "aretrieve", None)
    if not callable(sync) and not callable(async_):
        sync = given
    if not callable(sync) and not callable(async_):
        msg = (
            "`retriever` must be a langchain_milvus.Milvus store, a LangChain retriever (any other store has `as_retriever()`), an object with `retrieve` "
            f"or `aretrieve`, or a function, got {type(given).__name__}"
        )
        raise ConfigError(msg)
    if _is_async(sync):
        sync, async_ = None, async_ or sync
    if getattr(given, "async_only", False) is True:
        sync = None
    return RoutePort(sync and _sync_form(sync, name, public=public), async_ and _async_form(async_, name, public=public))


def _is_async(function: object) -> bool:
    """Whether it is a coroutine function, or an object that is called as one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - not whether, but how


def _sync_form(method: Callable[..., Any], name: str, *, public: bool) -> Callable[..., Found]:
    accepted = _accepted(method, public=public)

    def retrieve(question: str, **offered: Any) -> Found:
        with _guarded(name):
            scope = Scope(check_agent_id(offered["agent_id"]))
            return _read(method(unicode(question), **_taken(offered, accepted)), scope, offered["limit"])

    return retrieve


def _async_form(method: Callable[..., Awaitable[Any]], name: str, *, public: bool) -> Callable[..., Awaitable[Found]]:
    accepted = _accepted(method, public=public)

    async def aretrieve(question: str, **offered: Any) -> Found:
        with _guarded(name):
            scope = Scope(check_agent_id(offered["agent_id"]))
            return _read(await method(unicode(question), **_taken(offered, accepted)), scope, offered["limit"])

    return aretrieve


def _taken(offered: Mapping[str, Any], accepted: frozenset[str]) -> dict[str, Any]:
    return {keyword: value for keyword, value in offered.items() if keyword in accepted}


def _accepted(method: Callable[..., Any], *, public: bool) -> frozenset[str]:
    """The keywords to pass: those that the method names. What its `**keywords` would do with ours is unknown, so that they count for none.

    Raises:
        ConfigError: It can't be called with a question and these, names no `agent_id` though it must, or needs it though it must not get it.
    """
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        msg = "its signature can't be read; wrap it in a function `search(question, *, agent_id, limit, timeout_s)`"
        raise ConfigError(msg) from None
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = OFFERED & {p.name for p in signature.parameters.values() if p.kind in by_keyword}
    if not public and "agent_id" not in named:
        msg = (
            "it names no parameter `agent_id`, so that it could not tell one tenant's rows from another's: name it and find that tenant's rows only, or "
            "say `public=True` if all that it can find is everybody's"
        )
        raise ConfigError(msg)
    accepted = named - {"agent_id"} if public else named
    try:
        signature.bind("", **dict.fromkeys(accepted))
    except TypeError as error:
        needs_tenant = public and "agent_id" in named and signature.parameters["agent_id"].default is inspect.Parameter.empty
        msg = (
            _NEEDS_TENANT
            if needs_tenant
            else f"it must be callable as `search(question, *, agent_id, limit, timeout_s)`, or with fewer keywords: {error}"
        )
        raise ConfigError(msg) from None
    return accepted


_NEEDS_TENANT = (
    "it needs `agent_id`, which a public route is not told: leave `public` out, take the parameter away, or set it to the id of rows that are everybody's "
    "with `functools.partial(..., agent_id='...')`"
)


def _read(reply: Any, scope: Scope, limit: int) -> Found:
    """At most `limit` passages of what a search returned, and its troubles; a passage or document that names its tenant must be this one's."""
    if not isinstance(reply, list | tuple) or not all(isinstance(item, Passage | Document) for item in reply):
        if inspect.iscoroutine(reply):
            reply.close()
        got = "a list with other values" if isinstance(reply, list | tuple) else type(reply).__name__
        msg = f"a route must return a list of Passage or Document, got {got}"
        raise RetrievalError(msg, reason="invalid_reply")
    _check_named_owners(reply, scope)
    passages = (p if isinstance(p, Passage) else from_document(p, rank=rank, tenant_field=None) for rank, p in enumerate(reply[:limit], 1))
    return Found(passages, getattr(reply, "troubles", ()))


def _check_named_owners(found: Any, scope: Scope) -> None:
    """Passes if none of the passages or documents says that it is another tenant's."""
    check_owners((item.metadata[OWNER] for item in found if isinstance(item.metadata, Mapping) and OWNER in item.metadata), scope)


@contextmanager
def _guarded(name: str) -> Iterator[None]:
    """Keeps private text out of Milvus' logs, and turns foreign errors into ours.

    Not `from` theirs: they may quote passages or the question, and causes are printed with every traceback.
    """
    with redacted_logs():
        try:
            yield
        except (CRAGError, GraphBubbleUp):
            raise
        except TimeoutError:
            msg = f"the route {name!r} took too long"
            raise RetrievalError(msg, reason="timeout") from None
        except Exception as error:  # noqa: BLE001 - raised on as ours
            let_pass(error)
            msg = f"the route {name!r} failed with {type(error).__name__}"
            raise RetrievalError(msg, reason=type(error).__name__) from None
