"""Web search by any LangChain search tool or retriever."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.web_pages import Page, check_names, hosts_of, passages, score_of, text_of
from crag_middleware.drive import hidden_config
from crag_middleware.errors import ConfigError, CRAGError, WebSearchError, let_pass
from crag_middleware.stages.question import unicode
from crag_middleware.stages.urls import host
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy

_LISTS = ("results", "organic_results", "organic", "items")
_URL, _TITLE = ("url", "link", "href"), ("title", "name")
_TEXT = ("content", "snippet", "body", "summary", "description", "text", "page_content")


class LangChainWebSearch:
    """A `WebSearch` port, sync and async, on a LangChain search tool or retriever; whatever model that calls is hidden from the user's streams.

    Results may be documents, dicts with the usual names of address, title and text, those as JSON, or plain text, which becomes one passage without
    address. The hosts are checked on what comes back; what the tool sends, and where, is its own affair, and so are its deadlines: the middleware
    leaves a late call behind.

    Attributes:
        name: What receipts call it.
    """

    def __init__(self, tool_or_retriever: BaseTool | BaseRetriever, *, name: str | None = None) -> None:
        """Checks that it can be asked with a query alone.

        Args:
            tool_or_retriever: A tool with an argument `query`, or whose only required argument is the query; or a retriever.
            name: By default the tool's own, or the retriever's class.

        Raises:
            ConfigError: It is something else.
        """
        self._query, self._options = "", frozenset[str]()
        match tool_or_retriever:
            case BaseTool() as tool:
                self._query, self._options = _arguments(tool)
                self._asked: BaseTool | BaseRetriever = _raising(tool)
                self.name = name or tool.name
            case BaseRetriever() as retriever:
                self._asked = retriever
                self.name = name or type(retriever).__name__
            case other:
                msg = f"`tool_or_retriever` must be a LangChain tool (BaseTool) or retriever (BaseRetriever), got {type(other).__name__}"
                raise ConfigError(msg)

    def __repr__(self) -> str:
        return f"LangChainWebSearch({self.name})"

    def search(
        self, query: str, *, limit: int, options: Mapping[str, Any] | None = None, policy: WebPolicy | None = None
    ) -> tuple[Passage, ...]:
        """Web passages for a query, best first.

        Args:
            query: Goes to the tool or retriever as it is.
            limit: At most so many passages.
            options: Further arguments of the tool, and `include_domains`.
            policy: Its domains and size limits hold; a tool can't be told of its freshness.

        Raises:
            WebSearchError: The tool or retriever failed, said that it did, or returned what can't be read; or no host is allowed.
            ConfigError: An option is unknown or can't work.
        """
        options = options or {}
        hosts = hosts_of({}, options, policy)
        self.check_options(options)
        with self._guarded():
            return passages(self._read(self._asked.invoke(self._input(query, options), _config())), limit, hosts, policy)

    async def asearch(
        self, query: str, *, limit: int, options: Mapping[str, Any] | None = None, policy: WebPolicy | None = None
    ) -> tuple[Passage, ...]:
        """The async form of `search`."""
        options = options or {}
        hosts = hosts_of({}, options, policy)
        self.check_options(options)
        with self._guarded():
            return passages(self._read(await self._asked.ainvoke(self._input(query, options), _config())), limit, hosts, policy)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Passes if a search can be made with these options; asks nothing.

        Raises:
            ConfigError: An option is unknown or can't work.
        """
        check_names(options, {*self._options, "include_domains"})
        hosts_of({}, options, None)

    def _input(self, query: str, options: Mapping[str, Any]) -> Any:
        """What the tool or retriever takes; a tool with an artifact gives it for a tool call only."""
        if isinstance(self._asked, BaseRetriever):
            return unicode(query)
        arguments = {self._query: unicode(query)} | {name: value for name, value in options.items() if name in self._options}
        if self._asked.response_format == "content":
            return arguments
        return {"type": "tool_call", "id": "crag-search", "name": self._asked.name, "args": arguments}

    def _read(self, reply: object) -> list[Page]:
        pages = _pages(reply)
        if pages is None:
            msg = f"{self.name} returned no results that can be read, got {type(reply).__name__}"
            raise WebSearchError(msg, reason="invalid_reply")
        return pages

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns foreign errors into ours. Not `from` theirs: they may quote the query, and causes are printed with every traceback."""
        try:
            yield
        except (CRAGError, GraphBubbleUp):
            raise
        except TimeoutError:
            msg = f"{self.name} took too long"
            raise WebSearchError(msg, reason="timeout") from None
        except Exception as error:  # noqa: BLE001 - raised on as ours
            let_pass(error)
            hint = "; it may have an async form only: use `ainvoke` or `astream`" if isinstance(error, NotImplementedError) else ""
            msg = f"{self.name} failed with {type(error).__name__}{hint}"
            raise WebSearchError(msg) from None


def _config() -> RunnableConfig:
    return {**hidden_config(), "run_name": "crag.search"}


def _arguments(tool: BaseTool) -> tuple[str, frozenset[str]]:
    """The name of the tool's argument that takes the query, and those of its others, as a model would be told them.

    Raises:
        ConfigError: It can't be told, or others are required too.
    """
    told = convert_to_openai_tool(tool)["function"].get("parameters", {})
    names, required = list(told.get("properties", {})), list(told.get("required", []))
    named = ["query"] if "query" in names else required or names
    if len(named) == 1 and set(required) <= set(named):
        return named[0], frozenset(names) - {named[0]}
    msg = (
        f"a search tool must have an argument `query`, or a single required one, and require nothing else; {tool.name} has "
        f"{', '.join(names) or 'none'} and requires {', '.join(required) or 'none'}; wrap it in a tool that takes the query alone"
    )
    raise ConfigError(msg)


def _raising(tool: BaseTool) -> BaseTool:
    """The tool, or a copy of it that raises its errors: as text for a model they would pass for results."""
    if not tool.handle_tool_error and not tool.handle_validation_error:
        return tool
    return tool.model_copy(update={"handle_tool_error": False, "handle_validation_error": False})


def _pages(reply: object) -> list[Page] | None:
    """The results in whatever a tool or retriever returned; None if it can't be read."""
    match reply:
        case None:
            return None
        case ToolMessage(status="error"):
            raise _told()
        case ToolMessage(content=content, artifact=artifact):
            return _first(artifact, content)
        case (content, artifact) if isinstance(reply, tuple):
            return _first(artifact, content)
        case str():
            told = _json(reply)
            pages = _pages(told) if isinstance(told, list | dict) else None
            return pages if pages is not None else [Page("", "", reply)]
        case Document(page_content=text, metadata=metadata):
            source = text_of(metadata, "source")
            url = text_of(metadata, *_URL) or (source if host(source) else "")
            return [Page(url, text_of(metadata, *_TITLE), text, score_of(metadata.get("score")))]
        case Mapping():
            listed = next((reply[name] for name in _LISTS if isinstance(reply.get(name), list)), None)
            if listed is not None:
                return _pages(listed)
            if reply.get("error"):
                raise _told()
            page = Page(text_of(reply, *_URL), text_of(reply, *_TITLE), text_of(reply, *_TEXT), score_of(reply.get("score")))
            return [page] if page.text or page.title else None
        case list() if reply and all(isinstance(block, Mapping) and block.get("type") == "text" for block in reply):
            return _pages("\n\n".join(text_of(block, "text") for block in reply))
        case list():
            return _each(reply)
        case _:
            return None


def _told() -> WebSearchError:
    """The error for a tool that returned one; its text may quote the query."""
    return WebSearchError("the search tool told of an error instead of results")


def _first(*replies: object) -> list[Page] | None:
    """The first of them that can be read."""
    return next((pages for reply in replies if (pages := _pages(reply)) is not None), None)


def _each(items: Sequence[object]) -> list[Page] | None:
    """The items that can be read; None if there are some and none can be."""
    read = [pages for item in items if isinstance(item, Document | Mapping | str) and (pages := _pages(item)) is not None]
    return [page for pages in read for page in pages] if read or not items else None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
