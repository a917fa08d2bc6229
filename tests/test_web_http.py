"""What holds for every search service that is reached by HTTP, over real HTTP against a server that behaves in every way."""

import asyncio
import email.utils
import gzip
import json
import logging
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware import BochaWebSearch, TavilyWebSearch
from crag_middleware.adapters.web_http import MAX_REPLY_BYTES, _seconds
from crag_middleware.adapters.web_pages import MAX_RESULT_CHARS, MAX_TITLE_CHARS, MAX_TOTAL_CHARS, hosts_of
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.testing import WebSearchSuite
from crag_middleware.types import Passage
from crag_middleware.web_policy import DENIED_DOMAINS, WebPolicy
from tests.support import web_server
from tests.support.web_server import Answer, WebServer, bomb, cut_off, dripping, hanging, in_chunks, raw, redirect, results, silent, status

KEY = "tvly-secret-key"
QUERY = "private words of a user"

Ask = Callable[..., Sequence[Passage]]
Search = Callable[..., Ask]
Web = TavilyWebSearch | BochaWebSearch


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as running:
        yield running


@dataclass(frozen=True)
class Kind:
    """A provider, and one result as it gives it."""

    build: Callable[..., Web]
    page: Callable[..., dict[str, Any]]
    include: str
    freshness: str

    def sent(self, server: WebServer, name: str) -> Any:
        """A list of domains in the last request."""
        value = server.requests[-1]["body"].get(name if self.build is TavilyWebSearch else name.removesuffix("_domains"), [])
        return value.split("|") if isinstance(value, str) else value


TAVILY = Kind(TavilyWebSearch, web_server.page, "include_domains", "time_range")
BOCHA = Kind(BochaWebSearch, web_server.bocha_page, "include", "freshness")


@pytest.fixture(params=[TAVILY, BOCHA], ids=["tavily", "bocha"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def web(kind: Kind, server: WebServer) -> Web:
    return kind.build(api_key=KEY, api_base_url=server.url)


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest, kind: Kind, server: WebServer) -> Search:
    """A search on the server: `search(max_results=…)(limit=…)`; the async form runs in an event loop of its own each time."""

    def build(**arguments: Any) -> Ask:
        web = kind.build(**{"api_key": KEY, "api_base_url": server.url, **arguments})

        def ask(query: str = QUERY, **keywords: Any) -> Sequence[Passage]:
            keywords = {"limit": 3, "timeout_s": 5.0, **keywords}
            if request.param == "sync":
                return web.search(query, **keywords)
            return asyncio.run(web.asearch(query, **keywords))

        return ask

    return build


def refused(ask: Ask, **keywords: Any) -> WebSearchError:
    with pytest.raises(WebSearchError) as caught:
        ask(**keywords)
    return caught.value


class TestBocha(WebSearchSuite):
    @pytest.fixture
    def web_search(self) -> Any:
        with WebServer(results(BOCHA.page(path="/1"), BOCHA.page(path="/2"))) as running:
            yield BochaWebSearch(api_key=KEY, api_base_url=running.url)


# --- Failures


FAILURES: list[tuple[Answer, str]] = [
    (status(401), "unauthorized"),
    (status(402), "quota"),
    (status(408), "timeout"),
    (status(429), "rate_limited"),
    (status(500), "unavailable"),
    (status(503), "unavailable"),
    (status(400), "failed"),
    (status(404), "failed"),
    (raw(b"<html>Bad gateway</html>", kind="text/html", status=502), "unavailable"),
    (raw(b"<html>Log in</html>", kind="text/html"), "invalid_reply"),
    (raw(b'{"results": [{"title": "half'), "invalid_reply"),
    (raw(b"\xff\xfe\x00garbage"), "invalid_reply"),
    (raw(b""), "invalid_reply"),
    (raw(b"[" * 200_000), "invalid_reply"),
    (raw(b'{"code": ' + b"9" * 10_000 + b"}"), "invalid_reply"),
    (raw(b"null"), "invalid_reply"),
    (raw(b"[]"), "invalid_reply"),
    (raw(b'"text"'), "invalid_reply"),
    (raw(b"{}", Content_Encoding="br"), "invalid_reply"),
    (raw(b"not packed", Content_Encoding="gzip"), "invalid_reply"),
    (raw(gzip.compress(b'{"results": []}')[:12], Content_Encoding="gzip"), "invalid_reply"),
    (cut_off(in_body=True), "unavailable"),
    (cut_off(in_body=False), "unavailable"),
    (redirect("http://127.0.0.1:9/elsewhere"), "failed"),
]


@pytest.mark.parametrize(("answer", "reason"), FAILURES)
def test_c090_c100_each_failure_is_told_by_its_reason_after_one_request_and_holds_neither_key_nor_query(
    server: WebServer, search: Search, answer: Answer, reason: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = answer
    caplog.set_level(logging.DEBUG)

    error = refused(search())

    written = "".join([*traceback.format_exception(error), caplog.text, *capfd.readouterr()])
    assert error.reason == reason
    assert len(server.requests) == 1
    assert KEY not in written
    assert QUERY not in written


def test_c100_a_search_that_succeeds_logs_neither_key_nor_query(
    server: WebServer, search: Search, kind: Kind, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = results(kind.page())
    caplog.set_level(logging.DEBUG)

    search()()

    written = "".join([caplog.text, *capfd.readouterr()])
    assert KEY not in written
    assert QUERY not in written


def test_c090_a_refused_connection_is_told_by_its_reason(search: Search) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    assert refused(search(api_base_url=f"http://127.0.0.1:{port}")).reason == "unavailable"


def test_c090_a_server_that_speaks_no_tls_is_told_by_its_reason(server: WebServer, search: Search) -> None:
    assert refused(search(api_base_url=server.url.replace("http:", "https:"))).reason == "unavailable"


@pytest.mark.parametrize("code", [429, 503])
def test_c100_a_provider_says_when_it_may_be_asked_again(server: WebServer, search: Search, code: int) -> None:
    server.answer = status(code, retry_after="7")

    assert refused(search()).retry_after_s == 7.0


def test_c100_a_date_says_when_too(server: WebServer, search: Search) -> None:
    server.answer = status(429, retry_after=email.utils.formatdate(time.time() + 100, usegmt=True))

    assert 50 < (refused(search()).retry_after_s or 0) <= 101


def test_c100_nothing_else_says_when(server: WebServer, search: Search) -> None:
    server.answer = status(401, retry_after="7")

    assert refused(search()).retry_after_s is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        (" 12 ", 12.0),
        ("1.5", 1.5),
        ("Thu, 01 Jan 1970 00:20:00 GMT", 200.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:20:00", 200.0),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("soon", None),
        ("", None),
        ("Thu, 99 Jan 99999 00:00:00 GMT", None),
        (None, None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert _seconds(header, 1000.0) == seconds


@given(st.text())
def test_no_retry_after_breaks_anything_or_lies_in_the_past(header: str) -> None:
    seconds = _seconds(header, 1000.0)

    assert seconds is None or seconds >= 0


# --- Time


@pytest.mark.parametrize(
    "answer", [silent(), hanging(), dripping(), dripping(in_headers=True)], ids=["silent", "hanging", "body", "headers"]
)
def test_c099_a_search_ends_within_its_time(server: WebServer, search: Search, answer: Answer) -> None:
    server.answer = answer
    began = time.monotonic()

    assert refused(search(), timeout_s=0.25).reason == "timeout"
    assert time.monotonic() - began < 5


def test_c099_a_sync_search_that_is_late_lets_go_of_its_connection(server: WebServer, web: Web) -> None:
    server.answer = dripping(in_headers=True)

    with pytest.raises(WebSearchError):
        web.search(QUERY, limit=3, timeout_s=0.3)

    assert server.dropped.wait(5)


def test_c099_a_search_without_time_sends_nothing(server: WebServer, search: Search) -> None:
    assert refused(search(), timeout_s=0.0).reason == "timeout"
    assert not server.requests


async def test_c099_a_slow_search_does_not_block_the_event_loop(server: WebServer, web: Web) -> None:
    server.answer = hanging()
    searching = asyncio.create_task(web.asearch(QUERY, limit=3, timeout_s=0.5))

    ticks = 0
    while not searching.done():
        await asyncio.sleep(0.01)
        ticks += 1

    assert ticks >= 5
    with pytest.raises(WebSearchError):
        await searching


async def test_c099_cancelling_a_search_closes_its_connection(server: WebServer, web: Web) -> None:
    server.answer = dripping()
    searching = asyncio.create_task(web.asearch(QUERY, limit=3, timeout_s=30))
    await asyncio.to_thread(server.asked.wait, 5)

    searching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await searching
    assert await asyncio.to_thread(server.dropped.wait, 5)


async def test_a_sync_search_works_where_an_event_loop_runs(server: WebServer, web: Web, kind: Kind) -> None:
    server.answer = results(kind.page())

    assert len(web.search(QUERY, limit=3, timeout_s=5)) == 1


def test_one_instance_serves_two_event_loops_in_a_row_and_leaves_nothing_open(server: WebServer, web: Web, kind: Kind) -> None:
    server.answer = results(kind.page())

    async def twice() -> list[int]:
        return [len(found) for found in await asyncio.gather(*(web.asearch(QUERY, limit=3, timeout_s=5) for _ in range(2)))]

    assert asyncio.run(twice()) == asyncio.run(twice()) == [1, 1]


def test_threads_and_loops_share_an_instance_without_mixing_their_searches(server: WebServer, web: Web, kind: Kind) -> None:
    text = "content" if kind is TAVILY else "summary"

    def echo(handler: Any) -> None:
        results(kind.page(**{text: handler.body["query"], "host": (handler.body.get(kind.include) or ["none.example"])[0]}))(handler)

    server.answer = (
        echo if kind is TAVILY else lambda handler: results(kind.page(handler.body["include"], summary=handler.body["query"]))(handler)
    )
    seen: dict[int, tuple[str, str]] = {}

    def one(i: int) -> None:
        keywords: dict[str, Any] = {"limit": i + 1, "timeout_s": 20.0, "options": {"include_domains": [f"site{i}.example"]}}
        found = web.search(f"query {i}", **keywords) if i % 2 else asyncio.run(web.asearch(f"query {i}", **keywords))
        seen[i] = (found[0].text, found[0].source)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {i: (f"query {i}", f"site{i}.example") for i in range(12)}


# --- What the environment says


def test_a_netrc_does_not_replace_the_key(server: WebServer, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login someone password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    search()()

    assert server.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"


def test_a_proxy_of_the_environment_is_used(server: WebServer, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")

    search(api_base_url="http://service.example")()

    assert server.requests[0]["path"].startswith("http://service.example/")


@pytest.mark.parametrize("proxy", ["gopher://user:password@proxy.example:1", "http://user:password@proxy.example:port"])
def test_a_proxy_that_can_not_be_used_is_told_without_its_password(
    server: WebServer, search: Search, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")

    error = refused(search(api_base_url="http://service.example"))

    assert (error.reason, error.sent) == ("unavailable", False)
    assert "password" not in "".join(traceback.format_exception(error))
    assert not server.requests


def test_a_key_is_told_from_another_by_a_digest(kind: Kind) -> None:
    one, again, other = (kind.build(api_key=key).credential for key in (KEY, f" {KEY}\n", "another"))

    assert one == again != other
    assert KEY not in one


# --- Sizes


LONG = "This page says the same thing again. "


def test_c097_long_pages_are_cut_at_once(server: WebServer, search: Search, kind: Kind) -> None:
    text = LONG * (400_000 // len(LONG))
    server.answer = results(*(kind.page("site.example", f"/{i}", text) for i in range(20)))

    few, many = search()(), search(max_results=20)(limit=20)

    assert all(p.text.endswith("again.") for p in (*few, *many))
    assert MAX_RESULT_CHARS - len(LONG) <= max(len(p.text) for p in few) <= MAX_RESULT_CHARS
    assert MAX_TOTAL_CHARS - 1000 <= sum(len(p.text) for p in many) <= MAX_TOTAL_CHARS


def test_c097_a_policy_sets_the_sizes(server: WebServer, search: Search, kind: Kind) -> None:
    server.answer = results(*(kind.page("site.example", f"/{i}", LONG * 1000) for i in range(9)))
    policy = WebPolicy(max_result_chars=20_000, max_total_chars=30_000)

    one, three = search()(limit=1, policy=policy), search()(limit=3, policy=policy)

    assert 19_000 <= len(one[0].text) <= 20_000
    assert [9_900 <= len(p.text) <= 10_000 for p in three] == [True] * 3


def test_c097_titles_are_cut_and_endless_addresses_are_none(server: WebServer, search: Search, kind: Kind) -> None:
    title = "title" if kind is TAVILY else "name"
    server.answer = results(kind.page("site.example", "/" + "x" * 100_000, "Text.", **{title: "word " * 10_000}))

    (found,) = search()()

    assert (found.text, found.url, found.source) == ("Text.", "", "")
    assert 200 < len(found.title) <= MAX_TITLE_CHARS


@pytest.mark.parametrize("answer", [raw(b" " * (MAX_REPLY_BYTES + 1)), bomb(60_000_000)], ids=["long", "bomb"])
def test_c097_a_reply_without_end_is_given_up(server: WebServer, search: Search, answer: Answer) -> None:
    server.answer = answer

    error = refused(search(), timeout_s=20.0)

    assert error.reason == "invalid_reply"
    assert "larger than" in str(error)


def test_c097_packings_within_packings_are_not_unpacked(server: WebServer, search: Search) -> None:
    server.answer = bomb(60_000_000, twice=True)

    assert refused(search()).reason == "invalid_reply"


def test_a_packed_reply_is_read(server: WebServer, search: Search, kind: Kind) -> None:
    plain: list[bytes] = []

    def answer(handler: Any) -> None:
        handler.reply = lambda status, body, **_: plain.append(body)
        results(kind.page("site.example", "/page", "word " * 50_000))(handler)
        del handler.reply
        in_chunks(gzip.compress(plain[-1]), Content_Encoding="gzip")(handler)

    server.answer = answer

    assert search()()[0].text.startswith("word word")


def test_lone_surrogates_do_not_travel(server: WebServer, search: Search, kind: Kind) -> None:
    server.answer = results(kind.page("site.example", "/page", "a \ud800 text"))

    (found,) = search()("what \udc00 is it")

    assert found.text == "a ? text"
    assert server.requests[0]["body"]["query"] == "what ? is it"


def test_c092_a_query_of_any_length_is_sent_in_400_characters(server: WebServer, search: Search) -> None:
    search()("how to reset it " * 75)

    sent = server.requests[0]["body"]["query"]
    assert 350 <= len(sent) <= 400
    assert not set(sent.split()) - {"how", "to", "reset", "it"}


# --- Where results may come from


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


@pytest.fixture
def hostile(server: WebServer, kind: Kind) -> None:
    text = "content" if kind is TAVILY else "summary"
    server.answer = results(*({**kind.page(), "url": url, text: url} for url in HOSTILE), {**kind.page(), "url": None, text: "no address"})


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("domain", ["acme.org", "ACME.org", "*.acme.org", ".acme.org."])
def test_c094_only_hosts_of_allowed_domains_stay(server: WebServer, search: Search, kind: Kind, domain: str) -> None:
    policy = WebPolicy(allow_domains=(domain,))

    for found in (search(max_results=20, include_domains=[domain])(limit=20), search(max_results=20)(limit=20, policy=policy)):
        assert [p.text for p in found] == [HOSTILE[0], HOSTILE[3], HOSTILE[7]]
        assert kind.sent(server, "include_domains") == ["acme.org"]


@pytest.mark.usefixtures("hostile")
def test_c094_no_host_of_denied_domains_stays(server: WebServer, search: Search, kind: Kind) -> None:
    policy = WebPolicy(deny_domains=("evil.io",))

    found = search(max_results=20)(limit=20, options={"exclude_domains": ["notacme.org"]}, policy=policy)

    assert [p.text for p in found] == [HOSTILE[0], HOSTILE[3], HOSTILE[5], HOSTILE[7], "no address"]
    assert found[2].url == ""
    assert kind.sent(server, "exclude_domains") == ["notacme.org", "evil.io"]


def test_c094_an_international_domain_matches_in_both_spellings(server: WebServer, search: Search, kind: Kind) -> None:
    server.answer = results(kind.page("münchen.example"), kind.page("XN--mnchen-3ya.example", "/b"), kind.page("munchen.example"))

    found = search()(policy=WebPolicy(allow_domains=("München.example",)))

    assert [p.url for p in found] == ["https://münchen.example/page", "https://XN--mnchen-3ya.example/b"]


def test_the_default_policy_denies_document_dumps(server: WebServer, search: Search, kind: Kind) -> None:
    server.answer = results(*(kind.page(f"www.{domain}", "/1") for domain in DENIED_DOMAINS), kind.page("baidu.com"))

    assert [p.source for p in search(max_results=20)(limit=20, policy=WebPolicy())] == ["baidu.com"]


@pytest.mark.parametrize(
    ("asked", "allowed", "sent"),
    [
        (["docs.acme.org"], ["acme.org"], ["docs.acme.org"]),
        (["acme.org"], ["docs.acme.org", "blog.acme.org"], ["docs.acme.org", "blog.acme.org"]),
        (["acme.org", "evil.io"], ["acme.org"], ["acme.org"]),
        ([], ["acme.org"], ["acme.org"]),
        (["acme.org"], [], ["acme.org"]),
    ],
)
def test_what_the_user_asks_for_only_narrows_what_is_allowed(
    server: WebServer, search: Search, kind: Kind, asked: list[str], allowed: list[str], sent: list[str]
) -> None:
    search()(options={"include_domains": asked}, policy=WebPolicy(allow_domains=tuple(allowed)))
    search(include_domains=allowed)(options={"include_domains": asked})

    assert kind.sent(server, "include_domains") == sent
    assert server.requests[0]["body"][kind.include] == server.requests[1]["body"][kind.include]


@pytest.mark.parametrize("policy", [WebPolicy(allow_domains=("acme.org",)), WebPolicy(deny_domains=("evil.io",))])
def test_a_site_that_is_not_allowed_is_not_searched(server: WebServer, search: Search, policy: WebPolicy) -> None:
    error = refused(search(), options={"include_domains": ["www.evil.io"]}, policy=policy)

    assert (error.reason, error.sent) == ("no_allowed_domain", False)
    assert "evil.io" not in str(error)
    assert not server.requests


def test_an_allowed_domain_that_is_no_host_name_is_told_and_not_forgotten(server: WebServer, search: Search) -> None:
    with pytest.raises(ConfigError, match="`allow_domains` must hold host names"):
        search()(policy=WebPolicy(allow_domains=("https://acme.org/",)))

    assert not server.requests


NAMES = st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(".".join), max_size=3)


@given(NAMES, NAMES, NAMES, NAMES, st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join))
def test_a_host_is_kept_if_every_list_keeps_it(own: list[str], asked: list[str], allowed: list[str], denied: list[str], name: str) -> None:
    def below(domains: list[str]) -> bool:
        return any(name == one or name.endswith(f".{one}") for one in domains)

    wanted = all(below(listed) for listed in (own, asked, allowed) if listed) and not below(denied)
    policy = WebPolicy(allow_domains=tuple(allowed), deny_domains=tuple(denied))

    try:
        hosts = hosts_of({"include_domains": own}, {"include_domains": asked}, policy)
    except WebSearchError:
        assert not wanted
    else:
        assert (name in hosts) == wanted


REFUSALS = [
    "All domains in include_domains are invalid: ['police.uk']. Domains must have a valid suffix (e.g., 'tavily.com' instead of 'tavily').",
    "Invalid parameter include: police.uk",
]


@pytest.mark.parametrize("said", REFUSALS)
@pytest.mark.parametrize("code", [400, 422])
def test_c095_a_refused_domain_is_told_by_its_setting_and_nothing_else_is_searched(
    server: WebServer, search: Search, said: str, code: int
) -> None:
    server.answer = status(code, said=said)

    error = refused(search(), policy=WebPolicy(allow_domains=("police.uk", "example.org")))

    assert error.reason == "domains_refused"
    assert "`allow_domains`" in str(error)
    assert "police.uk" not in str(error)
    assert len(server.requests) == 1


def test_c095_a_refused_domain_to_leave_out_is_told_by_its_setting(server: WebServer, search: Search) -> None:
    server.answer = status(400, said="All domains in exclude_domains are invalid: ['uk'].")

    error = refused(search(), policy=WebPolicy(allow_domains=("example.org",), deny_domains=("uk",)))

    assert error.reason == "domains_refused"
    assert "`deny_domains`" in str(error)


def test_c095_another_complaint_is_not_laid_to_the_domains(server: WebServer, search: Search) -> None:
    server.answer = status(400, said="Query is too long.")

    assert refused(search(), policy=WebPolicy(allow_domains=("example.org",))).reason == "failed"


# --- Freshness


@pytest.mark.parametrize(
    ("freshness", "tavily", "bocha"),
    [
        ("any", None, "noLimit"),
        ("day", "day", "oneDay"),
        ("week", "week", "oneWeek"),
        ("month", "month", "oneMonth"),
        ("year", "year", "oneYear"),
    ],
)
def test_a_policys_freshness_is_asked_for(
    server: WebServer, search: Search, kind: Kind, freshness: Any, tavily: str | None, bocha: str
) -> None:
    search()(policy=WebPolicy(freshness=freshness))

    assert server.requests[0]["body"].get(kind.freshness) == (tavily if kind is TAVILY else bocha)


def test_a_policys_freshness_counts_instead_of_others(server: WebServer, search: Search, kind: Kind) -> None:
    year, week = ("year", "week") if kind is TAVILY else ("oneYear", "oneWeek")
    ask = search(**{kind.freshness: year})

    ask(policy=WebPolicy())
    ask(options={kind.freshness: week}, policy=WebPolicy(freshness="day"))

    assert [r["body"][kind.freshness] for r in server.requests] == [year, "day" if kind is TAVILY else "oneDay"]


def test_certificates_are_read_once(server: WebServer, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    search()()

    def read_again(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(ssl, "create_default_context", read_again)
    search()()

    assert json.dumps(server.requests[0]["body"]) == json.dumps(server.requests[1]["body"])
