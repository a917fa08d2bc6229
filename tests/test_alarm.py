"""The collapse alarm: its laws, and what a caller, an operator and a log see of it through whole agents."""

import asyncio
import json
import logging
import threading
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from crag_middleware import alarm as alarms
from crag_middleware.alarm import CALM_SHARE, MAX_KNOWN, MAX_TENANTS, MIN_GRADED, SHARE, WINDOW, Alarm
from crag_middleware.errors import GradingError, TenantError
from crag_middleware.findings import Evidence
from crag_middleware.receipt import explain
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever
from crag_middleware.types import Grade, Graded, Passage, Question
from tests.support.agents import agent_with, ask, both, crag, passage

MIXED = ["relevant", "incorrect", "ambiguous"]
WIDE, NARROW = [0.05, 0.95], [0.65, 0.75]


def seen(verdict, *probabilities, origin="knowledge"):
    """What a turn with that verdict and those grades found out; unless they are given they never change."""
    given = probabilities or (0.1, 0.9)
    graded = (
        Graded(
            passage=Passage(id=str(i), text="private", origin=origin),
            grade=Grade(passage_id=str(i), probability=p, label="ungraded" if p is None else "ambiguous"),
        )
        for i, p in enumerate(given)
    )
    return Evidence(question=Question(text="private"), status="grounded", verdict=verdict, graded=tuple(graded))


def feed(alarm, turns, tenant="t"):
    """The place and the kind of every change."""
    return [(i, c.alarm, c.began) for i, turn in enumerate(turns) for c in alarm.count(tenant, turn)[1]]


# --- Laws


@pytest.mark.parametrize("verdict", MIXED)
def test_one_verdict_on_more_than_four_fifths_of_the_window_begins_the_alarm_once(verdict):
    alarm, others = Alarm(), [v for v in MIXED if v != verdict]
    exactly = [seen(verdict) if i % 5 else seen(others[i // 5 % 2]) for i in range(WINDOW)]

    assert feed(alarm, exactly) == []
    assert alarm.health("t").shares[verdict] == SHARE
    assert feed(alarm, [seen(verdict)] * 300) == [(0, "verdict_share", True)]
    assert alarm.health("t").alarms == ("verdict_share",)


def test_a_small_window_says_nothing_until_the_missing_turns_can_not_change_it():
    alarm = Alarm()

    assert feed(alarm, [seen("incorrect")] * 160) == []
    assert feed(alarm, [seen("incorrect")]) == [(0, "verdict_share", True)]


def test_the_alarm_ends_well_below_where_it_began_and_may_begin_again():
    alarm = Alarm()
    feed(alarm, [seen("incorrect")] * WINDOW)

    changes = feed(alarm, [seen(v) for v in ("relevant", "incorrect")] * 60)

    (ended,) = changes
    assert ended[1:] == ("verdict_share", False)
    assert alarm.health("t").shares["incorrect"] <= CALM_SHARE
    assert feed(alarm, [seen("incorrect")] * WINDOW)[-1][1:] == ("verdict_share", True)


def test_a_share_that_swings_around_the_limit_does_not_ring_each_time():
    alarm = Alarm()
    swinging = [seen("incorrect")] * 165 + ([seen("relevant")] * 5 + [seen("incorrect")] * 20) * 40

    assert len(feed(alarm, swinging)) == 1


def test_when_another_verdict_takes_over_the_first_alarm_ends_and_a_new_one_begins():
    alarm = Alarm()
    feed(alarm, [seen("incorrect")] * WINDOW)

    changes = feed(alarm, [seen("relevant")] * WINDOW)

    assert [c[1:] for c in changes] == [("verdict_share", False), ("verdict_share", True)]
    assert alarm.health("t").numbers("verdict_share") == {"turns": WINDOW, "verdict": "relevant", "share": 1.0}


def spread_of(pair, turns=WINDOW):
    """Turns of mixed verdicts whose grades are these."""
    return [seen(MIXED[i % 3], *pair) for i in range(turns)]


def test_a_spread_that_shrinks_to_half_rings_once_and_ends_when_it_is_wide_again():
    alarm = Alarm()

    assert feed(alarm, spread_of(WIDE, 3 * WINDOW)) == []
    (began,) = feed(alarm, spread_of(NARROW, 5 * WINDOW))
    assert began[1:] == ("grade_spread", True)
    assert began[0] < WINDOW
    assert alarm.health("t").numbers("grade_spread") == {"turns": WINDOW, "spread": 0.05, "spread_before": 0.45}
    (ended,) = feed(alarm, spread_of(WIDE, 3 * WINDOW))
    assert ended[1:] == ("grade_spread", False)


@pytest.mark.parametrize("pair", [(0.3, 0.3), (0.7, 0.7), (0.0, 0.0), (1.0, 1.0)])
def test_an_evaluator_that_says_one_number_for_everything_rings_at_last_after_a_window(pair):
    alarm = Alarm()
    feed(alarm, spread_of(WIDE, 2 * WINDOW))

    assert [c[1] for c in feed(alarm, spread_of(pair))] == ["grade_spread"]


@pytest.mark.parametrize("pair", [NARROW, (0.5, 0.5)])
def test_a_spread_that_was_always_small_is_no_change(pair):
    assert feed(Alarm(), spread_of(pair, 4 * WINDOW)) == []


def test_spreads_are_not_compared_before_enough_turns_lie_on_both_sides():
    alarm = Alarm()

    assert feed(alarm, [*spread_of(WIDE, MIN_GRADED - 1), *spread_of(NARROW)]) == []


def test_turns_without_grades_say_nothing_about_the_spread():
    alarm = Alarm()
    nothing = Evidence(question=Question(text="q"), status="no_evidence", verdict="incorrect")
    feed(alarm, spread_of(WIDE, 2 * WINDOW))

    changes = feed(alarm, [nothing] * WINDOW)

    assert {c[1] for c in changes} == {"verdict_share"}
    assert alarm.health("t").spread is None


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(question=Question(text="", skip="greeting"), status="skipped"),
        Evidence(question=Question(text="q"), status="retrieval_failed"),
        seen("ambiguous", None, None),
    ],
)
def test_skipped_turns_failed_searches_and_failed_gradings_are_no_verdicts(evidence):
    alarm = Alarm()

    assert feed(alarm, [evidence] * 3 * WINDOW) == []
    assert alarm.health("t").turns == 0


def test_a_partly_graded_turn_counts_with_the_grades_it_has_and_web_pages_do_not():
    alarm = Alarm()

    alarm.count("t", seen("relevant", 0.95, None, 0.25))
    alarm.count("t", seen("incorrect", 0.5, origin="web"))

    assert alarm.health("t").turns == 2
    assert alarm.health("t").spread == pytest.approx(0.35)


@given(st.lists(st.tuples(st.sampled_from(MIXED), st.lists(st.floats(0, 1), max_size=4)), max_size=80))
def test_health_is_that_of_the_last_turns_however_many_there_were(turns):
    with pytest.MonkeyPatch.context() as small:
        small.setattr(alarms, "WINDOW", 20)
        alarm = Alarm()
        for verdict, probabilities in turns:
            evidence = (
                seen(verdict, *probabilities)
                if probabilities
                else Evidence(question=Question(text="q"), status="no_evidence", verdict=verdict)
            )
            alarm.count("t", evidence)
        latest, earlier = turns[-20:], turns[-40:-20]

        health = alarm.health("t")

    assert health.turns == len(latest)
    assert sum(health.shares.values()) == pytest.approx(float(bool(latest)), abs=1e-3)
    for verdict in MIXED:
        assert health.shares[verdict] == pytest.approx(sum(v == verdict for v, _ in latest) / max(1, len(latest)), abs=1e-4)
    numbers = [p for _, ps in latest for p in ps]
    assert (health.spread is None) == (not numbers)
    assert health.spread is None or health.spread == pytest.approx(pstdev(numbers), abs=2e-4)
    before = [p for _, ps in earlier for p in ps]
    assert (
        health.spread_before is None or "grade_spread" in health.alarms or health.spread_before == pytest.approx(pstdev(before), abs=2e-4)
    )
    json.dumps(health.told(), allow_nan=False)


@given(st.lists(st.tuples(st.sampled_from(MIXED), st.sampled_from([WIDE, NARROW]), st.integers(1, 25)), max_size=12))
def test_alarms_begin_and_end_in_turn_and_the_last_change_is_what_health_says(phases):
    with pytest.MonkeyPatch.context() as small:
        small.setattr(alarms, "WINDOW", 10)
        small.setattr(alarms, "MIN_GRADED", 5)
        alarm = Alarm()

        changes = feed(alarm, [seen(verdict, *pair) for verdict, pair, turns in phases for _ in range(turns)])

    for kind in ("verdict_share", "grade_spread"):
        began = [b for _, k, b in changes if k == kind]
        assert began == [i % 2 == 0 for i in range(len(began))]
        assert (kind in alarm.health("t").alarms) == (bool(began) and began[-1])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(MIXED)), max_size=60))
def test_a_tenants_numbers_are_those_it_would_have_alone(turns):
    together = Alarm()
    for tenant, verdict in turns:
        together.count(tenant, seen(verdict))

    for tenant in "abc":
        alone = Alarm()
        feed(alone, [seen(v) for t, v in turns if t == tenant])
        assert together.health(tenant) == alone.health("t")


def test_a_turn_that_runs_again_is_counted_once():
    alarm = Alarm()

    for turn in ("1", "1", "2", "1", "", ""):
        alarm.count("t", seen("incorrect"), turn=turn)

    assert alarm.health("t").turns == 4


def test_memory_is_bounded_and_the_tenant_longest_without_a_turn_is_forgotten():
    alarm = Alarm()
    alarm.count("first", seen("relevant"))
    alarm.count("second", seen("relevant"))
    for number in range(MAX_TENANTS - 2):
        alarm.count(str(number), seen("relevant"), turn=str(number))
    alarm.count("first", seen("relevant"))

    alarm.count("one more", seen("relevant"))
    for number in range(MAX_KNOWN + 10):
        alarm.count("one more", seen("relevant"), turn=f"turn {number}")

    assert alarm.health("first").turns == 2
    assert alarm.health("second").turns == 0
    assert len(alarm._tenants) == MAX_TENANTS
    assert len(alarm._known) == MAX_KNOWN
    kept = alarm._tenants["one more"]
    assert (len(kept.latest.turns), len(kept.earlier.turns)) == (WINDOW, WINDOW)


def test_threads_lose_no_turn_and_one_of_them_tells_of_an_alarm():
    alarm, changes = Alarm(), []

    def work(tenant):
        for _ in range(WINDOW):
            changes.extend((tenant, c.alarm, c.began) for c in alarm.count(tenant, seen("incorrect"))[1])

    threads = [threading.Thread(target=work, args=("ab"[n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(changes) == [("a", "verdict_share", True), ("b", "verdict_share", True)]
    assert [sum(alarm._tenants[t].latest.verdicts.values()) for t in "ab"] == [WINDOW, WINDOW]


# --- In an agent


@pytest.fixture
def small(monkeypatch):
    """Windows of ten turns, so that a test needs few."""
    monkeypatch.setattr(alarms, "WINDOW", 10)
    monkeypatch.setattr(alarms, "MIN_GRADED", 5)


def events_of(agent, how, question="Which port?", **more):
    """The alarm events of a turn, and its receipt."""
    given = {"messages": [("user", question)]}

    async def collect():
        return [pair async for pair in agent.astream(given, stream_mode=["custom", "values"], **more)]

    pairs = list(agent.stream(given, stream_mode=["custom", "values"], **more)) if how == "invoke" else asyncio.run(collect())
    told = [data for mode, data in pairs if mode == "custom" and data["stage"] == "alarm"]
    return told, pairs[-1][1]["crag"]


@both
def test_two_hundred_turns_of_one_verdict_are_told_in_the_stream_the_receipt_the_log_and_to_the_operator(how, caplog):
    caplog.set_level(logging.DEBUG, "crag_middleware")
    middleware = crag(
        [passage("MARKER-TEXT")], agent_id="MARKER-TENANT", tenant="MARKER-TENANT", evaluator=ScriptedEvaluator(otherwise=0.1)
    )
    agent, _ = agent_with(middleware)

    turns = [events_of(agent, how, "MARKER-QUESTION?") for _ in range(WINDOW)]

    (place,) = (i for i, (told, _) in enumerate(turns) if told)
    numbers = {"turns": 161, "verdict": "incorrect", "share": 1.0}
    assert place == 160
    assert turns[160][0] == [
        {"type": "crag", "name": "CRAGMiddleware", "stage": "alarm", "alarm": "verdict_share", "change": "began", **numbers}
    ]
    assert turns[159][1]["alarms"] == []
    assert turns[160][1]["alarms"] == [{"alarm": "verdict_share", **numbers}]
    assert turns[-1][1]["alarms"][0]["turns"] == WINDOW
    assert "alarm      `incorrect` is the verdict of 100% of the last 161 turns" in explain(turns[160][1])
    health = middleware.health("MARKER-TENANT")
    assert (health.turns, health.shares["incorrect"], health.alarms) == (WINDOW, 1.0, ("verdict_share",))
    warned = [r for r in caplog.records if "alarm" in r.getMessage()]
    assert [(r.levelname, r.getMessage()) for r in warned] == [
        ("WARNING", "crag alarm: verdict_share began for a tenant: turns 161, verdict incorrect, share 1.0")
    ]
    assert "MARKER" not in caplog.text + str([told for told, _ in turns])


@both
def test_a_spread_that_shrinks_and_widens_is_told_when_it_begins_and_when_it_ends(how, small, caplog):
    caplog.set_level(logging.INFO, "crag_middleware")
    evaluator = ScriptedEvaluator({"a": 0.1, "b": 0.7})
    agent, _ = agent_with(crag([passage("a"), passage("b")], evaluator=evaluator))

    def turns(count):
        return [told for _ in range(count) for told in events_of(agent, how)[0] if told["alarm"] == "grade_spread"]

    assert turns(20) == []
    evaluator.probabilities = {"a": 0.55, "b": 0.6}
    (began,) = turns(20)
    evaluator.probabilities = {"a": 0.1, "b": 0.7}
    (ended,) = turns(20)

    assert (began["change"], ended["change"]) == ("began", "ended")
    assert began["spread"] <= began["spread_before"] / 2
    assert [r.levelname for r in caplog.records if "grade_spread" in r.getMessage()] == ["WARNING", "INFO"]


async def test_tenants_at_the_same_time_have_their_own_numbers_and_events(small):
    probabilities = {"bad": 0.1, "good": 0.95}
    store = ScriptedRetriever({t: [passage(t)] for t in probabilities})
    middleware = crag(vector_store=store, agent_id=None, evaluator=ScriptedEvaluator(probabilities))
    agent = create_agent(ScriptedChatModel(replies=["ok"]), middleware=[middleware])
    told = {"bad": [], "good": []}

    async def one(tenant):
        async for event in agent.astream({"messages": [("user", "Which port?")]}, context={"agent_id": tenant}, stream_mode="custom"):
            if event["stage"] == "alarm":
                told[tenant].append(event["verdict"])

    await asyncio.gather(*(one(t) for t in ["bad", "good"] * 20))

    assert told == {"bad": ["incorrect"], "good": ["relevant"]}
    assert [middleware.health(t).shares["relevant"] for t in ("bad", "good", "nobody")] == [0, 1, 0]


def test_threads_and_event_loops_share_one_instance(small):
    middleware = crag([passage("a")])
    agent, _ = agent_with(middleware)
    found = []

    def work(how):
        for _ in range(5):
            found.extend(events_of(agent, how)[0])

    threads = [threading.Thread(target=work, args=(how,)) for how in ("invoke", "ainvoke") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [event["change"] for event in found] == ["began"]
    assert middleware.health("a").turns == 10


@both
@pytest.mark.parametrize("saved", [True, False])
def test_a_turn_that_is_resumed_is_counted_once(how, saved):
    evaluator = ScriptedEvaluator()
    middleware = crag([passage("a")], evaluator=evaluator, settings=CRAGSettings(save_evidence=saved))
    agent, _ = agent_with(middleware, checkpointer=InMemorySaver(), interrupt_before=["model"])
    thread = {"configurable": {"thread_id": "1"}}

    ask(agent, "Which port?", how, config=thread)
    ask(agent, None, how, config=thread)

    assert len(evaluator.asked) == (1 if saved else 2)
    assert middleware.health("a").turns == 1
    ask(agent, "Which port?", how, config=thread)
    ask(agent, "Which port?", how, config={"configurable": {"thread_id": "2"}})
    assert middleware.health("a").turns == 3


@both
def test_equal_messages_without_a_thread_are_turns_of_their_own(how):
    middleware = crag([passage("a")])
    agent, _ = agent_with(middleware)

    for _ in range(3):
        ask(agent, [HumanMessage("Which port?", id="1")], how)

    assert middleware.health("a").turns == 3


@both
def test_greetings_failed_searches_and_outages_of_the_evaluator_are_not_counted(how):
    failing = crag(vector_store=ScriptedRetriever({}, error=ConnectionError()))
    ungraded = crag([passage("a")], evaluator=ScriptedEvaluator(error=GradingError("down", reason="unavailable")))
    greeted = crag([passage("a")])

    for middleware, text in ((failing, "Which port?"), (ungraded, "Which port?"), (greeted, "你好！")):
        assert ask(agent_with(middleware)[0], text, how)["crag"]["alarms"] == []
        assert middleware.health("a").turns == 0


def test_health_is_asked_for_a_tenant_and_keeps_no_id():
    middleware = crag([passage("a")], agent_id="tenant-a", tenant="tenant-a")
    ask(agent_with(middleware)[0], "Which port?")

    assert "tenant-a" not in str(vars(middleware._parts.alarm))
    for wrong in (None, "", "  ", 3):
        with pytest.raises(TenantError):
            middleware.health(wrong)
