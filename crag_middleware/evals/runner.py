"""Running a port over questions, so that it can stop at any time and go on later."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.callbacks import CallbackManager, UsageMetadataCallbackHandler
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import RunnableConfig, set_config_context

from crag_middleware import steps
from crag_middleware.adapters.given import evaluator_key
from crag_middleware.drive import arun, run
from crag_middleware.errors import CRAGError, GradingError
from crag_middleware.evals.datasets import Item, Q
from crag_middleware.evals.row_file import Kept, O, R, RowFile
from crag_middleware.evals.rows import GRADES, Row
from crag_middleware.ports import AsyncEvaluator, Bound, Evaluator, bind
from crag_middleware.tenancy import Scope
from crag_middleware.types import Grade
from crag_middleware.world import World

TENANT = "crag-eval"
"""The `agent_id` that a port sees while it is measured."""

TIMEOUT_S = 300.0
"""For one question: a slow model is measured, and one that hangs becomes a failed row."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: questions done, of all, and those of them that failed."""

    done: int
    total: int
    failed: int


def evaluate(
    items: Sequence[Item],
    evaluator: Evaluator | AsyncEvaluator,
    *,
    path: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Row, ...]:
    """Grades each question's passages in one call of the evaluator.

    It can't be called where an event loop is running if the evaluator has only an async form; call it in a thread there.

    Args:
        items: The questions.
        evaluator: Who grades.
        path: The file that each row is written to as it comes; None for none.
        resume: Whether that file holds the beginning of this run; its failed rows are tried again.
        progress: Told at the beginning and after each question.
        timeout_s: Deadline for one question.

    Returns:
        A row for each question, in order; one that failed has the reason in it.

    Raises:
        ConfigError: The object can't grade; or the file exists, or, resuming, it doesn't, or belongs to another run.
    """
    grade = bind(evaluator, "grade")
    with closing(Caller()) as caller:

        def graded(item: Item) -> Row:
            meter = Meter()
            grades: tuple[Grade, ...] = ()
            reason = ""
            try:
                grades = caller.call(grade, steps.grade(item.question, item.passages, Scope(TENANT), timeout_s=timeout_s), meter)
            except GradingError as error:
                reason = error.reason
            return Row(
                id=item.id,
                digest=item.digest,
                source=item.source,
                lang=item.lang,
                weak=item.weak,
                answerable=item.answerable,
                labels=item.labels,
                probabilities=tuple(grade.probability for grade in grades),
                stated=tuple(grade.label for grade in grades),
                error=reason,
                **meter.spent(),
            )

        return each(items, graded, GRADES, evaluator_key(evaluator), path=path, resume=resume, progress=progress)


def each(
    items: Sequence[Q],
    measured: Callable[[Q], R],
    file: RowFile[O, R],
    owner: O,
    *,
    path: Path | None,
    resume: bool,
    progress: Callable[[Progress], object],
) -> tuple[R, ...]:
    """A row for each question, in order.

    Args:
        items: The questions.
        measured: Makes a question's row.
        file: How the rows are kept.
        owner: Whose run it is.
        path: The file that each row is written to as it comes; None for none.
        resume: Whether that file holds the beginning of this run; its failed rows are tried again.
        progress: Told at the beginning and after each question.

    Raises:
        ConfigError: The file exists, or, resuming, it doesn't, or belongs to another run.
    """
    done: dict[str, R] = {}
    if path is not None and resume:
        done = file.resume(path, owner, items)
    elif path is not None:
        file.start(path, owner)
    failed = 0
    progress(Progress(len(done), len(items), failed))
    for item in items:
        if item.id in done:
            continue
        row = measured(item)
        done[item.id] = row
        failed += bool(row.error)
        if path is not None:
            file.append(path, row)
        progress(Progress(len(done), len(items), failed))
    return tuple(done[item.id] for item in items)


def failures(rows: Iterable[Kept]) -> Counter[str]:
    """How often each reason made a question fail."""
    return Counter(row.error for row in rows if row.error)


def check_any_done(rows: Sequence[Kept], error: type[CRAGError], done: str) -> None:
    """Passes if at least one question was `done`, such as graded.

    Raises:
        CRAGError: Every one failed; it is of the class `error`.
    """
    reasons = failures(rows)
    if reasons.total() == len(rows):
        said = ", ".join(f"{n} times {reason}" for reason, n in reasons.most_common(5))
        msg = f"not one of {len(rows)} questions could be {done}: {said}"
        raise error(msg, reason=reasons.most_common(1)[0][0])


class Meter(UsageMetadataCallbackHandler):
    """Counts model calls and tokens, as far as LangChain sees them, and the time in calls of ports."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seconds = 0.0

    def spent(self) -> dict[str, Any]:
        """The fields of a row that say what it took."""
        used = self.usage_metadata.values()
        return {
            "seconds": round(self.seconds, 4),
            "calls": self.calls,
            "input_tokens": sum(u["input_tokens"] for u in used),
            "output_tokens": sum(u["output_tokens"] for u in used),
        }

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Counts a call and its tokens."""
        super().on_llm_end(response, **kwargs)
        with self._lock:
            self.calls += 1

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        """Counts a call that failed."""
        with self._lock:
            self.calls += 1


class Caller:
    """Calls ports as the corrective pass does, those that have only an async form all on one event loop. To be closed at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.Runner()

    def call(self, port: Bound, step: steps.Call[T], meter: Meter) -> T:
        """The port's reply to a step, with what it took on the meter."""
        world, plan, begun = World({step.port: port}, lambda _: None), steps.ask(step), time.perf_counter()
        # A manager and not a list: merging configs doubles the entries of a list, and a manager drops doubles.
        watched = CallbackManager([meter], inheritable_handlers=[meter])
        try:
            with set_config_context(RunnableConfig(callbacks=watched)) as context:
                if port.sync is None:
                    return self._loop.run(arun(plan, world), context=context)
                return context.run(run, plan, world)
        finally:
            meter.seconds += time.perf_counter() - begun

    def close(self) -> None:
        """Ends the event loop, if there is one."""
        self._loop.close()
