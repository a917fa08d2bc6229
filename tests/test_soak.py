"""Many tenants at once on one middleware and one collection, with faults: a small version of `benchmarks/soak.py`, and proof that it sees what it looks for."""

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from tests.support.milvus import lite_server_uri

__all__ = ["lite_server_uri"]

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")


@pytest.fixture(scope="module")
def soak() -> Iterator[Any]:
    sys.path.insert(0, BENCHMARKS)
    import soak

    yield soak
    sys.path.remove(BENCHMARKS)


@pytest.fixture(scope="module")
def parts(soak: Any) -> Any:
    import soak_parts

    return soak_parts


def small(soak: Any, **more: Any) -> Any:
    given = {"turns": 200, "minutes": 0.5, "threads": 24, "loops": 3, "tasks": 8, "deadline_s": 1.0, "pause_s": 0.02, "slices": 2}
    return soak.Load(**{**given, **more})


def test_tenants_stay_apart_no_answer_is_lost_and_nothing_piles_up(soak: Any, lite_server_uri: str) -> None:
    """200 turns of 20 tenants, 48 at once, threads and loops mixed, 5 % of the calls failing; memory is for the long version."""
    report = soak.soak(lite_server_uri, small(soak), alone=4)

    assert report.failures == [], report.told
    assert report.turns == 200
    assert report.degraded, "no fault was met: the soak tests nothing"
    assert {status.split(",")[0] for status in report.statuses} >= {"grounded"}


def test_a_model_that_mixes_tenants_is_found(soak: Any, parts: Any, lite_server_uri: str) -> None:
    class Mixing(soak.Soak):
        def model(self, role: str, say: Any) -> Any:
            def mixed(messages: Any) -> AIMessage:
                return AIMessage(str(say(messages).text).replace("qz01azq", "qz01azq and qz02azq"))

            return super().model(role, mixed if role == "agent" else say)

    soaking = Mixing(lite_server_uri, small(soak, rate=0.0))

    soaking.turn(41)
    soaking.turn(22)

    assert set(soaking.findings.counts) == {"cross-tenant marker"}


def test_a_turn_that_raises_is_a_lost_answer(soak: Any, lite_server_uri: str) -> None:
    class Raising(soak.Soak):
        def model(self, role: str, say: Any) -> Any:
            def raising(messages: Any) -> AIMessage:
                raise ConnectionError

            return super().model(role, raising if role == "agent" else say)

    soaking = Raising(lite_server_uri, small(soak, rate=0.0))

    soaking.turn(7)

    assert soaking.findings.counts == {"lost answer": 1}


@pytest.mark.parametrize("line", ["question t000123", "id org-qz03tzq", "passage of qz03kzq"])
def test_private_text_in_a_log_line_is_found_whatever_the_logger(parts: Any, line: str) -> None:
    findings = parts.Findings()

    with findings.listening():
        logging.getLogger("pymilvus.somewhere").error("failed: %s", line)
        logging.getLogger("httpx").info("nothing")

    assert findings.counts == {"private text": 1}
    assert findings.logged == {"pymilvus.somewhere ERROR": 1, "httpx INFO": 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_of_an_error_is_found(parts: Any) -> None:
    findings = parts.Findings()

    with findings.listening():
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()

    assert findings.counts == {"dead thread": 1}


@pytest.mark.parametrize(
    ("text", "tenant", "found"),
    [
        ("qz01qzq and qz01kzq", 1, {}),
        ("qz01qzq and qz02kzq", None, {"cross-tenant marker": 1}),
        ("qz02kzq", 1, {"cross-tenant marker": 1}),
        ("nothing", 1, {}),
    ],
)
def test_a_text_with_words_of_two_tenants_is_found(parts: Any, text: str, tenant: int | None, found: dict[str, int]) -> None:
    findings = parts.Findings()

    findings.belongs("here", text, tenant)

    assert findings.counts == found


def test_a_passage_in_a_web_query_is_found(parts: Any) -> None:
    findings = parts.Findings()

    findings.belongs("call of the web", "qz01qzq torque qz01kzq", 1, kinds="q")

    assert findings.counts == {"private text": 1}


def test_overhead_is_the_time_in_which_nothing_was_at_work(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls that overlap, from 1 to 3 and from 2 to 4, and one that begins at 9 and is not over at 10, when the turn ends."""
    now = iter((1.0, 3.0, 2.0, 4.0, 9.0, 10.0, 11.0))
    monkeypatch.setattr(parts.time, "perf_counter", lambda: next(now))
    clock = parts.Clock(deadline_s=8.0)
    clock.begin(7)
    with clock.at_work("t000007"):
        pass
    with clock.at_work("t000007"):
        pass
    left_behind = clock.at_work("t000007")
    left_behind.__enter__()

    assert clock.overhead_s(7, 0.0) == pytest.approx(1.0 + 5.0)


@pytest.mark.parametrize(
    ("counts", "failures"),
    [
        (((2000, 100.0, 1000, 10, 10), (10_000, 104.0, 1049, 20, 20)), []),
        (((2000, 100.0, 1000, 10, 10), (10_000, 106.0, 1000, 10, 10)), ["memory grew by 6.0%"]),
        (((2000, 100.0, 1000, 10, 10), (10_000, 100.0, 1050, 10, 10)), ["memory blocks grew from 1000 to 1050"]),
        (((20, 100.0, 1000, 10, 10), (100, 200.0, 2000, 10, 10)), []),
        (((2000, 100.0, 1000, 10, 10), (10_000, 100.0, 1000, 21, 10)), ["descriptors grew from 10 to 21"]),
        (((2000, 100.0, 1000, 10, 10), (10_000, 100.0, 1000, 10, 21)), ["threads grew from 10 to 21"]),
    ],
)
def test_what_piles_up_is_a_failure(soak: Any, counts: Any, failures: list[str]) -> None:
    report = soak.Report(counted=[soak.Counted(*each) for each in counts])

    assert soak.grown(report) == failures


def test_faults_strike_the_same_calls_in_each_run_and_about_as_many_as_asked(parts: Any) -> None:
    faults = parts.Faults(0.05, 1.0)

    struck = [faults.of("web", f"query {n}") for n in range(10_000)]

    assert struck == [faults.of("web", f"query {n}") for n in range(10_000)]
    assert 400 < sum(fault is not None for fault in struck) < 600
    assert {fault for fault in struck if fault} == {"raises", "hangs", "garbage"}
