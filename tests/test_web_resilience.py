"""Repetitions, breakers, caches and budgets of the web search: what is not asked again, by whom, for how long."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from crag_middleware import CRAGSettings, TavilyWebSearch, WebSearchChain
from crag_middleware import breaker as breakers
from crag_middleware.adapters import web_budget, web_cache
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy
from tests.support.agents import agent_with, crag, passage
from tests.support.agents import ask as ask_agent
from tests.support.web_chain import FakeTime, Provider, both, failed, found, in_turn, refused, search, told
from tests.support.web_server import Answer, WebServer, cut_off, page, results, silent, status

KEY = "tvly-secret-key"
QUESTION = "Which port does the Zephyr gateway listen on?"


def chain_on(server: WebServer, time: FakeTime) -> WebSearchChain:
    return WebSearchChain(TavilyWebSearch(api_key=KEY, api_base_url=server.url), clock=time.clock)


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


# Repetitions


@both
@pytest.mark.parametrize("trouble", [status(429), status(500), status(503), cut_off(in_body=True), cut_off(in_body=False)])
def test_c100_what_may_pass_is_repeated_with_growing_pauses(form: str, time: FakeTime, trouble: Answer) -> None:
    with WebServer(in_turn(trouble, trouble, results(page()))) as server:
        reply = search(chain_on(server, time), form)

        assert told(reply.attempts) == [("", 1, 3)]
        assert len(server.requests) == 3
        assert time.pauses == [0.5, 1.0]


@both
@pytest.mark.parametrize(("code", "reason"), [(429, "rate_limited"), (500, "unavailable")])
def test_c100_no_request_is_repeated_more_than_twice(form: str, time: FakeTime, code: int, reason: str) -> None:
    with WebServer(status(code)) as server:
        error = refused(chain_on(server, time), form)

        assert (error.reason, len(server.requests)) == (reason, 3)
        assert told(error.attempts) == [(reason, 0, 3)]


@both
@pytest.mark.parametrize("reason", ["unauthorized", "quota", "invalid_reply", "timeout", "failed", "ValueError"])
def test_c100_what_stays_wrong_is_not_repeated(form: str, time: FakeTime, reason: str) -> None:
    provider = Provider(failed(reason, retry_after_s=0.1))

    refused(WebSearchChain(provider, clock=time.clock), form)

    assert len(provider.asked) == 1
    assert time.pauses == []


def test_pauses_vary_by_chance_from_half_to_the_whole(time: FakeTime) -> None:
    time.chance = 0.0

    refused(WebSearchChain(Provider(failed("unavailable")), clock=time.clock), "sync")

    assert time.pauses == [0.25, 0.5]


@both
@pytest.mark.parametrize(("asked_for", "pause"), [(None, 0.5), (0.0, 0.5), (3.0, 3.0), (-5.0, 0.5), (float("nan"), 0.5)])
def test_a_pause_is_no_shorter_than_the_provider_asks_for(form: str, time: FakeTime, asked_for: float | None, pause: float) -> None:
    provider = Provider(failed("rate_limited", retry_after_s=asked_for), found())

    search(WebSearchChain(provider, clock=time.clock), form)

    assert time.pauses == [pause]


@both
def test_c100_a_server_that_says_when_is_asked_then(form: str, time: FakeTime) -> None:
    with WebServer(in_turn(status(429, retry_after="4"), results(page()))) as server:
        assert search(chain_on(server, time), form).passages
        assert time.pauses == [4.0]


@both
@pytest.mark.parametrize(("asked_for", "seconds"), [(9.6, 0.0), (float("inf"), 0.0), (None, 4.6)])
def test_a_repetition_that_would_not_end_in_time_is_not_begun(form: str, time: FakeTime, asked_for: float | None, seconds: float) -> None:
    provider = Provider(failed("unavailable", retry_after_s=asked_for), found(), time=time, seconds=seconds)

    error = refused(WebSearchChain(provider, clock=time.clock), form, timeout_s=10)

    assert told(error.attempts) == [("unavailable", 0, 1)]
    assert time.pauses == []


# Breakers


@both
@pytest.mark.parametrize(("code", "reason"), [(401, "unauthorized"), (402, "quota"), (403, "unauthorized"), (432, "quota"), (433, "quota")])
def test_c100_a_refused_key_rests_and_is_told_once(
    form: str, time: FakeTime, caplog: pytest.LogCaptureFixture, code: int, reason: str
) -> None:
    with WebServer(status(code)) as server:
        chain = chain_on(server, time)
        errors = [refused(chain, form, f"private words {i}", agent_id="tenant-7") for i in range(4)]

        assert [e.reason for e in errors] == [reason, "breaker_open", "breaker_open", "breaker_open"]
        assert [e.sent for e in errors] == [True, False, False, False]
        assert len(server.requests) == 1
        assert [r.message for r in caplog.records] == [f"the web search TavilyWebSearch is left alone for a while: {reason}"]
        for private in (KEY, "private", "tenant-7", server.url):
            assert private not in caplog.text + "".join(map(repr, errors))


@both
def test_a_circuit_that_cooled_down_lets_one_trial_through(form: str, time: FakeTime, caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider(failed("unauthorized"), failed("unauthorized"), found())
    chain = WebSearchChain(provider, clock=time.clock)
    refused(chain, form)

    time.now += 299
    assert refused(chain, form).reason == "breaker_open"
    time.now += 1
    assert refused(chain, form).reason == "unauthorized"
    time.now += 299
    assert refused(chain, form).reason == "breaker_open"
    time.now += 1
    assert search(chain, form, "one").passages
    assert search(chain, form, "two").passages
    assert len(provider.asked) == 4
    assert len(caplog.records) == 1


@both
@pytest.mark.parametrize("reason", ["unavailable", "timeout"])
def test_three_searches_in_a_row_without_an_answer_open_the_circuit_for_half_a_minute(form: str, time: FakeTime, reason: str) -> None:
    provider = Provider(failed(reason))
    chain = WebSearchChain(provider, clock=time.clock)

    assert [refused(chain, form, f"q{i}").reason for i in range(4)] == [reason] * 3 + ["breaker_open"]
    time.now += 30
    asked = len(provider.asked)
    assert [refused(chain, form, f"r{i}").reason for i in range(2)] == [reason, "breaker_open"]
    assert len(provider.asked) > asked


@both
@pytest.mark.parametrize("between", [found(), [], failed("rate_limited", retry_after_s=60.0), failed("invalid_reply"), failed("failed")])
def test_any_answer_in_between_shows_that_the_provider_is_there(form: str, time: FakeTime, between: Any) -> None:
    provider = Provider(*[failed("timeout")] * 2, between, *[failed("timeout")] * 2, found())
    chain = WebSearchChain(provider, Provider(found()), clock=time.clock)

    for i in range(6):
        search(chain, form, f"q{i}")

    assert len(provider.asked) == 6


@both
def test_one_tenants_key_closes_no_other_tenants_circuit_and_no_other_provider(form: str, time: FakeTime) -> None:
    class PerTenant:
        def search(self, query: str, *, agent_id: str) -> list[Passage]:
            if agent_id == "a":
                raise failed("unauthorized")
            return found(agent_id)

    chain = WebSearchChain(PerTenant(), PerTenant(), clock=time.clock)

    for _ in range(2):
        error = refused(chain, form)
    assert told(error.attempts) == [("breaker_open", 0, 0)] * 2
    assert search(chain, form, agent_id="b").passages[0].text == "b"


@both
def test_a_trial_that_fails_in_any_way_opens_the_circuit_again(form: str, time: FakeTime) -> None:
    chain = WebSearchChain(Provider(failed("quota"), failed("timeout"), found()), clock=time.clock)
    refused(chain, form)
    time.now += 300

    assert [refused(chain, form, query).reason for query in ("one", "two")] == ["timeout", "breaker_open"]
    time.now += 30
    assert search(chain, form, "three").passages


@both
def test_another_key_is_another_circuit(form: str, time: FakeTime) -> None:
    provider = Provider(failed("unauthorized"), found())
    provider.credential = "digest 1"  # type: ignore[attr-defined]  # as a provider with a key has it
    chain = WebSearchChain(provider, clock=time.clock)
    refused(chain, form)

    assert refused(chain, form).reason == "breaker_open"
    provider.credential = "digest 2"  # type: ignore[attr-defined]
    assert search(chain, form).passages


async def test_a_cancelled_trial_leaves_the_next_one_free(time: FakeTime) -> None:
    asked = asyncio.Event()

    class Hanging:
        async def asearch(self, query: str) -> list[Passage]:
            if query == "hang":
                asked.set()
                await asyncio.Event().wait()
            if query == "broken":
                raise failed("quota")
            return found()

    chain = WebSearchChain(Hanging(), clock=time.clock)
    keywords: dict[str, Any] = {"agent_id": "a", "limit": 3, "timeout_s": 60.0}
    with pytest.raises(Exception, match="quota"):
        await chain.asearch("broken", **keywords)
    time.now += 300
    trial = asyncio.create_task(chain.asearch("hang", **keywords))
    await asked.wait()

    with pytest.raises(Exception, match="breaker_open"):
        await chain.asearch("other", **keywords)
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)

    assert (await chain.asearch("other", **keywords)).passages


def test_the_breaker_remembers_so_many_circuits_and_no_more(time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakers, "MAX_CIRCUITS", 3)
    breaker = breakers.Breaker(lambda: time.now)

    for tenant in "abcd":
        permit = breaker.admit(tenant)
        assert permit
        assert breaker.settle(permit, "quota")

    assert [breaker.admit(tenant) is None for tenant in "abcd"] == [False, True, True, True]


def test_a_late_failure_does_not_shorten_the_rest(time: FakeTime) -> None:
    breaker = breakers.Breaker(lambda: time.now)
    permits = [breaker.admit("a") for _ in range(4)]

    opened = [breaker.settle(permit, reason) for permit, reason in zip(permits, ["quota", *["timeout"] * 3], strict=True) if permit]
    time.now += 299

    assert opened == [True, False, False, False]
    assert breaker.admit("a") is None


# Caches


@both
def test_the_same_is_not_asked_again_for_five_minutes(form: str, time: FakeTime) -> None:
    provider = Provider(found("one"), found("two"))
    chain = WebSearchChain(provider, clock=time.clock)

    replies = [search(chain, form, query) for query in ("Milvus Port", "  milvus   port ")]
    time.now += 300
    replies.append(search(chain, form, "milvus port"))

    assert [r.passages[0].text for r in replies] == ["one", "one", "two"]
    assert [told(r.attempts) for r in replies] == [[("", 1, 1)], [("", 1, 0)], [("", 1, 1)]]


@both
@pytest.mark.parametrize(
    "other",
    [
        {"agent_id": "b"},
        {"limit": 2},
        {"options": {"include_domains": ["a.example"]}},
        {"policy": WebPolicy(freshness="day")},
        {"query": "milvus ports"},
    ],
)
def test_another_tenant_query_limit_option_or_policy_is_another_search(form: str, time: FakeTime, other: dict[str, Any]) -> None:
    provider = Provider(found())
    chain = WebSearchChain(provider, clock=time.clock)

    search(chain, form)
    search(chain, form, **other)

    assert len(provider.asked) == 2


@both
@pytest.mark.parametrize("nothing", [[], failed("invalid_reply"), failed("timeout"), failed("failed"), ValueError("odd")])
def test_nothing_and_failures_are_remembered_for_20_seconds(form: str, time: FakeTime, nothing: Any) -> None:
    provider = Provider(nothing, found())
    chain = WebSearchChain(provider, Provider([]), clock=time.clock)

    first, again = search(chain, form), search(chain, form)
    time.now += 20
    third = search(chain, form)

    assert told(again.attempts) == [(a.reason, 0, 0) for a in first.attempts]
    assert told(third.attempts) == [("", 1, 1)]


@both
def test_a_remembered_answer_costs_no_budget_and_passes_an_open_circuit(form: str, time: FakeTime) -> None:
    provider = Provider(found(), failed("quota"))
    chain = WebSearchChain(provider, clock=time.clock)
    policy = WebPolicy(requests_per_day=2)
    search(chain, form, policy=policy)
    refused(chain, form, "other", policy=policy)

    assert told(search(chain, form, policy=policy).attempts) == [("", 1, 0)]


def test_the_cache_is_bounded_in_number_and_size(time: FakeTime) -> None:
    cache = web_cache.SearchCache(lambda: time.now)

    for i in range(web_cache.MAX_ENTRIES + 1):
        cache.put(i, web_cache.Outcome(tuple(found("x"))))
    assert cache.get(0) is None
    assert cache.get(1)

    for i in range(40):
        cache.put(f"big {i}", web_cache.Outcome(tuple(found("字" * 400_000))))
    held = [i for i in range(40) if cache.get(f"big {i}")]
    assert held == list(range(40 - len(held), 40))
    assert 1 <= len(held) <= 16_000_000 // 800_000

    cache.put("huge", web_cache.Outcome(tuple(found("x" * 17_000_000))))
    assert cache.get("huge") is None
    assert cache.get("big 39")


# Budgets


@both
def test_a_turn_sends_no_more_requests_than_its_policy_allows_repetitions_included(form: str, time: FakeTime) -> None:
    first, second = Provider(failed("unavailable")), Provider(failed("unavailable"))

    error = refused(WebSearchChain(first, second, clock=time.clock), form, policy=WebPolicy(requests_per_turn=1))

    assert told(error.attempts) == [("unavailable", 0, 1), ("budget", 0, 0)]
    assert error.reason == "unavailable"
    assert not second.asked


@both
def test_repetitions_leave_every_provider_to_come_one_request(form: str, time: FakeTime) -> None:
    chain = WebSearchChain(Provider(failed("unavailable")), Provider(failed("rate_limited")), Provider(found()), clock=time.clock)

    reply = search(chain, form, policy=WebPolicy(requests_per_turn=4))

    assert told(reply.attempts) == [("unavailable", 0, 2), ("rate_limited", 0, 1), ("", 1, 1)]


@both
def test_a_day_sends_no_more_requests_than_the_tenants_policy_allows(form: str, time: FakeTime) -> None:
    policy = WebPolicy(requests_per_day=2)
    with WebServer(results(page())) as server:
        chain = chain_on(server, time)
        for query in ("one", "two"):
            search(chain, form, query, policy=policy)

        error = refused(chain, form, "three", policy=policy)

        assert (error.reason, error.sent, told(error.attempts)) == ("budget", False, [("budget", 0, 0)])
        assert len(server.requests) == 2
        assert search(chain, form, "three", agent_id="b", policy=policy).passages
        assert search(chain, form, "three", policy=WebPolicy()).passages
        time.now += 86_400
        assert search(chain, form, "four", policy=policy).passages


@both
def test_what_was_not_sent_costs_no_budget(form: str, time: FakeTime) -> None:
    chain = WebSearchChain(Provider(*[failed("no_allowed_domain", sent=False)] * 3, found()), clock=time.clock)
    policy = WebPolicy(requests_per_day=1, requests_per_turn=1)

    assert {refused(chain, form, policy=policy).reason for _ in range(3)} == {"no_allowed_domain"}
    assert search(chain, form, policy=policy).passages


@both
def test_a_budget_that_is_spent_opens_no_circuit_and_is_not_remembered(form: str, time: FakeTime) -> None:
    chain = WebSearchChain(Provider(found()), clock=time.clock)

    assert {refused(chain, form, policy=WebPolicy(requests_per_day=0)).reason for _ in range(5)} == {"budget"}
    assert search(chain, form, policy=WebPolicy(requests_per_day=1)).passages


def test_the_day_begins_at_midnight_utc(time: FakeTime) -> None:
    ledger = web_budget.DayLedger(time.clock.wall)
    time.now = 1000.0 + 86_399

    assert [ledger.take("a", 1), ledger.take("a", 1)] == [True, False]
    time.now += 1
    assert [ledger.take("a", 1), ledger.take("a", 1)] == [True, False]


def test_threads_together_take_exactly_what_a_day_allows() -> None:
    ledger, taken = web_budget.DayLedger(lambda: 0.0), []

    def take() -> None:
        taken.extend([ledger.take("a", 500) for _ in range(200)])

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (sum(taken), len(taken)) == (500, 1600)


def test_the_ledger_counts_so_many_tenants_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_budget, "MAX_TENANTS", 3)
    ledger = web_budget.DayLedger(lambda: 0.0)

    for tenant in "abcd":
        ledger.take(tenant, 1)

    assert [ledger.take(tenant, 1) for tenant in "dcba"] == [False, False, False, True]


# Whole turns


def agent_on(server: WebServer, **settings: Any) -> Any:
    """An agent whose knowledge only half answers, with the web on that server."""
    port = passage("The Zephyr gateway listens on a port.", "port")
    web = WebSearchChain(TavilyWebSearch(api_key=KEY, api_base_url=server.url))
    evaluator = ScriptedEvaluator({"port": 0.7})
    return agent_with(crag([port], evaluator=evaluator, web_search=web, settings=CRAGSettings(**settings)))


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_c099_a_turn_goes_on_without_the_web_when_that_hangs(how: str) -> None:
    with WebServer(silent()) as server:
        agent, model = agent_on(server, web_timeout_s=0.5)

        receipt = ask_agent(agent, QUESTION, how)["crag"]

        assert receipt["degraded"] == [{"step": "search_web", "reason": "timeout"}]
        assert receipt["timings_ms"]["searching the web"] < 2500
        assert "[1] knowledge" in model.requests[0][-1].text


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize(("code", "reason"), [(401, "unauthorized"), (432, "quota"), (433, "quota")])
def test_c100_a_receipt_says_that_the_web_is_missing_and_why(how: str, caplog: pytest.LogCaptureFixture, code: int, reason: str) -> None:
    with WebServer(status(code)) as server:
        agent, _ = agent_on(server)

        with caplog.at_level(logging.WARNING, "crag_middleware"):
            receipts = [ask_agent(agent, QUESTION, how)["crag"] for _ in range(3)]

        assert [r["degraded"] for r in receipts] == [[{"step": "search_web", "reason": why}] for why in (reason, *["breaker_open"] * 2)]
        assert len(server.requests) == 1
        told_ = [r.message for r in caplog.records if "left alone" in r.message]
        assert told_ == [f"the web search TavilyWebSearch is left alone for a while: {reason}"]
        assert KEY not in caplog.text
