"""Several web searches as one: their order, their deadline, who is told what."""

import asyncio
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any

import pytest

from crag_middleware import ConfigError, Passage, TavilyWebSearch, TenantError, WebSearchChain
from crag_middleware.adapters.bocha import BochaWebSearch
from crag_middleware.adapters.web_attempt import Clock
from crag_middleware.findings import WebFound
from crag_middleware.ports import AsyncWebSearch, WebSearch
from crag_middleware.testing import ScriptedWebSearch
from crag_middleware.web_policy import WebPolicy
from tests.support.web_chain import FakeTime, Provider, both, failed, found, refused, search, told
from tests.support.web_server import Answer, WebServer, bocha_page, cut_off, dripping, page, raw, results, silent, status

KEY = "tvly-secret-key"


def tavily(server: WebServer) -> TavilyWebSearch:
    return TavilyWebSearch(api_key=KEY, api_base_url=server.url)


class Other(Provider):
    """A provider of another class."""


def test_a_chain_is_a_web_search() -> None:
    chain = WebSearchChain(ScriptedWebSearch())

    assert isinstance(chain, WebSearch)
    assert isinstance(chain, AsyncWebSearch)
    assert repr(chain) == "WebSearchChain(ScriptedWebSearch)"


@both
def test_the_first_that_finds_something_answers_alone(form: str) -> None:
    first, second = Provider(found("one", "two")), Other(found("three"))

    reply = search(WebSearchChain(first, second), form)

    assert [p.text for p in reply.passages] == ["one", "two"]
    assert [(a.provider, a.reason, a.results, a.requests) for a in reply.attempts] == [("Provider", "", 2, 1)]
    assert not second.asked


@both
@pytest.mark.parametrize("reason", ["unauthorized", "quota", "timeout", "invalid_reply", "failed"])
def test_the_next_is_asked_when_one_failed_and_both_are_told(form: str, reason: str) -> None:
    reply = search(WebSearchChain(Provider(failed(reason)), Other(found())), form)

    assert [(a.provider, a.reason, a.results) for a in reply.attempts] == [("Provider", reason, 0), ("Other", "", 1)]


@both
def test_the_next_is_asked_when_one_found_nothing(form: str) -> None:
    reply = search(WebSearchChain(Provider([]), Other(found())), form)

    assert told(reply.attempts) == [("", 0, 1), ("", 1, 1)]


@both
@pytest.mark.parametrize("replies", [[[], []], [[], failed("timeout")], [failed("quota"), []]])
def test_nothing_found_is_no_error_if_one_provider_says_so(form: str, replies: list[Any]) -> None:
    reply = search(WebSearchChain(*map(Provider, replies)), form)

    assert reply.passages == ()
    assert len(reply.attempts) == 2


@both
def test_when_all_fail_the_error_names_every_attempt_and_nothing_private(form: str) -> None:
    chain = WebSearchChain(Provider(failed("unauthorized")), Other(RuntimeError("secret query milvus port")))

    error = refused(chain, form, agent_id="tenant-7")

    assert error.reason == "RuntimeError"
    assert error.sent
    assert told(error.attempts) == [("unauthorized", 0, 1), ("RuntimeError", 0, 1)]
    assert str(error) == "no web search answered (Provider: unauthorized, Other: RuntimeError)"
    assert "secret" not in "".join(traceback.format_exception(error))


@both
def test_a_request_that_never_left_is_not_told_as_sent(form: str) -> None:
    error = refused(WebSearchChain(Provider(failed("invalid_option", sent=False))), form)

    assert not error.sent
    assert told(error.attempts) == [("invalid_option", 0, 0)]


@both
@pytest.mark.parametrize("reply", [None, "text", [1], [Passage(id="x", text=7)], [Passage(id="x", text="x", metadata=[])]])  # type: ignore[arg-type]
def test_a_reply_that_is_no_list_of_passages_is_a_failure(form: str, reply: Any) -> None:
    found_ = search(WebSearchChain(Provider(reply), Other(found())), form)

    assert told(found_.attempts) == [("invalid_reply", 0, 1), ("", 1, 1)]


@both
def test_passages_are_unique_ranked_from_the_web_and_no_more_than_asked_for(form: str) -> None:
    pages = [Passage(id=i, text=i, origin="knowledge", rank=9) for i in ("a", "a", "b", "c")]

    for reply in (pages, WebFound(tuple(pages))):
        passages = search(WebSearchChain(Provider(reply)), form, limit=2).passages

        assert [(p.id, p.rank, p.origin) for p in passages] == [("a", 1, "web"), ("b", 2, "web")]


@both
def test_every_provider_gets_the_keywords_it_takes(form: str) -> None:
    policy = WebPolicy(freshness="week")

    class Narrow:
        def search(self, query: str) -> list[Passage]:
            return []

    wide = Provider(found())
    search(WebSearchChain(Narrow(), wide), form, "q", agent_id="t", limit=2, options={"include_domains": ["a.example"]}, policy=policy)

    (asked,) = wide.asked
    assert 0 < asked.pop("timeout_s") <= 10
    assert asked == {"query": "q", "agent_id": "t", "limit": 2, "options": {"include_domains": ["a.example"]}, "policy": policy}


def test_a_provider_is_told_by_the_name_it_was_given() -> None:
    provider = Provider(found())
    provider.name = "our search"  # type: ignore[attr-defined]  # as an adapter for any tool has it

    assert search(WebSearchChain(provider), "sync").attempts[0].provider == "our search"


@both
def test_a_tenant_error_of_a_provider_ends_everything(form: str) -> None:
    second = Provider(found())

    with pytest.raises(TenantError):
        search(WebSearchChain(Provider(TenantError("no")), second), form)

    assert not second.asked


@both
@pytest.mark.parametrize("agent_id", ["", "  ", None])
def test_no_tenant_no_search(form: str, agent_id: Any) -> None:
    provider = Provider(found())

    with pytest.raises(TenantError):
        search(WebSearchChain(provider), form, agent_id=agent_id)

    assert not provider.asked


class OnlyAsync:
    async def asearch(self, query: str) -> list[Passage]:
        return found()


def test_a_provider_without_sync_form_is_told_and_works_async() -> None:
    chain = WebSearchChain(Provider(found()), OnlyAsync())

    assert chain.async_only
    assert not WebSearchChain(Provider()).async_only
    assert search(chain, "async").passages
    with pytest.raises(ConfigError, match="OnlyAsync has only an async form: use `ainvoke`"):
        search(chain, "sync")


def test_a_provider_without_async_form_runs_in_a_thread() -> None:
    threads = []

    class OnlySync:
        def search(self, query: str) -> list[Passage]:
            threads.append(threading.current_thread())
            return found()

    assert search(WebSearchChain(OnlySync()), "async").passages
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize(
    ("providers", "words"),
    [
        ((), "at least one web search"),
        ((object(),), "needs a method `search` or `asearch`"),
        ((TavilyWebSearch,), "got the class TavilyWebSearch"),
        ((WebSearchChain(Provider()),), "got another chain; give its providers"),
    ],
)
def test_a_chain_that_can_not_work_is_told_when_it_is_built(providers: Sequence[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WebSearchChain(*providers)


def test_options_are_checked_by_every_provider_that_can() -> None:
    chain = WebSearchChain(ScriptedWebSearch(), TavilyWebSearch(api_key=KEY))

    chain.check_options({"topic": "news"})
    with pytest.raises(ConfigError, match="colour"):
        chain.check_options({"colour": "red"})


@both
def test_a_provider_may_use_its_even_share_and_leaves_the_rest_to_the_next(form: str) -> None:
    clock = FakeTime()
    first, second, third = Provider(time=clock, seconds=1.0), Provider(time=clock, seconds=2.0), Provider(found(), time=clock)

    search(WebSearchChain(first, second, third, clock=clock.clock), form, timeout_s=10)

    assert [p.asked[0]["timeout_s"] for p in (first, second, third)] == pytest.approx([9.5 / 3, 8.5 / 2, 6.5])


@both
def test_without_time_nobody_is_asked(form: str) -> None:
    clock = FakeTime()
    hanging, second = Provider(failed("timeout"), time=clock, seconds=60.0), Provider(found())

    error = refused(WebSearchChain(hanging, second, clock=clock.clock), form)

    assert told(error.attempts) == [("timeout", 0, 1), ("timeout", 0, 0)]
    assert not second.asked
    assert not refused(WebSearchChain(second), form, timeout_s=0.0).sent


MISBEHAVIOURS: list[tuple[Answer, str]] = [
    (silent(), "timeout"),
    (dripping(), "timeout"),
    (status(401), "unauthorized"),
    (status(432), "quota"),
    (status(400), "failed"),
    (raw(b"<html>Log in</html>", kind="text/html"), "invalid_reply"),
    (cut_off(in_body=True), "unavailable"),
    (results(page(content=None, title=None)), ""),
]


@both
@pytest.mark.parametrize(("answer", "reason"), MISBEHAVIOURS)
def test_whatever_one_server_does_the_next_one_answers_in_time(form: str, answer: Answer, reason: str) -> None:
    with WebServer(answer) as bad, WebServer(results(page(content="the answer"))) as good:
        began = time.monotonic()
        reply = search(WebSearchChain(tavily(bad), tavily(good)), form, timeout_s=1.5)

        assert time.monotonic() - began < 3
        assert [p.text for p in reply.passages] == ["the answer"]
        assert [a.reason for a in reply.attempts] == [reason, ""]
        assert len(good.requests) == 1


@both
def test_bocha_answers_where_tavily_refuses_and_rests_when_it_refuses_too(form: str) -> None:
    with WebServer() as server:
        chain = WebSearchChain(tavily(server), BochaWebSearch(api_key="sk-secret-key", api_base_url=server.url))
        found_by_bocha = results(bocha_page(summary="the answer"))
        server.answer = lambda handler: (found_by_bocha if handler.bocha else status(401))(handler)
        reply = search(chain, form)
        server.answer = status(403)
        errors = [refused(chain, form, f"q{i}") for i in range(2)]

        assert [p.text for p in reply.passages] == ["the answer"]
        assert [(a.provider, a.reason) for a in reply.attempts] == [("TavilyWebSearch", "unauthorized"), ("BochaWebSearch", "")]
        assert [told(e.attempts) for e in errors] == [
            [("breaker_open", 0, 0), ("quota", 0, 1)],
            [("breaker_open", 0, 0), ("breaker_open", 0, 0)],
        ]
        assert len(server.requests) == 3


async def test_a_search_waits_without_blocking_the_event_loop() -> None:
    with WebServer(status(503)) as server:
        searching = asyncio.create_task(WebSearchChain(tavily(server)).asearch("q", agent_id="a", limit=3, timeout_s=2.0))
        ticks = 0
        while not searching.done():
            await asyncio.sleep(0.01)
            ticks += 1

        assert ticks >= 10
        with pytest.raises(Exception, match="unavailable"):
            await searching


async def test_a_search_that_is_cancelled_closes_its_connection_and_asks_nobody_else() -> None:
    second = Provider(found())
    with WebServer(dripping()) as server:
        searching = asyncio.create_task(WebSearchChain(tavily(server), second).asearch("q", agent_id="a", limit=3, timeout_s=60))
        await asyncio.to_thread(server.asked.wait, 5)

        searching.cancel()

        with pytest.raises(asyncio.CancelledError):
            await searching
        assert await asyncio.to_thread(server.dropped.wait, 5)
        assert not second.asked


async def test_a_pause_is_cancelled_at_once() -> None:
    pausing = asyncio.Event()

    async def asleep(seconds: float) -> None:
        pausing.set()
        await asyncio.sleep(seconds)

    provider = Provider(failed("rate_limited", retry_after_s=30.0))
    chain = WebSearchChain(provider, clock=Clock(asleep=asleep))
    searching = asyncio.create_task(chain.asearch("q", agent_id="a", limit=3, timeout_s=60))
    await pausing.wait()

    searching.cancel()

    with pytest.raises(asyncio.CancelledError):
        await searching
    assert len(provider.asked) == 1


async def test_a_thousand_cancelled_searches_leave_no_task_and_no_thread() -> None:
    with WebServer(silent()) as server:
        chain = WebSearchChain(tavily(server), Provider(failed("rate_limited", retry_after_s=30.0)))
        for batch in range(20):
            running = [asyncio.create_task(chain.asearch(f"q {batch} {i}", agent_id=f"{i}", limit=3, timeout_s=60)) for i in range(50)]
            await asyncio.sleep(0.01)
            for one in running:
                one.cancel()
            outcomes = await asyncio.gather(*running, return_exceptions=True)
            assert all(isinstance(o, asyncio.CancelledError) for o in outcomes)

        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("crag-")]


def test_one_chain_serves_threads_and_event_loops_and_mixes_nobody_up() -> None:
    class Echo:
        def search(self, query: str, *, agent_id: str) -> list[Passage]:
            return found(f"{agent_id} asked {query}")

        async def asearch(self, query: str, *, agent_id: str) -> list[Passage]:
            await asyncio.sleep(0)
            return self.search(query, agent_id=agent_id)

    chain = WebSearchChain(Echo())
    wrong: list[str] = []

    def one(i: int) -> None:
        for round_ in range(20):
            text = search(chain, "sync" if i % 2 else "async", f"q{round_ % 5}", agent_id=f"t{i}").passages[0].text
            if text != f"t{i} asked q{round_ % 5}":
                wrong.append(text)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
