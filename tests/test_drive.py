import asyncio
import concurrent.futures
import contextvars
import threading
import time

import pytest
from langgraph.errors import GraphInterrupt

from crag_middleware.breaker import Breaker
from crag_middleware.drive import arun, run
from crag_middleware.errors import ConfigError, GradingError, RetrievalError, TenantError, WebSearchError
from crag_middleware.ports import Bound, bind
from crag_middleware.steps import Stage, Timings, Together, ask, grade, retrieve, search_web
from crag_middleware.tenancy import Scope
from crag_middleware.types import Grade, Passage
from crag_middleware.world import World

SCOPE = Scope("tenant-a")
MARKER = contextvars.ContextVar("marker", default="unset")


def world(report=lambda stage: None, **ports):
    methods = {"retriever": "retrieve", "evaluator": "grade", "web_search": "search"}
    return World({name: bind(port, methods[name]) for name, port in ports.items()}, report)


def drive(plan, world_, how):
    return run(plan, world_) if how == "sync" else asyncio.run(arun(plan, world_))


both = pytest.mark.parametrize("how", ["sync", "async"])


class Retrieving:
    """A port with one sync method made of a function."""

    def __init__(self, work):
        self.work = work

    def retrieve(self, question):
        return self.work(question)


class Searching:
    def __init__(self, work):
        self.work = work

    def search(self, query):
        return self.work(query)


def looking(timeout_s=5.0):
    return (yield from ask(retrieve("q", SCOPE, limit=2, timeout_s=timeout_s)))


@both
def test_a_port_gets_only_the_keywords_it_accepts(how):
    seen = {}

    class Narrow:
        def retrieve(self, question, *, limit):
            seen.update(question=question, limit=limit)
            return []

    class Wide:
        def retrieve(self, question, **keywords):
            seen.update(keywords)
            return []

    drive(looking(), world(retriever=Narrow()), how)
    assert seen == {"question": "q", "limit": 2}
    drive(looking(), world(retriever=Wide()), how)
    assert seen == {"question": "q", "limit": 2, "agent_id": "tenant-a", "timeout_s": 5.0}


@both
def test_passages_arrive_unique_and_bounded(how):
    found = [Passage(id=i, text=i) for i in "abacd"]

    assert [p.id for p in drive(looking(), world(retriever=Retrieving(lambda q: found)), how)] == ["a", "b"]


@both
@pytest.mark.parametrize("reply", [None, "text", [1], {"a": 1}, [Passage(id="1", text="x"), "y"]])
def test_a_wrong_reply_is_the_steps_own_error(how, reply):
    with pytest.raises(RetrievalError) as caught:
        drive(looking(), world(retriever=Retrieving(lambda q: reply)), how)

    assert caught.value.reason == "invalid_reply"


@both
def test_a_foreign_error_becomes_the_steps_own_without_its_text(how):
    def fail(question):
        raise ValueError("row text of a tenant")

    with pytest.raises(RetrievalError) as caught:
        drive(looking(), world(retriever=Retrieving(fail)), how)

    assert caught.value.reason == "ValueError"
    assert "row text" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


@both
def test_another_of_our_errors_keeps_its_reason(how):
    def fail(question):
        raise WebSearchError("x", reason="quota")

    with pytest.raises(RetrievalError) as caught:
        drive(looking(), world(retriever=Retrieving(fail)), how)

    assert caught.value.reason == "quota"


@both
@pytest.mark.parametrize(
    "wrong",
    [
        {"text": None},
        {"text": b"x"},
        {"id": 5},
        {"metadata": None},
        {"created_at": "today"},
        {"score": "0.5"},
        {"confidence": "high"},
        {"source": object()},
    ],
)
def test_a_malformed_passage_is_the_steps_own_error(how, wrong):
    passage = Passage(**{"id": "1", "text": "x", **wrong})

    with pytest.raises(RetrievalError, match="a passage must have str id") as caught:
        drive(looking(), world(retriever=Retrieving(lambda q: [passage])), how)

    assert caught.value.reason == "invalid_reply"


@both
@pytest.mark.parametrize("error", [StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError])
def test_an_error_that_means_something_to_a_loop_is_a_failure_of_the_port_and_not_of_the_loop(how, error):
    def fail(question):
        raise error

    begun = time.monotonic()

    with pytest.raises(RetrievalError):
        drive(looking(timeout_s=30), world(retriever=Retrieving(fail)), how)

    assert time.monotonic() - begun < 10


def test_a_coroutine_that_cancels_itself_is_a_failure_of_the_port():
    class Cancelling:
        async def aretrieve(self, question):
            raise asyncio.CancelledError

    with pytest.raises(RetrievalError) as caught:
        drive(looking(), world(retriever=Cancelling()), "async")

    assert caught.value.reason == "CancelledError"


@both
@pytest.mark.parametrize("error", [TenantError("x"), GraphInterrupt()])
def test_tenant_errors_and_the_frameworks_control_flow_pass_through(how, error):
    def fail(question):
        raise error

    with pytest.raises(type(error)) as caught:
        drive(looking(), world(retriever=Retrieving(fail)), how)

    assert caught.value is error


@both
def test_a_late_port_is_left_behind(how):
    release = threading.Event()
    begun = time.monotonic()

    with pytest.raises(RetrievalError) as caught:
        drive(looking(timeout_s=0.05), world(retriever=Retrieving(lambda q: release.wait(20))), how)

    release.set()
    assert caught.value.reason == "timeout"
    assert time.monotonic() - begun < 10


@both
def test_a_thread_sees_the_callers_context(how):
    """C028"""
    MARKER.set("mine")

    found = drive(looking(), world(retriever=Retrieving(lambda q: [Passage(id=MARKER.get(), text="x")])), how)

    assert found[0].id == "mine"


@both
@pytest.mark.parametrize("instant", [False, True])
def test_only_an_instant_port_is_called_in_place(how, instant):
    seen = []
    port = Retrieving(lambda q: seen.append(threading.current_thread()) or [])
    port.instant = instant

    drive(looking(), world(retriever=port), how)

    assert (seen == [threading.main_thread()]) is instant


def test_a_port_without_sync_form_says_so():
    class OnlyAsync:
        async def retrieve(self, question):
            return []

    assert asyncio.run(arun(looking(), world(retriever=OnlyAsync()))) == ()
    with pytest.raises(ConfigError, match=r"OnlyAsync\.retrieve.*ainvoke"):
        run(looking(), world(retriever=OnlyAsync()))


def test_the_async_form_is_preferred_and_the_sync_form_is_not_called():
    class Both:
        def retrieve(self, question):
            raise AssertionError

        async def aretrieve(self, question):
            return [Passage(id="a", text="x")]

    assert asyncio.run(arun(looking(), world(retriever=Both())))[0].id == "a"


def test_an_object_that_is_no_port_is_refused():
    with pytest.raises(ConfigError, match="`retrieve` or `aretrieve`, got an object of type int"):
        bind(3, "retrieve")


def together():
    return (
        yield Together(
            (
                retrieve("q", SCOPE, limit=2, timeout_s=5),
                search_web("q", SCOPE, limit=2, timeout_s=5, options={}),
            )
        )
    )


@both
def test_calls_asked_for_together_run_at_the_same_time(how):
    meeting = threading.Barrier(2, timeout=5)

    def meet(question):
        meeting.wait()
        return []

    assert drive(together(), world(retriever=Retrieving(meet), web_search=Searching(meet)), how) == ((), ())


@both
def test_one_of_several_calls_may_fail(how):
    def fail(query):
        raise OSError

    found, error = drive(together(), world(retriever=Retrieving(lambda q: []), web_search=Searching(fail)), how)

    assert found == ()
    assert isinstance(error, WebSearchError)
    assert error.reason == "OSError"


@both
def test_a_tenant_error_in_one_of_several_calls_ends_the_turn(how):
    def leak(query):
        raise TenantError("x")

    with pytest.raises(TenantError):
        drive(together(), world(retriever=Retrieving(leak), web_search=Searching(lambda q: [])), how)


async def test_cancelling_cancels_every_call_under_way():
    cancelled = []
    started = asyncio.Event()

    class Waiting:
        def __init__(self, name):
            self.name = name

        async def aretrieve(self, question):
            return await self.wait()

        async def asearch(self, query):
            return await self.wait()

        async def wait(self):
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(self.name)
                raise

    task = asyncio.create_task(arun(together(), world(retriever=Waiting("r"), web_search=Waiting("w"))))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cancelled) == ["r", "w"]


@both
def test_stages_are_told_and_timed(how):
    told = []

    def plan():
        yield Stage("retrieving")
        yield from looking()
        yield Stage("grading")
        return (yield Timings())

    spent = drive(plan(), world(told.append, retriever=Retrieving(lambda q: [])), how)

    assert told == ["retrieving", "grading"]
    assert list(spent) == ["reading", "retrieving", "grading"]
    assert all(ms >= 0 for ms in spent.values())


@both
def test_an_error_reaches_the_plans_except_and_the_plan_goes_on(how):
    def plan():
        try:
            yield from looking()
        except RetrievalError as error:
            return error.reason

    assert drive(plan(), world(retriever=Retrieving(lambda q: 1)), how) == "invalid_reply"


@both
def test_grades_come_in_the_order_of_the_passages_and_odd_ones_are_ungraded(how):
    passages = tuple(Passage(id=i, text=i) for i in "abcd")

    class Odd:
        def grade(self, question, passages):
            return [
                Grade(passage_id="c", probability=0.7, label="ambiguous"),
                Grade(passage_id="zzz", probability=0.9, label="ambiguous"),
                Grade(passage_id="b", probability=1.7, label="relevant"),
                Grade(passage_id="d", probability=float("nan"), label="relevant"),
            ]

    def plan():
        return (yield from ask(grade("q", passages, SCOPE, timeout_s=5)))

    grades = drive(plan(), world(evaluator=Odd()), how)

    assert [(g.passage_id, g.probability, g.label) for g in grades] == [
        ("a", None, "ungraded"),
        ("b", None, "ungraded"),
        ("c", 0.7, "ambiguous"),
        ("d", None, "ungraded"),
    ]


def test_two_event_loops_in_a_row_and_a_thread_with_its_own():
    found = []

    def work():
        found.append(asyncio.run(arun(looking(), world(retriever=Retrieving(lambda q: [])))))

    work()
    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert found == [(), (), ()]


def test_the_scope_never_shows_its_tenant():
    assert "tenant-a" not in repr(SCOPE)
    assert "tenant-a" not in str(GradingError("x"))


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_a_turn_that_ends_in_mid_flight_gives_back_the_leave_to_try_a_port_again(how):
    """The trial of a circuit that cools down must not stay taken because another port ended the turn."""
    now, gate = [0.0], threading.Event()

    def leaks(*arguments, **keywords):
        raise TenantError("foreign", reason="foreign_row")

    def hangs(*arguments, **keywords):
        gate.wait(20)
        return []

    breaker = Breaker(lambda: now[0])
    for _ in range(3):
        breaker.settle(breaker.admit(("t", "route:slow")), "timeout")
    now[0] = 31.0
    ports = {"retriever": Bound("r", leaks, None, instant=False), "route:slow": Bound("s", hangs, None, instant=False)}
    world = World(ports, lambda stage: None, tenant="t", breaker=breaker)

    def plan():
        yield Together(tuple(retrieve("q", Scope("t"), limit=1, timeout_s=20, port=port) for port in ports))

    with pytest.raises(TenantError):
        run(plan(), world) if how == "invoke" else asyncio.run(arun(plan(), world))
    gate.set()
    assert breaker.admit(("t", "route:slow")) is not None
