"""The benchmark of turns measures what it says, and the middleware asks its models as often as promised: `benchmarks/turns.py` with tiny times."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")
COSTS = (0.05, 0.02, 0.001)
"""Seconds of a model call, a web search and a search of the store; a model's are long enough for calls that run at the same time to be seen to."""


@pytest.fixture(scope="module")
def turns() -> Iterator[Any]:
    sys.path.insert(0, BENCHMARKS)
    import turns

    yield turns
    sys.path.remove(BENCHMARKS)


@pytest.fixture(scope="module")
def simulated(turns: Any) -> Any:
    import simulated

    return simulated


@pytest.fixture(scope="module")
def added(turns: Any, simulated: Any) -> Any:
    """One turn of each way, less the bare agent's."""
    return turns.extra(turns.measured(turns.WAYS, simulated.Costs(*COSTS), repeat=1, warm_up=0))


CALLS = {  # model calls in all, web searches, searches of the store
    "bare agent": (0, 0, 0),
    "relevant": (1, 0, 1),
    "ambiguous": (3, 1, 1),
    "ambiguous, speculative web": (2, 1, 1),
    "incorrect": (3, 1, 1),
    "incorrect, a rewrite round that finds nothing new": (4, 1, 2),
    "incorrect, a rewrite round that finds new passages": (5, 1, 2),
    "relevant, follow-up question": (2, 0, 1),
    "relevant, claims checked by a model": (2, 0, 1),
    "incorrect, claims checked by a model": (4, 1, 1),
    "retrieval before every model call": (0, 0, 3),
    "a grading call a passage, all relevant": (5, 0, 1),
    "a grading call a passage, one is not": (6, 1, 1),
}


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("name", CALLS)
def test_a_way_asks_as_often_as_the_table_says(added: Any, name: str, how: str) -> None:
    turn = added[how][name]

    assert (turn.model_calls, turn.web, turn.store) == CALLS[name]


def test_no_way_asks_more_often_in_sequence_than_promised(turns: Any, added: Any) -> None:
    """Of calls alone: times are for an idle machine."""
    assert [line for line in turns.broken(turns.WAYS, added) if "in sequence" in line] == []


def test_calls_that_overlap_count_once_in_sequence(simulated: Any) -> None:
    tally = simulated.Tally()
    tally.calls += [simulated.Asked("model", *span) for span in ((0.0, 1.0), (0.1, 1.1), (1.0, 2.0), (2.5, 3.0), (0.0, 9.0))]
    tally.calls.append(simulated.Asked("web", 2.1, 2.2))

    assert tally.in_sequence() == 3


def test_a_promise_that_is_broken_is_named(turns: Any) -> None:
    late = turns.Turn(0.0, 9.0, 5, 5, 0, 0, 0)

    said = turns.broken(turns.WAYS[1:2], {"sync": {"relevant": late}})

    assert said == ["relevant, sync: 5 model calls in sequence, promised 1", "relevant, sync: 9.00 s, promised 0.50 s"]


def test_a_model_sleeps_as_long_when_it_streams(simulated: Any) -> None:
    tally = simulated.Tally()
    for said in ("", "a few words that come in pieces"):
        model = simulated.SleepingModel(say=lambda messages, said=said: simulated.AIMessage(said), seconds=0.05, tally=tally)
        text = "".join(str(chunk.text) for chunk in model.stream("?"))
        assert text == said

    assert all(call.end - call.begin >= 0.05 for call in tally.calls)
    assert len(tally.calls) == 2


def test_own_cpu_time_is_above_that_of_the_bare_agent(turns: Any) -> None:
    added = turns.own_cpu_ms(["The exporter listens on port 9100."] * 3, "Which port?", top_k=5, rounds=10)

    assert all(ms > 0 for ms in added.values())
