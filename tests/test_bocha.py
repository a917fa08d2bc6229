"""What is Bocha's own about its web search, over real HTTP; `test_web_http` has what it shares with others."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware import BochaWebSearch
from crag_middleware.adapters.bocha import MAX_EXCLUDED, _items, _page
from crag_middleware.adapters.web_pages import Hosts
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.ports import AsyncWebSearch, WebSearch
from crag_middleware.types import Passage
from crag_middleware.web_policy import DENIED_DOMAINS, WebPolicy
from tests.support.web_server import Answer, WebServer, json_reply, raw, results, status
from tests.support.web_server import bocha_page as page

KEY = "sk-secret-key"
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
        web = BochaWebSearch(**{"api_key": KEY, "api_base_url": server.url, **arguments})

        def ask(query: str = QUERY, **keywords: Any) -> Sequence[Passage]:
            keywords = {"limit": 4, "timeout_s": 5.0, **keywords}
            if request.param == "sync":
                return web.search(query, **keywords)
            return asyncio.run(web.asearch(query, **keywords))

        return ask

    return build


def milliseconds(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]  # a date, without keywords


def test_results_become_web_passages(server: WebServer, search: Search) -> None:
    first = page(
        "Docs.Acme.example", "/a?utm_source=x", "全文摘要。", name="标题", siteName="某站", datePublished="2025-02-23T08:18:30+08:00"
    )
    server.answer = results(first, page("b.example"))

    one, two = search()()

    assert one.id.startswith("web-")
    assert (one.text, one.title, one.source, one.score, one.rank) == ("全文摘要。", "标题", "docs.acme.example", None, 1)
    assert one.url == "https://Docs.Acme.example/a?utm_source=x"
    assert one.origin == two.origin == "web"
    assert one.metadata == {"domain": "docs.acme.example", "site": "某站"}
    assert one.created_at == milliseconds(2025, 2, 23, 0, 18, 30)
    assert two.rank == 2


def test_the_request_carries_key_and_query_in_bochas_form(server: WebServer, search: Search) -> None:
    search()()

    (request,) = server.requests
    assert request["path"] == "/v1/web-search"
    assert request["headers"]["Authorization"] == f"Bearer {KEY}"
    assert request["body"] == {"query": QUERY, "count": 4, "summary": True, "freshness": "noLimit"}


def test_domains_are_sent_in_bochas_form(server: WebServer, search: Search) -> None:
    search(include_domains=["qq.com", "m.163.com"], exclude_domains=["mail.qq.com", "x.example"])()

    assert server.requests[0]["body"]["include"] == "qq.com|m.163.com"
    assert server.requests[0]["body"]["exclude"] == "mail.qq.com|x.example"


def test_more_domains_than_bocha_takes_are_left_out_of_the_results(server: WebServer, search: Search) -> None:
    assert len(DENIED_DOMAINS) > MAX_EXCLUDED
    server.answer = results(page(DENIED_DOMAINS[-1]), page("a.example"))

    found = search()(policy=WebPolicy())

    assert [p.source for p in found] == ["a.example"]
    assert server.requests[0]["body"]["exclude"].split("|") == list(DENIED_DOMAINS[:MAX_EXCLUDED])


@pytest.mark.parametrize(("most", "limit", "got"), [(4, 50, 4), (50, 2, 2), (1, 1, 1)])
def test_c090_the_smaller_of_max_results_and_limit_counts(server: WebServer, search: Search, most: int, limit: int, got: int) -> None:
    server.answer = results(*(page(path=f"/{i}") for i in range(9)))

    passages = search(max_results=most)(limit=limit)

    assert len(passages) == server.requests[0]["body"]["count"] == got


FAILURES: list[tuple[Answer, str]] = [
    (status(403, said="You do not have enough money"), "quota"),
    (status(401, said="Invalid API KEY"), "unauthorized"),
    *(
        (json_reply({"code": code, "message": "refused", "log_id": "x"}), reason)
        for code, reason in [
            ("400", "failed"),
            ("401", "unauthorized"),
            (401, "unauthorized"),
            ("403", "quota"),
            ("429", "rate_limited"),
            ("500", "unavailable"),
            ("abc", "invalid_reply"),
            ("²²²", "invalid_reply"),
            (True, "invalid_reply"),
            ({"a": 1}, "invalid_reply"),
        ]
    ),
    *((json_reply(content), "invalid_reply") for content in ({}, {"code": 200}, {"code": 200, "data": None}, {"code": 200, "data": []})),
    *((json_reply({"code": 200, "data": {"webPages": odd}}), "invalid_reply") for odd in ("none", [], 7, {"value": "none"}, {"value": {}})),
    (json_reply({"results": []}), "invalid_reply"),
]


@pytest.mark.parametrize(("answer", "reason"), FAILURES)
def test_c090_c100_both_shapes_of_error_are_told_by_their_reason(server: WebServer, search: Search, answer: Answer, reason: str) -> None:
    server.answer = answer

    with pytest.raises(WebSearchError) as caught:
        search()()

    assert caught.value.reason == reason
    assert len(server.requests) == 1


@pytest.mark.parametrize("pages", [{}, {"webPages": None}, {"webPages": {"value": None}}, {"webPages": {"value": []}}])
@pytest.mark.parametrize("code", [200, "200", None])
def test_c090_nothing_found_is_no_error(server: WebServer, search: Search, code: Any, pages: Any) -> None:
    server.answer = json_reply({"code": code, "msg": None, "data": pages})

    assert search()() == ()


def test_c095_a_refusal_of_domains_with_status_200_is_told_by_its_setting(server: WebServer, search: Search) -> None:
    server.answer = json_reply({"code": "400", "message": "Invalid parameter include", "log_id": "x"})

    with pytest.raises(WebSearchError, match="`allow_domains`") as caught:
        search()(policy=WebPolicy(allow_domains=("police.uk",)))

    assert caught.value.reason == "domains_refused"
    assert len(server.requests) == 1


ODD: list[Any] = [
    {},
    None,
    "text",
    ["list"],
    {"url": "https://a.example/1", "name": "Name only", "summary": None, "snippet": None},
    {"url": "https://a.example/2", "summary": " ", "snippet": "snippet", "name": None},
    {"url": "https://a.example/3", "name": None, "summary": None},
    {"summary": "no address"},
    {"url": 7, "name": ["x"], "summary": "odd fields", "siteName": {}, "datePublished": 5, "dateLastCrawled": []},
    {"url": "javascript:alert(1)", "summary": "odd address"},
    {"url": "http://[bad", "summary": "broken address"},
    {"url": "https://a.example/4", "name": "  ", "summary": " \n ", "snippet": 3},
]


def test_c096_an_incomplete_result_falls_back_to_snippet_and_name_or_is_dropped(server: WebServer, search: Search) -> None:
    server.answer = results(*ODD)

    passages = search(max_results=20)(limit=20)

    assert [p.text for p in passages] == ["Name only", "snippet", "no address", "odd fields", "odd address", "broken address"]
    assert [p.url for p in passages] == ["https://a.example/1", "https://a.example/2", "", "", "", ""]
    assert {p.created_at for p in passages} == {None}
    assert len({p.id for p in passages}) == 6


@pytest.mark.parametrize(
    ("fields", "moment"),
    [
        ({"datePublished": "2025-02-23T08:18:30+08:00"}, milliseconds(2025, 2, 23, 0, 18, 30)),
        ({"datePublished": "2025-02-23T08:18:30"}, milliseconds(2025, 2, 23, 0, 18, 30)),
        ({"datePublished": "2025-02-23"}, milliseconds(2025, 2, 22, 16)),
        ({"datePublished": "", "dateLastCrawled": "2025-02-23T08:18:30Z"}, milliseconds(2025, 2, 23, 0, 18, 30)),
        ({"datePublished": "yesterday", "dateLastCrawled": None}, None),
        ({"datePublished": "0001-01-01T00:00:00"}, None),
        ({"datePublished": "9999-12-31T23:59:59-12:00"}, 253402343999000),
        ({}, None),
    ],
)
def test_dates_are_read_in_beijings_time(fields: dict[str, Any], moment: int | None) -> None:
    assert _page(fields).created_at == moment


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["code", "data", "webPages", "value", "url", "name", "message"]), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_reply_is_read_or_refused(reply: Any) -> None:
    try:
        items = _items(reply, Hosts())
    except WebSearchError:
        return

    assert isinstance(items, Sequence)
    assert all(_page(item).text is not None for item in items if isinstance(item, dict))


def test_options_replace_the_instances_own_for_one_search(server: WebServer, search: Search) -> None:
    ask = search(freshness="oneYear", summary=False, exclude_domains=["a.example"])

    ask(
        options={"freshness": "2026-01-01..2026-01-31", "summary": True, "exclude_domains": ["b.example"], "include_domains": ["c.example"]}
    )
    ask()

    one, other = (r["body"] for r in server.requests)
    assert one["freshness"] == "2026-01-01..2026-01-31"
    assert (one["summary"], one["exclude"], one["include"]) == (True, "b.example", "c.example")
    assert (other["freshness"], other["summary"], other["exclude"]) == ("oneYear", False, "a.example")
    assert "include" not in other


@pytest.mark.parametrize("freshness", ["noLimit", "oneDay", "oneWeek", "oneMonth", "oneYear", "2025-04-06", "2025-01-01..2025-04-06"])
def test_every_freshness_that_bocha_knows_is_taken(freshness: str) -> None:
    BochaWebSearch(api_key=KEY, freshness=freshness)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 50}, "count; known are: exclude_domains, freshness, include_domains, summary"),
        ({"query": "x"}, "query"),
        ({"include": "a.example"}, "include"),
        ({"freshness": "onehour"}, "`freshness` must be one of noLimit"),
        ({"freshness": None}, "got None"),
        ({"freshness": "2025-02-30"}, "got '2025-02-30'"),
        ({"freshness": "2025-04-06..2025-01-01"}, "span of days"),
        ({"freshness": "2025-04-06.."}, "span of days"),
        ({"summary": "yes"}, "`summary` must be True or False"),
        ({"include_domains": "acme.org"}, "must be a list of host names"),
        ({"include_domains": ["a.org|b.org"]}, "host names such as"),
        ({"exclude_domains": [7]}, "got 7"),
    ],
)
def test_c090_an_option_that_can_not_work_is_refused_and_nothing_sent(
    server: WebServer, search: Search, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        search()(options=options)
    with pytest.raises(ConfigError):
        BochaWebSearch(api_key=KEY).check_options(options)

    assert not server.requests


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_results": 0}, "from 1 to 50, got 0"),
        ({"max_results": 51}, "got 51"),
        ({"max_results": True}, "got True"),
        ({"api_key": ""}, "BOCHA_API_KEY"),
        ({"api_key": "two words"}, "has a space"),
        ({"api_key": "密钥"}, "outside ASCII"),
        ({"api_base_url": "localhost:8000"}, "https://host"),
        ({"api_base_url": "https://user:pw@host"}, "without user"),
        ({"freshness": "never"}, "`freshness`"),
        ({"include_domains": ["a b"]}, "got 'a b'"),
        ({"include_domains": ["a.example"], "exclude_domains": ["example"]}, "no host is in all of"),
    ],
)
def test_a_wrong_argument_is_told_when_it_is_built(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        BochaWebSearch(**{"api_key": KEY, **arguments})

    assert "user:pw" not in str(caught.value)


def test_without_a_key_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOCHA_API_KEY", raising=False)

    with pytest.raises(ConfigError, match="BOCHA_API_KEY"):
        BochaWebSearch()


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/web-search"])
def test_key_and_address_come_from_the_environment(server: WebServer, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("BOCHA_API_KEY", "sk-from-env\n")
    monkeypatch.setenv("BOCHA_API_BASE_URL", f"{server.url}/proxy{path}")

    BochaWebSearch().search(QUERY, limit=1, timeout_s=5)

    assert server.requests[0]["headers"]["Authorization"] == "Bearer sk-from-env"
    assert server.requests[0]["path"] == "/proxy/v1/web-search"


def test_an_instance_does_not_show_its_key() -> None:
    web = BochaWebSearch(api_key=KEY)

    assert KEY not in repr(web) + str(vars(web))
    assert isinstance(web, WebSearch)
    assert isinstance(web, AsyncWebSearch)


def test_a_server_that_recovers_is_heard_again(server: WebServer, search: Search) -> None:
    ask = search()
    server.answer = raw(json.dumps({"code": "429", "message": "You have reached the request limit", "log_id": "x"}).encode())
    with pytest.raises(WebSearchError):
        ask()
    server.answer = results(page())

    assert len(ask()) == 1
