"""Web search over real HTTP against a server that behaves in every way."""

import asyncio
import gzip
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from crag_middleware.adapters.tavily import MAX_REPLY_BYTES, MAX_RESULT_CHARS, MAX_TOTAL_CHARS, TavilyWebSearch
from crag_middleware.errors import ConfigError, CRAGError, WebSearchError
from crag_middleware.ports import AsyncWebSearch, WebSearch, bind
from crag_middleware.types import Passage
from examples.web_server import start_web_server
from tests.support.tavily_server import Answer, TavilyServer, cut_off, dripping, page, raw, redirect, results, silent, status

KEY = "tvly-secret-key"
QUERY = "private words of a user"

Ask = Callable[..., Sequence[Passage]]
Search = Callable[..., Ask]


@pytest.fixture
def server() -> Iterator[TavilyServer]:
    with TavilyServer() as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest, server: TavilyServer) -> Search:
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


def test_results_become_web_passages(server: TavilyServer, search: Search) -> None:
    server.answer = results(page("Docs.Acme.example", "/a?utm_source=x", "Body.", title="Title", score=0.75), page("b.example", score=1))

    first, second = search()()

    assert first.id.startswith("web-")
    assert (first.text, first.title, first.source, first.score, first.rank) == ("Body.", "Title", "docs.acme.example", 0.75, 1)
    assert first.url == "https://Docs.Acme.example/a?utm_source=x"
    assert first.origin == second.origin == "web"
    assert first.metadata == {"domain": "docs.acme.example"}
    assert (second.score, second.rank) == (1.0, 2)


def test_a_page_has_one_id_however_its_address_is_spelt(server: TavilyServer, search: Search) -> None:
    server.answer = results(page(path="/a?utm_source=x#y"), page("SITE.example", "/a/"), page(path="/b"))

    ids = [p.id for p in search()()]

    assert ids[0] == ids[1] != ids[2]


def test_the_request_carries_key_and_query_and_only_parameters_that_tavily_knows(server: TavilyServer, search: Search) -> None:
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
def test_c090_the_smaller_of_max_results_and_limit_counts(server: TavilyServer, search: Search, most: int, limit: int, got: int) -> None:
    server.answer = results(*(page(path=f"/{i}") for i in range(9)))

    passages = search(max_results=most)(limit=limit)

    assert len(passages) == server.requests[0]["body"]["max_results"] == got


def test_c090_an_empty_result_is_no_error_and_its_sentence_no_result(server: TavilyServer, search: Search) -> None:
    server.answer = results()

    assert search()() == ()


def test_c092_a_query_of_any_length_is_sent_in_400_characters(server: TavilyServer, search: Search) -> None:
    search()("how to reset it " * 75)

    sent = server.requests[0]["body"]["query"]
    assert 350 <= len(sent) <= 400
    assert not set(sent.split()) - {"how", "to", "reset", "it"}


FAILURES: list[tuple[Answer, str]] = [
    (status(401), "unauthorized"),
    (status(403), "unauthorized"),
    (status(402), "quota"),
    (status(432), "quota"),
    (status(433), "quota"),
    (status(429), "rate_limited"),
    (status(500), "unavailable"),
    (status(503), "unavailable"),
    (status(400), "failed"),
    (raw(b"<html>Bad gateway</html>", kind="text/html", status=502), "unavailable"),
    (raw(b"<html>Log in</html>", kind="text/html"), "invalid_reply"),
    (raw(b'{"results": [{"title": "half'), "invalid_reply"),
    (raw(b"\xff\xfe\x00garbage"), "invalid_reply"),
    (raw(b""), "invalid_reply"),
    (raw(b"[" * 200_000), "invalid_reply"),
    (raw(b"null"), "invalid_reply"),
    (raw(b"[]"), "invalid_reply"),
    (raw(b'{"results": null}'), "invalid_reply"),
    (raw(b'{"results": "none"}'), "invalid_reply"),
    (raw(b'{"detail": {"error": "odd"}}'), "invalid_reply"),
    (cut_off(in_body=True), "unavailable"),
    (cut_off(in_body=False), "unavailable"),
    (redirect("http://127.0.0.1:9/elsewhere"), "failed"),
]


@pytest.mark.parametrize(("answer", "reason"), FAILURES)
def test_c090_c100_each_failure_is_told_by_its_reason_after_one_request(
    server: TavilyServer, search: Search, answer: Answer, reason: str
) -> None:
    server.answer = answer

    with pytest.raises(WebSearchError) as caught:
        search()()

    assert caught.value.reason == reason
    assert len(server.requests) == 1


def test_c090_a_refused_connection_is_told_by_its_reason(search: Search) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(WebSearchError) as caught:
        search(api_base_url=f"http://127.0.0.1:{port}")()

    assert caught.value.reason == "unavailable"


def test_a_server_that_recovers_is_heard_again(server: TavilyServer, search: Search) -> None:
    ask = search()
    server.answer = status(432)
    with pytest.raises(WebSearchError):
        ask()
    server.answer = results(page())

    assert len(ask()) == 1


@pytest.mark.parametrize("answer", [silent(), dripping()])
def test_c099_a_search_ends_within_its_time(server: TavilyServer, search: Search, answer: Answer) -> None:
    server.answer = answer
    began = time.monotonic()

    with pytest.raises(WebSearchError) as caught:
        search()(timeout_s=0.3)

    assert caught.value.reason == "timeout"
    assert time.monotonic() - began < 1.5


async def test_c099_a_slow_search_does_not_block_the_event_loop(server: TavilyServer) -> None:
    server.answer = silent()
    searching = asyncio.create_task(TavilyWebSearch(api_key=KEY, api_base_url=server.url).asearch(QUERY, limit=3, timeout_s=0.5))

    ticks = 0
    while not searching.done():
        await asyncio.sleep(0.01)
        ticks += 1

    assert ticks >= 10
    with pytest.raises(WebSearchError):
        await searching


async def test_c099_cancelling_a_search_closes_its_connection(server: TavilyServer) -> None:
    server.answer = dripping()
    searching = asyncio.create_task(TavilyWebSearch(api_key=KEY, api_base_url=server.url).asearch(QUERY, limit=3, timeout_s=30))
    await asyncio.to_thread(server.asked.wait, 5)

    searching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await searching
    assert await asyncio.to_thread(server.dropped.wait, 5)


def test_one_instance_serves_two_event_loops_in_a_row_and_leaves_nothing_open(server: TavilyServer) -> None:
    server.answer = results(page())
    web = TavilyWebSearch(api_key=KEY, api_base_url=server.url)

    async def twice() -> list[int]:
        return [len(found) for found in await asyncio.gather(*(web.asearch(QUERY, limit=3, timeout_s=5) for _ in range(2)))]

    assert asyncio.run(twice()) == asyncio.run(twice()) == [1, 1]


def test_threads_and_loops_share_an_instance_without_mixing_their_options(server: TavilyServer) -> None:
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


def test_c096_an_incomplete_result_falls_back_to_its_title_or_is_dropped(server: TavilyServer, search: Search) -> None:
    server.answer = results(*ODD)

    passages = search(max_results=20)(limit=20)

    assert [p.text for p in passages] == ["Title only", "short", "no address", "odd fields", "odd address", "broken address"]
    assert [p.url for p in passages] == ["https://a.example/1", "https://a.example/2", "", "", "", ""]
    assert [p.score for p in passages] == [None] * 6
    assert len({p.id for p in passages}) == 6


HOSTILE = [
    "https://www.acme.org/x",
    "https://acme.org.evil.io",
    "https://notacme.org",
    "HTTPS://Data.ACME.ORG:443/y",
    "https://acme.org@evil.io/",
    "https://evil.io\\@acme.org/",
    "https://evil.io#.acme.org",
    "https://acme.org",
]


@pytest.mark.parametrize("domain", ["acme.org", "ACME.org", "*.acme.org", ".acme.org."])
def test_c094_only_hosts_of_included_domains_stay(server: TavilyServer, search: Search, domain: str) -> None:
    server.answer = results(*({"url": url, "content": url} for url in HOSTILE), {"content": "no address"})

    passages = search(max_results=20, include_domains=[domain])(limit=20)

    assert [p.text for p in passages] == [HOSTILE[0], HOSTILE[3], HOSTILE[7]]
    assert server.requests[0]["body"]["include_domains"] == ["acme.org"]


def test_c094_no_host_of_excluded_domains_stays(server: TavilyServer, search: Search) -> None:
    server.answer = results(*({"url": url, "content": url} for url in HOSTILE))

    passages = search(max_results=20)(limit=20, options={"exclude_domains": ["evil.io", "notacme.org"]})

    assert [p.text for p in passages] == [HOSTILE[0], HOSTILE[3], HOSTILE[5], HOSTILE[7]]
    assert passages[2].url == ""


def test_c094_an_international_domain_matches_in_both_spellings(server: TavilyServer, search: Search) -> None:
    server.answer = results(page("münchen.example"), page("XN--mnchen-3ya.example", "/b"), page("munchen.example"))

    assert [p.url for p in search(include_domains=["München.example"])()] == [
        "https://münchen.example/page",
        "https://XN--mnchen-3ya.example/b",
    ]


def test_c097_long_pages_are_cut_at_once(server: TavilyServer, search: Search) -> None:
    sentence = "This page says the same thing again. "
    long = sentence * (400_000 // len(sentence))
    server.answer = results(*(page(path=f"/{i}", content=long, raw_content=long) for i in range(20)))

    few, many = search()(), search(max_results=20)(limit=20)

    assert all(p.text.endswith("again.") for p in (*few, *many))
    assert MAX_RESULT_CHARS - len(sentence) <= max(len(p.text) for p in few) <= MAX_RESULT_CHARS
    assert MAX_TOTAL_CHARS - 1000 <= sum(len(p.text) for p in many) <= MAX_TOTAL_CHARS


def test_c097_a_reply_without_end_is_given_up(server: TavilyServer, search: Search) -> None:
    server.answer = raw(b" " * (MAX_REPLY_BYTES + 1))

    with pytest.raises(WebSearchError, match="larger than") as caught:
        search()()

    assert caught.value.reason == "invalid_reply"


def test_whole_pages_are_taken_only_if_asked_for(server: TavilyServer, search: Search) -> None:
    server.answer = results(page(content="extract", raw_content="whole page"), page(path="/b", content="extract", raw_content=None))

    assert [p.text for p in search()()] == ["extract", "extract"]
    assert [p.text for p in search(include_raw_content=True)()] == ["whole page", "extract"]
    assert [r["body"]["include_raw_content"] for r in server.requests] == [False, True]


def test_a_compressed_reply_is_read(server: TavilyServer, search: Search) -> None:
    body = gzip.compress(json.dumps({"results": [page(content="word " * 50_000)]}).encode())

    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for start in range(0, len(body), 100):
            part = body[start : start + 100]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    server.answer = answer

    assert search()()[0].text.startswith("word word")


def test_options_replace_the_instances_own_for_one_search(server: TavilyServer, search: Search) -> None:
    ask = search(topic="news", include_domains=["a.example"])
    options = {"topic": "general", "time_range": "day", "country": "china", "include_domains": ["b.example"], "start_date": "2026-01-01"}

    ask(options=options)
    ask()

    one, other = (r["body"] for r in server.requests)
    assert options.items() <= one.items()
    assert (other["topic"], other["include_domains"]) == ("news", ["a.example"])
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
    server: TavilyServer, search: Search, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        search()(options=options)

    assert not server.requests


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


def test_key_and_address_come_from_the_environment(server: TavilyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-from-env\n")
    monkeypatch.setenv("TAVILY_API_BASE_URL", f"{server.url}/")

    TavilyWebSearch().search(QUERY, limit=1, timeout_s=5)

    assert server.requests[0]["headers"]["Authorization"] == "Bearer tvly-from-env"
    assert server.requests[0]["path"] == "/search"


def test_a_netrc_does_not_replace_the_key(server: TavilyServer, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login someone password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    search()()

    assert server.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"


def test_a_proxy_of_the_environment_is_used(server: TavilyServer, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")

    search(api_base_url="http://tavily.example")()

    assert server.requests[0]["path"] == "http://tavily.example/search"


@pytest.mark.parametrize("answer", [answer for answer, _ in FAILURES] + [results(page())])
def test_c100_neither_key_nor_query_stands_in_errors_or_logs(
    server: TavilyServer, search: Search, answer: Answer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = answer
    caplog.set_level(logging.DEBUG)
    told: list[BaseException | None] = []

    try:
        search()()
    except CRAGError as error:
        told = [error, error.__cause__, error.__context__]

    written = "".join([*map(repr, told), *map(str, told), caplog.text, *capfd.readouterr()])
    assert KEY not in written
    assert QUERY not in written


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


def test_within_an_agent_the_search_does_not_appear_among_its_tools(server: TavilyServer) -> None:
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
