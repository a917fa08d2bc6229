"""What is Tavily's own about its web search, over real HTTP; `test_web_http` has what it shares with others."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.ports import AsyncWebSearch, WebSearch, bind
from crag_middleware.types import Passage
from examples.web_server import start_web_server
from tests.support.web_server import Answer, WebServer, page, raw, results, status

KEY = "tvly-secret-key"
QUERY = "private words of a user"

Ask = Callable[..., Sequence[Passage]]
Search = Callable[..., Ask]


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest, server: WebServer) -> Search:
    """A search on the server: `search(max_results=…)(limit=…)`; the async form runs in an event loop of its own each time."""

    def build(**arguments: Any) -> Ask:
        web = TavilyWebSearch(**{"api_key": KEY, "api_base_url": server.url, **arguments})

        def ask(query: str = QUERY, **keywords: Any) -> Sequence[Passage]:
            keywords = {"limit": 3, "timeout_s": 5.0, **keywords}
            if request.param == "sync":
                return web.search(query, **keywords)
            return asyncio.run(web.asearch(query, **keywords))

        return ask

    return build


def test_results_become_web_passages(server: WebServer, search: Search) -> None:
    server.answer = results(page("Docs.Acme.example", "/a?utm_source=x", "Body.", title="Title", score=0.75), page("b.example", score=1))

    first, second = search()()

    assert first.id.startswith("web-")
    assert (first.text, first.title, first.source, first.score, first.rank) == ("Body.", "Title", "docs.acme.example", 0.75, 1)
    assert first.url == "https://Docs.Acme.example/a?utm_source=x"
    assert first.origin == second.origin == "web"
    assert first.metadata == {"domain": "docs.acme.example"}
    assert (second.score, second.rank) == (1.0, 2)


def test_a_page_has_one_id_however_its_address_is_spelt(server: WebServer, search: Search) -> None:
    server.answer = results(page(path="/a?utm_source=x#y"), page("SITE.example", "/a/"), page(path="/b"))

    ids = [p.id for p in search()()]

    assert ids[0] == ids[1] != ids[2]


def test_the_request_carries_key_and_query_and_only_parameters_that_tavily_knows(server: WebServer, search: Search) -> None:
    search(topic="news", time_range="week", country=None)()

    (request,) = server.requests
    assert request["path"] == "/search"
    assert request["headers"]["Authorization"] == f"Bearer {KEY}"
    assert request["body"] == {
        "query": QUERY,
        "max_results": 3,
        "search_depth": "basic",
        "topic": "news",
        "time_range": "week",
        "include_images": False,
        "include_raw_content": False,
    }


@pytest.mark.parametrize(("most", "limit", "got"), [(3, 5, 3), (5, 2, 2), (1, 1, 1)])
def test_c090_the_smaller_of_max_results_and_limit_counts(server: WebServer, search: Search, most: int, limit: int, got: int) -> None:
    server.answer = results(*(page(path=f"/{i}") for i in range(9)))

    passages = search(max_results=most)(limit=limit)

    assert len(passages) == server.requests[0]["body"]["max_results"] == got


def test_c090_an_empty_result_is_no_error_and_its_sentence_no_result(server: WebServer, search: Search) -> None:
    server.answer = results()

    assert search()() == ()


FAILURES: list[tuple[Answer, str]] = [
    (status(403), "unauthorized"),
    (status(432), "quota"),
    (status(433), "quota"),
    (raw(b"[]"), "invalid_reply"),
    (raw(b'{"results": null}'), "invalid_reply"),
    (raw(b'{"results": "none"}'), "invalid_reply"),
    (raw(b'{"detail": {"error": "odd"}}'), "invalid_reply"),
]


@pytest.mark.parametrize(("answer", "reason"), FAILURES)
def test_c090_c100_each_failure_is_told_by_its_reason_after_one_request(
    server: WebServer, search: Search, answer: Answer, reason: str
) -> None:
    server.answer = answer

    with pytest.raises(WebSearchError) as caught:
        search()()

    assert caught.value.reason == reason
    assert len(server.requests) == 1


def test_a_server_that_recovers_is_heard_again(server: WebServer, search: Search) -> None:
    ask = search()
    server.answer = status(432)
    with pytest.raises(WebSearchError):
        ask()
    server.answer = results(page())

    assert len(ask()) == 1


def test_threads_and_loops_share_an_instance_without_mixing_their_options(server: WebServer) -> None:
    server.answer = _echo
    web = TavilyWebSearch(20, api_key=KEY, api_base_url=server.url)
    seen: dict[int, str] = {}

    def one(i: int) -> None:
        keywords: dict[str, Any] = {"limit": i + 1, "timeout_s": 10.0, "options": {"country": f"country {i}"}}
        found = web.search(f"query {i}", **keywords) if i % 2 else asyncio.run(web.asearch(f"query {i}", **keywords))
        seen[i] = found[0].text

    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {i: f"query {i}, country {i}, {i + 1}" for i in range(16)}


def _echo(handler: Any) -> None:
    results(page(content=f"{handler.body['query']}, {handler.body['country']}, {handler.body['max_results']}"))(handler)


ODD: list[Any] = [
    {},
    None,
    "text",
    {"url": "https://a.example/1", "title": "Title only", "content": None},
    {"url": "https://a.example/2", "content": "short", "raw_content": None},
    {"url": "https://a.example/3", "title": None, "content": None},
    {"content": "no address", "score": None},
    {"url": 7, "title": ["x"], "content": "odd fields", "score": "high"},
    {"url": "javascript:alert(1)", "content": "odd address", "score": True},
    {"url": "http://[bad", "content": "broken address", "score": 1e999},
    {"url": "https://a.example/4", "title": "  ", "content": " \n "},
]


def test_c096_an_incomplete_result_falls_back_to_its_title_or_is_dropped(server: WebServer, search: Search) -> None:
    server.answer = results(*ODD)

    passages = search(max_results=20)(limit=20)

    assert [p.text for p in passages] == ["Title only", "short", "no address", "odd fields", "odd address", "broken address"]
    assert [p.url for p in passages] == ["https://a.example/1", "https://a.example/2", "", "", "", ""]
    assert [p.score for p in passages] == [None] * 6
    assert len({p.id for p in passages}) == 6


def test_whole_pages_are_taken_only_if_asked_for(server: WebServer, search: Search) -> None:
    server.answer = results(page(content="extract", raw_content="whole page"), page(path="/b", content="extract", raw_content=None))

    assert [p.text for p in search()()] == ["extract", "extract"]
    assert [p.text for p in search(include_raw_content=True)()] == ["whole page", "extract"]
    assert [r["body"]["include_raw_content"] for r in server.requests] == [False, True]


def test_options_replace_the_instances_own_for_one_search(server: WebServer, search: Search) -> None:
    ask = search(topic="news", exclude_domains=["a.example"])
    options = {"topic": "general", "time_range": "day", "country": "china", "exclude_domains": ["b.example"], "start_date": "2026-01-01"}

    ask(options=options)
    ask()

    one, other = (r["body"] for r in server.requests)
    assert options.items() <= one.items()
    assert (other["topic"], other["exclude_domains"]) == ("news", ["a.example"])
    assert not {"country", "time_range", "start_date"} & set(other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_results": 50}, "max_results"),
        ({"query": "x"}, "query"),
        ({"include_answer": True}, "include_answer"),
        ({"api_key": "x"}, "known are: country"),
        ({"topic": "sports"}, "`topic`"),
        ({"time_range": "decade"}, "`time_range`"),
        ({"include_domains": "acme.org"}, "must be a list of host names"),
        ({"include_domains": ["https://acme.org/"]}, "got 'https://acme.org/'"),
        ({"include_domains": ["acme.org/docs"]}, "host names such as"),
        ({"exclude_domains": [""]}, "`exclude_domains`"),
        ({"exclude_domains": [7]}, "got 7"),
        ({"start_date": "last week"}, "such as 2026-01-31, got 'last week'"),
        ({"end_date": None}, "got None"),
    ],
)
def test_c090_an_option_that_can_not_work_is_refused_and_nothing_sent(
    server: WebServer, search: Search, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        search()(options=options)

    assert not server.requests


def test_domains_that_contradict_the_instances_own_are_told_when_they_are_checked() -> None:
    web = TavilyWebSearch(api_key=KEY, include_domains=["a.example"])

    with pytest.raises(ConfigError, match="no host is in all of"):
        web.check_options({"include_domains": ["b.example"]})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_results": 0}, "from 1 to 20, got 0"),
        ({"max_results": 21}, "got 21"),
        ({"max_results": True}, "got True"),
        ({"max_results": "3"}, "got '3'"),
        ({"api_key": " "}, "TAVILY_API_KEY"),
        ({"api_key": "two words"}, "has a space"),
        ({"api_key": "tvly-\nx"}, "control character"),
        ({"api_base_url": "localhost:8000"}, "https://host"),
        ({"api_base_url": "https://user:pw@host"}, "without user"),
        ({"search_depth": "deep"}, "`search_depth`"),
        ({"include_domains": ["a b"]}, "got 'a b'"),
    ],
)
def test_a_wrong_argument_is_told_when_it_is_built(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        TavilyWebSearch(**{"api_key": KEY, **arguments})

    assert "user:pw" not in str(caught.value)


def test_without_a_key_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)

    with pytest.raises(ConfigError, match="TAVILY_API_KEY"):
        TavilyWebSearch()


def test_key_and_address_come_from_the_environment(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-from-env\n")
    monkeypatch.setenv("TAVILY_API_BASE_URL", f"{server.url}/")

    TavilyWebSearch().search(QUERY, limit=1, timeout_s=5)

    assert server.requests[0]["headers"]["Authorization"] == "Bearer tvly-from-env"
    assert server.requests[0]["path"] == "/search"


def test_an_instance_does_not_show_its_key() -> None:
    web = TavilyWebSearch(api_key=KEY)

    assert KEY not in repr(web) + str(vars(web))


def test_it_is_a_web_search_port_in_both_forms() -> None:
    web = TavilyWebSearch(api_key=KEY)
    bound = bind(web, "search")

    assert isinstance(web, WebSearch)
    assert isinstance(web, AsyncWebSearch)
    assert bound.sync is not None
    assert bound.async_ is not None


def test_within_an_agent_the_search_does_not_appear_among_its_tools(server: WebServer) -> None:
    server.answer = results(page())
    web = TavilyWebSearch(api_key=KEY, api_base_url=server.url)

    class Searching(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> None:
            web.search(QUERY, limit=3, timeout_s=5)

    agent = create_agent(FakeListChatModel(responses=["Answer."]), middleware=[Searching()])
    modes = ["tools", "messages", "updates"]

    streamed = list(agent.stream({"messages": [("user", "hello")]}, stream_mode=modes))

    assert len(server.requests) == 1
    assert not [part for mode, part in streamed if mode == "tools"]
    assert QUERY not in str(streamed)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("Is IP67 enough to drop a device in water?", "30 minutes"),
        ("IP67 防水等级是什么意思？", "30分钟"),
        ("How many watt hours may a lithium battery have on a plane?", "100 watt-hours"),
    ],
)
def test_the_demo_web_server_is_searched_like_tavily(query: str, words: str) -> None:
    with start_web_server() as url:
        found = TavilyWebSearch(api_key=KEY, api_base_url=url).search(query, limit=3, timeout_s=5)

    assert words in found[0].text
    assert found[0].source.endswith(".example")
    assert found[0].score is not None
    assert 0 < found[0].score <= 1


def test_the_demo_web_server_refuses_as_tavily_does() -> None:
    with start_web_server() as url:
        web = TavilyWebSearch(api_key=KEY, api_base_url=url)

        assert web.search("zzz qqq xxx", limit=3, timeout_s=5) == ()
        assert web.search("IP67", limit=3, timeout_s=5, options={"include_domains": ["nowhere.example"]}) == ()
