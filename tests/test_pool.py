"""Threads for blocking ports: few, counted, left behind where a call never returns, and gone when there is nothing to do."""

import contextvars
import threading
import time

import pytest

from crag_middleware import pool as pools
from crag_middleware.pool import Pool, Pools


def until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    assert holds()


def test_no_more_calls_run_at_once_than_there_are_threads():
    pool, lock, running, most = Pool("few", size=3), threading.Lock(), [], []

    def body():
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.01)
        with lock:
            running.pop()

    for future in [pool.submit(body) for _ in range(20)]:
        future.result(20)
    assert max(most) <= 3


def test_a_call_runs_with_the_callers_context_variables():
    who = contextvars.ContextVar("who")
    who.set("caller")
    assert Pool("context").submit(lambda: who.get()).result(20) == "caller"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_reaches_whoever_waits_and_the_thread_goes_on(error):
    def fails():
        raise error

    pool = Pool("errors", size=1)
    with pytest.raises(type(error)):
        pool.submit(fails).result(20)
    assert pool.submit(lambda: 7).result(20) == 7


def test_a_call_left_behind_is_counted_until_it_returns():
    gate, begun = threading.Event(), threading.Event()

    def hangs():
        begun.set()
        gate.wait(20)

    everybody = Pools(size=1)
    pool = everybody.of("retriever")
    future = pool.submit(hangs)
    begun.wait(20)
    waiting = pool.submit(lambda: 1)

    assert pool.leave(waiting) is False  # never begun: forgotten
    assert pool.leave(future) is True
    assert everybody.left_behind == {"retriever": 1}
    gate.set()
    until(lambda: not everybody.left_behind)


def test_one_ports_hanging_calls_take_no_thread_from_the_others():
    gate, everybody = threading.Event(), Pools(size=1)
    everybody.of("evaluator").submit(lambda: gate.wait(20))
    assert everybody.of("retriever").submit(lambda: "found").result(20) == "found"
    gate.set()


def test_one_tenants_hanging_calls_leave_half_of_the_threads_to_the_others():
    gate, pool = threading.Event(), Pool("shared", size=4)
    hanging = [pool.submit(lambda: gate.wait(20), "a") for _ in range(5)]
    assert pool.submit(lambda: "found", "b").result(20) == "found"
    assert sum(future.running() for future in hanging) == 2
    gate.set()
    assert all(future.result(20) for future in hanging)


def test_threads_without_work_end(monkeypatch):
    monkeypatch.setattr(pools, "IDLE_S", 0.01)
    pool = Pool("short-lived", size=4)
    for future in [pool.submit(lambda: None) for _ in range(8)]:
        future.result(20)
    until(lambda: not [t for t in threading.enumerate() if t.name == "short-lived"])
    assert pool.submit(lambda: 3).result(20) == 3
