"""The cascade: a cheap evaluator for the clear cases, a costly one for the rest; alone and inside the middleware."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from crag_middleware.adapters.cascade import CLEAR, CascadeEvaluator
from crag_middleware.adapters.chat_model import ChatModelEvaluator
from crag_middleware.adapters.given import as_rewriter
from crag_middleware.calibration import Calibration, PlattMap
from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.ports import AsyncEvaluator, Evaluator
from crag_middleware.settings import CHAT_THRESHOLDS
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import EvaluatorKey, Grade, Passage, Thresholds
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.chat_server import serve_chat
from tests.support.models import ScriptedModel

QUESTION = "q"
PASSAGES = tuple(Passage(id=i, text=f"text {i}") for i in ("high", "low", "mid", "none"))
FIRST: dict[str, float | None] = {"high": 0.97, "low": 0.02, "mid": 0.5, "none": None}
SECOND: dict[str, float | None] = {"mid": 0.93, "none": 0.1}

Grader = Callable[..., Awaitable[Sequence[Grade]]]


@pytest.fixture(params=["sync", "async"])
def grade(request: pytest.FixtureRequest) -> Grader:
    """Grades with either form of the cascade."""

    async def call(evaluator: CascadeEvaluator, passages: Sequence[Passage] = PASSAGES, **keywords: Any) -> Sequence[Grade]:
        keywords = {"agent_id": "a", **keywords}
        if request.param == "async":
            return await evaluator.agrade(QUESTION, passages, **keywords)
        return await asyncio.to_thread(evaluator.grade, QUESTION, passages, **keywords)

    return call


def short(grades: Sequence[Grade]) -> list[tuple[str, str, float | None]]:
    return [(g.passage_id, g.label, g.probability) for g in grades]


def scripted(probabilities: Mapping[str, float | None] | None = None, **more: Any) -> ScriptedEvaluator:
    return ScriptedEvaluator(probabilities, **more)


class AsyncOnly:
    """An evaluator with an async form only."""

    def __init__(self, inner: ScriptedEvaluator) -> None:
        self.inner = inner

    async def agrade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        return self.inner.grade(question, passages)


class SyncOnly:
    """An evaluator with a sync form only, which asks for everything that is offered and keeps it."""

    def __init__(self, inner: ScriptedEvaluator) -> None:
        self.inner, self.offered, self.thread = inner, (), ""

    def grade(self, question: str, passages: Sequence[Passage], *, agent_id: str, timeout_s: float) -> Sequence[Grade]:
        self.offered, self.thread = (agent_id, timeout_s), threading.current_thread().name
        return self.inner.grade(question, passages)


class Calibrated(ScriptedEvaluator):
    """An evaluator with a calibration of its own."""

    key = EvaluatorKey("Calibrated", "m", "v1")

    def __init__(self, probabilities: Mapping[str, float | None], *, offset: float = 0.0, cuts: tuple[float, float] = (0.4, 0.6)) -> None:
        super().__init__(probabilities)
        self.calibration = Calibration(
            evaluator="Calibrated",
            model="m",
            prompt="v1",
            map=PlattMap(slope=1.0, offset=offset),
            thresholds=cuts,
            fitted_on="nothing",
            pairs=0,
            questions=0,
        )


# --- Who is asked


async def test_the_second_sees_only_what_is_not_clear_to_the_first_and_all_of_it_at_once(grade: Grader) -> None:
    first, second = scripted(FIRST), scripted(SECOND)

    grades = await grade(CascadeEvaluator(first, second))

    assert short(grades) == [
        ("high", "relevant", 0.97),
        ("low", "incorrect", 0.02),
        ("mid", "relevant", 0.93),
        ("none", "incorrect", 0.1),
    ]
    assert first.asked == [(QUESTION, ("high", "low", "mid", "none"))]
    assert second.asked == [(QUESTION, ("mid", "none"))]


async def test_when_all_is_clear_the_second_is_not_asked(grade: Grader) -> None:
    second = scripted()

    await grade(CascadeEvaluator(scripted(FIRST), second), PASSAGES[:2])

    assert second.asked == []


async def test_no_passages_need_neither(grade: Grader) -> None:
    first, second = scripted(), scripted()

    assert await grade(CascadeEvaluator(first, second), ()) == ()
    assert first.asked == second.asked == []


async def test_what_is_clear_can_be_said(grade: Grader) -> None:
    second = scripted(SECOND)

    await grade(CascadeEvaluator(scripted(FIRST), second, clear=(0.01, 0.98)))

    assert second.asked == [(QUESTION, ("high", "low", "mid", "none"))]


async def test_on_the_edge_is_not_clear(grade: Grader) -> None:
    second = scripted()

    await grade(CascadeEvaluator(scripted({"high": CLEAR[1], "low": CLEAR[0]}), second), PASSAGES[:2])

    assert second.asked == [(QUESTION, ("high", "low"))]


async def test_nothing_is_clear_that_the_thresholds_call_ambiguous(grade: Grader) -> None:
    second = scripted(SECOND)
    second.thresholds = Thresholds(0.01, 0.98)

    await grade(CascadeEvaluator(scripted(FIRST), second))

    assert second.asked == [(QUESTION, ("high", "low", "mid", "none"))]


async def test_the_chat_model_is_called_once_for_all_that_is_unclear(grade: Grader) -> None:
    reply = json.dumps({"grades": [{"passage": n, "label": "relevant", "confidence": 0.95} for n in (1, 2)]})
    with serve_chat(replies=[reply]) as server:
        grades = await grade(CascadeEvaluator(scripted(FIRST), server.model()))

    assert [g.label for g in grades] == ["relevant", "incorrect", "relevant", "relevant"]
    assert len(server.requests) == 1
    assert "text mid" in str(server.requests[0])
    assert "text high" not in str(server.requests[0])


# --- One scale


async def test_each_ones_numbers_go_through_its_own_calibration(grade: Grader) -> None:
    first, second = Calibrated({"high": 0.5, "low": 0.5, "mid": 0.5, "none": 0.5}, offset=4.0), scripted()
    assert [g.probability for g in await grade(CascadeEvaluator(first, second))] == pytest.approx([0.982] * 4, abs=0.001)
    assert second.asked == []

    third = Calibrated({"mid": 0.5, "none": 0.9}, offset=-4.0)
    grades = await grade(CascadeEvaluator(scripted(FIRST), third))

    assert [round(g.probability or 0, 3) for g in grades] == [0.97, 0.02, 0.018, 0.142]
    assert [g.label for g in grades] == ["relevant", "incorrect", "incorrect", "incorrect"]
    assert {g.raw for g in grades} == {None}


def test_the_thresholds_are_those_of_the_second() -> None:
    assert CascadeEvaluator(scripted(), scripted()).thresholds == CHAT_THRESHOLDS
    assert CascadeEvaluator(scripted(), Calibrated({}, cuts=(0.3, 0.7))).thresholds == Thresholds(0.3, 0.7)


def test_its_key_names_both_and_what_is_clear() -> None:
    one = CascadeEvaluator(Calibrated({}), ChatModelEvaluator(ScriptedModel(script=["{}"])))
    other = CascadeEvaluator(Calibrated({}), ChatModelEvaluator(ScriptedModel(script=["{}"])), clear=(0.05, 0.99))

    assert one.key.evaluator == "CascadeEvaluator"
    assert one.key.model == "Calibrated m > ChatModelEvaluator"
    assert "v1 > " in one.key.prompt
    assert one.key != other.key


# --- Forms and deadlines


async def test_a_sync_only_evaluator_serves_both_forms_off_the_event_loop_and_gets_what_is_offered(grade: Grader) -> None:
    first, second = SyncOnly(scripted(FIRST)), SyncOnly(scripted(SECOND))

    grades = await grade(CascadeEvaluator(first, second), timeout_s=10)

    assert short(grades)[2:] == [("mid", "relevant", 0.93), ("none", "incorrect", 0.1)]
    assert first.thread == second.thread == "crag-evaluator"
    assert first.offered == ("a", 5.0)
    assert second.offered[0] == "a"
    assert 9 < second.offered[1] < 10


def test_an_async_only_evaluator_serves_the_async_form_and_the_sync_one_says_so() -> None:
    evaluator = CascadeEvaluator(scripted(FIRST), AsyncOnly(scripted(SECOND)))

    assert len(asyncio.run(evaluator.agrade(QUESTION, PASSAGES, agent_id="a"))) == 4
    with pytest.raises(ConfigError, match=r"`AsyncOnly\.grade` has only an async form"):
        evaluator.grade(QUESTION, PASSAGES, agent_id="a")


# --- Failures


async def test_without_the_first_the_second_grades_all_c051(grade: Grader, caplog: pytest.LogCaptureFixture) -> None:
    second = scripted(SECOND)

    grades = await grade(CascadeEvaluator(scripted(error=RuntimeError("text mid")), second))

    assert second.asked == [(QUESTION, ("high", "low", "mid", "none"))]
    assert [g.label for g in grades] == ["relevant", "relevant", "relevant", "incorrect"]
    assert [r.getMessage() for r in caplog.records] == ["the first evaluator failed (RuntimeError): the second grades all 4 passages"]


async def test_without_the_second_the_clear_ones_stand_and_the_others_are_ungraded_c051(
    grade: Grader, caplog: pytest.LogCaptureFixture
) -> None:
    second = scripted(error=GradingError("text mid", reason="rate_limited"))

    grades = await grade(CascadeEvaluator(scripted(FIRST), second))

    assert short(grades) == [
        ("high", "relevant", 0.97),
        ("low", "incorrect", 0.02),
        ("mid", "ungraded", None),
        ("none", "ungraded", None),
    ]
    assert grades[2].reason == "not clear to the first evaluator: 0.50"
    assert [r.getMessage() for r in caplog.records] == ["the second evaluator failed (rate_limited): 2 of 4 passages stay ungraded"]


async def test_when_nothing_could_be_graded_the_seconds_error_is_raised_c051(grade: Grader) -> None:
    with pytest.raises(GradingError) as caught:
        await grade(CascadeEvaluator(scripted(FIRST), scripted(error=GradingError("no", reason="quota"))), PASSAGES[2:])

    assert caught.value.reason == "quota"


async def test_a_second_that_leaves_passages_out_leaves_them_ungraded(grade: Grader) -> None:
    class Lazy:
        def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            return []

    grades = await grade(CascadeEvaluator(scripted(FIRST), Lazy()))

    assert [g.label for g in grades] == ["relevant", "incorrect", "ungraded", "ungraded"]


async def test_a_first_that_hangs_leaves_time_for_the_second(grade: Grader) -> None:
    free = threading.Event()

    class Hangs:
        def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            free.wait(5)
            return []

    try:
        grades = await grade(CascadeEvaluator(Hangs(), scripted(SECOND)), timeout_s=0.3)
    finally:
        free.set()

    assert [g.label for g in grades] == ["relevant", "relevant", "relevant", "incorrect"]


async def test_a_second_that_hangs_leaves_the_clear_ones(grade: Grader) -> None:
    free = threading.Event()

    class Hangs:
        def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            free.wait(5)
            return []

    try:
        grades = await grade(CascadeEvaluator(scripted(FIRST), Hangs()), timeout_s=0.3)
    finally:
        free.set()

    assert [g.label for g in grades] == ["relevant", "incorrect", "ungraded", "ungraded"]


async def test_cancellation_passes_through() -> None:
    begun = asyncio.Event()

    class Waits:
        async def agrade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            begun.set()
            await asyncio.Event().wait()
            return []

    task = asyncio.create_task(CascadeEvaluator(scripted(FIRST), Waits()).agrade(QUESTION, PASSAGES, agent_id="a"))
    await begun.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


# --- What a user builds


@pytest.mark.parametrize("clear", [(0.9, 0.1), (-0.1, 0.9), (0.1, 1.1), 0.5, (0.1,), None, ("a", "b")])
def test_a_clear_band_that_can_not_be_is_refused(clear: Any) -> None:
    with pytest.raises(ConfigError, match="`clear` must be"):
        CascadeEvaluator(scripted(), scripted(), clear=clear)


def test_what_can_not_grade_is_refused() -> None:
    with pytest.raises(ConfigError, match="`evaluator` must be"):
        CascadeEvaluator(3, scripted())  # type: ignore[arg-type]  # wrong on purpose


def test_it_is_an_evaluator_in_both_forms_and_lends_its_chat_model_to_the_rewriter() -> None:
    evaluator = CascadeEvaluator(scripted(), ScriptedModel(script=["other words"]))

    assert isinstance(evaluator, Evaluator)
    assert isinstance(evaluator, AsyncEvaluator)
    assert as_rewriter(None, evaluator) is not None
    assert as_rewriter(None, CascadeEvaluator(scripted(), scripted())) is None


@both
def test_inside_the_middleware_only_unclear_passages_reach_the_second(how: str) -> None:
    second = scripted({"It is foggy.": 0.95})
    first = scripted({"Bread needs salt.": 0.02, "It is foggy.": 0.5})
    middleware = crag([passage("Bread needs salt."), passage("It is foggy.")], evaluator=CascadeEvaluator(first, second))
    agent, model = agent_with(middleware)

    ask(agent, "What is foggy?", how)

    assert [ids for _, ids in second.asked] == [("It is foggy.",)]
    shown = str(model.requests[-1][-1].text)
    assert "It is foggy." in shown
    assert "Bread" not in shown


def test_no_private_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "crag_middleware")
    failing = scripted(error=RuntimeError("text mid"))

    with pytest.raises(GradingError):
        CascadeEvaluator(failing, failing).grade(QUESTION, PASSAGES, agent_id="tenant-7")

    told = " ".join(r.getMessage() for r in caplog.records)
    assert told
    assert "text" not in told
    assert "tenant-7" not in told
