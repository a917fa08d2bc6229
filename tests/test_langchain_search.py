"""Any LangChain search tool or retriever as a web search."""

import asyncio
import json
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException, tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.errors import GraphInterrupt
from pydantic import BaseModel

from crag_middleware import LangChainWebSearch
from crag_middleware.adapters.langchain_search import _pages
from crag_middleware.adapters.web_pages import MAX_RESULT_CHARS
from crag_middleware.errors import ConfigError, CRAGError, WebSearchError
from crag_middleware.ports import AsyncWebSearch, WebSearch
from crag_middleware.testing import WebSearchSuite
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy

QUERY = "private words of a user"
RESULTS = [
    {"title": "Ports", "url": "https://milvus.example/ports", "content": "Milvus listens on 19530.", "score": 0.9},
    {"title": "端口", "link": "https://docs.example/port", "snippet": "默认端口是 19530。"},
    {"name": "Blog", "href": "https://blog.example/milvus", "body": "Use 19530."},
]

Found = Callable[..., Sequence[Passage]]


@pytest.fixture(params=["sync", "async"])
def find(request: pytest.FixtureRequest) -> Found:
    """What is found by a tool or retriever, or by a tool that returns the given reply."""

    def ask(given: Any, query: str = QUERY, **keywords: Any) -> Sequence[Passage]:
        web = LangChainWebSearch(given if isinstance(given, BaseTool | BaseRetriever) else returning(given))
        keywords = {"limit": 5, **keywords}
        return web.search(query, **keywords) if request.param == "sync" else asyncio.run(web.asearch(query, **keywords))

    return ask


def returning(reply: Any, **fields: Any) -> BaseTool:
    """A search tool that returns the reply, or raises it."""

    def web(query: str) -> Any:
        if isinstance(reply, BaseException):
            raise reply
        return reply

    return StructuredTool.from_function(web, description="Searches the web.", **fields)


def store(*pages: Document) -> BaseRetriever:
    vectors = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
    vectors.add_documents([*pages])
    return vectors.as_retriever(search_kwargs={"k": 4})


def failing(error: Exception) -> BaseRetriever:
    class Failing(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
            raise error

    return Failing()


PAGES = (
    Document("Milvus listens on 19530.", metadata={"title": "Ports", "source": "https://milvus.example/ports", "score": 0.5}),
    Document("默认端口是 19530。", metadata={"title": "端口", "url": "https://docs.example/port"}),
)


class TestOnATool(WebSearchSuite):
    @pytest.fixture
    def web_search(self) -> Any:
        return LangChainWebSearch(returning(RESULTS))


class TestOnAnAsyncTool(WebSearchSuite):
    @pytest.fixture
    def web_search(self) -> Any:
        class Web(BaseTool):
            name: str = "web"
            description: str = "Searches the web."

            def _run(self, q: str) -> str:
                return json.dumps(RESULTS)

            async def _arun(self, q: str) -> str:
                await asyncio.sleep(0)
                return json.dumps(RESULTS)

        return LangChainWebSearch(Web())


class TestOnARetriever(WebSearchSuite):
    @pytest.fixture
    def web_search(self) -> Any:
        return LangChainWebSearch(store(*PAGES))


# --- What a tool may return


def documents() -> list[Document]:
    return [Document(r.get("content") or r.get("snippet") or r["body"], metadata=r) for r in RESULTS]


@pytest.mark.parametrize(
    "reply",
    [
        RESULTS,
        json.dumps(RESULTS),
        {"results": RESULTS, "error": None, "query": "q"},
        json.dumps({"organic": RESULTS}),
        [{"type": "text", "text": json.dumps(RESULTS)}],
        [json.dumps(r) for r in RESULTS],
        documents(),
        ("three results", RESULTS),
        ToolMessage(json.dumps(RESULTS), tool_call_id="x"),
    ],
)
def test_results_of_every_shape_become_web_passages(find: Found, reply: Any) -> None:
    one, two, three = find(reply)

    assert (one.text, one.title, one.url, one.score, one.rank) == ("Milvus listens on 19530.", "Ports", RESULTS[0]["url"], 0.9, 1)
    assert (two.text, two.title, two.url, two.source) == ("默认端口是 19530。", "端口", "https://docs.example/port", "docs.example")
    assert (three.text, three.title, three.url, three.rank) == ("Use 19530.", "Blog", "https://blog.example/milvus", 3)
    assert {p.origin for p in (one, two, three)} == {"web"}


@pytest.mark.parametrize("artifact", [RESULTS, documents(), {"results": RESULTS}])
def test_a_tools_artifact_counts_before_its_text(find: Found, artifact: Any) -> None:
    found = find(returning(("A summary for the model.", artifact), response_format="content_and_artifact"))

    assert [p.url for p in found] == ["https://milvus.example/ports", "https://docs.example/port", "https://blog.example/milvus"]


@pytest.mark.parametrize("artifact", [None, {"structured": 1}])
def test_without_a_usable_artifact_the_text_counts(find: Found, artifact: Any) -> None:
    (found,) = find(returning(("A text for the model.", artifact), response_format="content_and_artifact"))

    assert found.text == "A text for the model."


@pytest.mark.parametrize("reply", ["Milvus listens on 19530.", "[1] Milvus listens", "12", '"quoted"', "{not json", '{"port": 19530}'])
def test_plain_text_is_one_passage_without_address(find: Found, reply: str) -> None:
    (found,) = find(reply)

    assert (found.text, found.url, found.title, found.source) == (reply, "", "", "")
    assert found.id == find(reply)[0].id != find("other")[0].id


@pytest.mark.parametrize(
    "reply", [[], "", "  ", "[]", {"results": []}, ("nothing", []), [{"type": "text", "text": ""}], ToolMessage([], tool_call_id="x")]
)
def test_nothing_found_is_no_error(find: Found, reply: Any) -> None:
    assert find(reply) == ()


def test_documents_of_a_retriever_become_web_passages(find: Found) -> None:
    found = {p.title: p for p in find(store(*PAGES))}

    assert found["Ports"].url == "https://milvus.example/ports"
    assert found["Ports"].score == 0.5
    assert found["端口"].source == "docs.example"
    assert [p.rank for p in found.values()] == [1, 2]


def test_a_page_has_one_id_whoever_found_it(find: Found) -> None:
    ids = {
        find(reply)[0].id for reply in ([RESULTS[0]], [{**RESULTS[0], "url": "http://MILVUS.example/ports/?utm_source=x"}], documents()[:1])
    }

    assert len(ids) == 1


def test_c096_incomplete_results_fall_back_or_are_dropped(find: Found) -> None:
    odd = [
        {},
        None,
        7,
        {"url": "https://a.example"},
        {"title": "Title only", "content": None},
        {"url": 7, "title": [], "body": "odd"},
        Document(""),
    ]

    assert [p.text for p in find(odd)] == ["Title only", "odd"]


@pytest.mark.parametrize("reply", [None, 7, {"odd": 1}, [7, None], b"bytes", object(), {"results": None}])
def test_what_can_not_be_read_is_an_error(find: Found, reply: Any) -> None:
    with pytest.raises(WebSearchError, match="no results that can be read") as caught:
        find(reply)

    assert caught.value.reason == "invalid_reply"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["results", "url", "title", "text", "type", "score"]) | st.text(), inner)
    ),
    max_leaves=20,
)


@given(ANYTHING)
def test_any_reply_is_read_or_refused_and_json_reads_the_same(reply: Any) -> None:
    pages = _pages(reply)

    assert pages is None or all(isinstance(page.text, str) for page in pages)
    if isinstance(reply, list | dict) and pages is not None:
        assert str(_pages(json.dumps(reply))) == str(pages)


# --- Failures


SECRET = "what the user asked"


@pytest.mark.parametrize("reply", [{"error": ValueError(SECRET)}, {"error": SECRET}, json.dumps({"error": SECRET})])
def test_c090_a_failure_told_as_a_result_is_an_error(find: Found, reply: Any) -> None:
    with pytest.raises(WebSearchError) as caught:
        find(reply)

    assert caught.value.reason == "failed"
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("handled", [False, True, "All is well.", lambda error: f"All is well: {error}"])
def test_c090_a_failure_that_the_tool_would_tell_a_model_is_an_error(find: Found, handled: Any) -> None:
    failing_tool = returning(ToolException(SECRET), handle_tool_error=handled)

    with pytest.raises(WebSearchError, match="web failed with ToolException") as caught:
        find(failing_tool)

    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert failing_tool.handle_tool_error is handled


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError(SECRET), "failed"), (TimeoutError(SECRET), "timeout"), (KeyError(SECRET), "failed")]
)
@pytest.mark.parametrize("build", [returning, failing])
def test_foreign_errors_become_ours_without_their_text(
    find: Found, build: Callable[[Exception], Any], error: Exception, reason: str
) -> None:
    with pytest.raises(WebSearchError) as caught:
        find(build(error))

    assert caught.value.reason == reason
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("build", [returning, failing])
def test_interrupts_and_errors_of_ours_pass(find: Found, build: Callable[[Exception], Any]) -> None:
    with pytest.raises(GraphInterrupt):
        find(build(GraphInterrupt()))
    with pytest.raises(WebSearchError, match="ours") as caught:
        find(build(WebSearchError("ours", reason="quota")))

    assert caught.value.reason == "quota"


async def test_cancelling_passes() -> None:
    started = asyncio.Event()

    @tool
    async def web(query: str) -> str:
        """Searches the web."""
        started.set()
        await asyncio.sleep(60)
        return ""

    searching = asyncio.create_task(LangChainWebSearch(web).asearch(QUERY, limit=1))
    await started.wait()
    searching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await searching


def test_a_tool_with_an_async_form_only_says_so_in_the_sync_form() -> None:
    @tool
    async def web(query: str) -> str:
        """Searches the web."""
        return "found"

    search = LangChainWebSearch(web)

    assert asyncio.run(search.asearch(QUERY, limit=1))[0].text == "found"
    with pytest.raises(WebSearchError, match="async form only: use `ainvoke`"):
        search.search(QUERY, limit=1)


# --- What a tool takes


class Searching(BaseModel):
    q: str
    lang: str = "en"


def arguments_of(schema: Any = None) -> Any:
    """A tool that returns the arguments it was called with."""
    return StructuredTool(
        name="web", description="Searches.", args_schema=schema, func=lambda **given: json.dumps([{"text": json.dumps(given)}])
    )


JSON_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}, "topic": {"type": "string"}}, "required": ["query"]}


@pytest.mark.parametrize(
    ("given", "options", "called"),
    [
        (arguments_of(JSON_SCHEMA), {}, {"query": QUERY}),
        (arguments_of(JSON_SCHEMA), {"topic": "news"}, {"query": QUERY, "topic": "news"}),
        (arguments_of(Searching), {}, {"q": QUERY, "lang": "en"}),
        (arguments_of(Searching), {"lang": "zh"}, {"q": QUERY, "lang": "zh"}),
    ],
)
def test_the_query_goes_where_the_tool_takes_it(find: Found, given: Any, options: dict[str, Any], called: dict[str, Any]) -> None:
    assert json.loads(find(given, options=options)[0].text) == called


def test_a_tool_of_one_string_is_asked(find: Found) -> None:
    assert find(Tool(name="web", description="Searches.", func=lambda query: f"about {query}"))[0].text == f"about {QUERY}"


def test_lone_surrogates_do_not_travel(find: Found) -> None:
    assert find(Tool(name="web", description="Searches.", func=lambda query: query), "a \ud800 b")[0].text == "a ? b"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (arguments_of({"type": "object", "properties": {}}), "web has none and requires none"),
        (arguments_of({"type": "object"}), "web has none"),
        (arguments_of({"type": "object", "properties": {"a": {}, "b": {}}}), "has a, b and requires none"),
        (arguments_of({"type": "object", "properties": {"query": {}, "b": {}}, "required": ["query", "b"]}), "requires query, b; wrap it"),
        (FakeListChatModel(responses=["x"]), "got FakeListChatModel"),
        (len, "got builtin_function_or_method"),
    ],
)
def test_what_can_not_be_asked_with_a_query_alone_is_told_when_it_is_built(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LangChainWebSearch(given)


@pytest.mark.parametrize("options", [{"max_results": 3}, {"query": "other"}, {"exclude_domains": ["a.example"]}])
def test_an_unknown_option_is_told(find: Found, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="unknown web search option"):
        find(RESULTS, options=options)
    with pytest.raises(ConfigError, match="known are: include_domains"):
        LangChainWebSearch(store()).check_options(options)


def test_it_has_a_name_for_receipts() -> None:
    assert [LangChainWebSearch(given).name for given in (returning(""), store())] == ["web", "VectorStoreRetriever"]
    assert LangChainWebSearch(store(), name="intranet").name == "intranet"
    assert repr(LangChainWebSearch(returning(""))) == "LangChainWebSearch(web)"
    assert isinstance(LangChainWebSearch(store()), WebSearch)
    assert isinstance(LangChainWebSearch(store()), AsyncWebSearch)


# --- Policy


def test_c094_only_allowed_hosts_stay(find: Found) -> None:
    hostile = [{"url": url, "text": url} for url in ("https://www.acme.org/x", "https://acme.org.evil.io", "https://acme.org@evil.io/")]
    policy = WebPolicy(allow_domains=("acme.org",))

    assert [p.text for p in find([*hostile, "no address"], policy=policy)] == ["https://www.acme.org/x"]
    assert find("no address", policy=policy) == ()
    assert [p.source for p in find(RESULTS, options={"include_domains": ["docs.example"]})] == ["docs.example"]
    assert len(find(RESULTS, policy=WebPolicy(deny_domains=("docs.example",)))) == 2


def test_a_site_that_is_not_allowed_is_not_searched(find: Found) -> None:
    called: list[str] = []

    with pytest.raises(WebSearchError) as caught:
        find(
            Tool(name="web", description="Searches.", func=called.append),
            options={"include_domains": ["evil.io"]},
            policy=WebPolicy(allow_domains=("acme.org",)),
        )

    assert (caught.value.reason, caught.value.sent) == ("no_allowed_domain", False)
    assert not called


def test_c097_long_pages_are_cut_at_once(find: Found) -> None:
    long = "This page says the same thing again. " * 11_000
    pages = [{"url": f"https://a.example/{i}", "text": long} for i in range(9)]

    assert [len(p.text) <= MAX_RESULT_CHARS for p in find(pages, limit=3)] == [True] * 3
    assert sum(len(p.text) for p in find(pages, limit=9, policy=WebPolicy(max_total_chars=1800))) <= 1800
    assert len(find(long)[0].text) <= MAX_RESULT_CHARS


# --- In an agent


@pytest.mark.parametrize("given", [returning(RESULTS), store(*PAGES)], ids=["tool", "retriever"])
def test_within_an_agent_neither_the_search_nor_its_models_reach_the_streams(given: Any) -> None:
    inner = FakeListChatModel(responses=["inner words"])

    @tool
    def web(query: str) -> Any:
        """Searches the web."""
        return [{"text": inner.invoke(query).text}]

    searches = [LangChainWebSearch(given), LangChainWebSearch(web)]
    found: list[Passage] = []

    class Search(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> None:
            found.extend(passage for search in searches for passage in search.search(QUERY, limit=3))

    agent = create_agent(FakeListChatModel(responses=["Answer."]), middleware=[Search()])

    streamed = list(agent.stream({"messages": [("user", "hello")]}, stream_mode=["tools", "messages", "updates"]))

    assert found[-1].text == "inner words"
    assert not [part for mode, part in streamed if mode == "tools"]
    assert not {QUERY, "inner words"} & {text for text in (QUERY, "inner words") if text in str(streamed)}


def test_threads_share_an_instance() -> None:
    web = LangChainWebSearch(Tool(name="web", description="Searches.", func=lambda query: f"about {query}"))
    seen: dict[int, str] = {}

    def one(i: int) -> None:
        found = web.search(f"q{i}", limit=1) if i % 2 else asyncio.run(web.asearch(f"q{i}", limit=1))
        seen[i] = found[0].text

    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {i: f"about q{i}" for i in range(12)}


def test_every_error_is_of_this_package(find: Found) -> None:
    with pytest.raises(CRAGError):
        find(RuntimeError(SECRET))
