"""Running an evaluator over labelled questions, so that it can stop at any time and go on later."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from langchain_core.callbacks import CallbackManager, UsageMetadataCallbackHandler
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import RunnableConfig, set_config_context

from crag_middleware import steps
from crag_middleware.adapters.given import evaluator_key
from crag_middleware.drive import World, arun, run
from crag_middleware.errors import GradingError
from crag_middleware.evals import rows as files
from crag_middleware.evals.datasets import Item
from crag_middleware.evals.rows import Row
from crag_middleware.ports import AsyncEvaluator, Evaluator, bind
from crag_middleware.tenancy import Scope
from crag_middleware.types import Grade

TENANT = "crag-eval"
"""The `agent_id` that an evaluator sees while it is measured."""

TIMEOUT_S = 300.0
"""For one question: a slow model is measured, and one that hangs becomes a failed row."""


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
    key = evaluator_key(evaluator)
    done: dict[str, Row] = {}
    with _Grader(evaluator, timeout_s) as grader:
        if path is not None and resume:
            done = files.resume(path, key, items)
        elif path is not None:
            files.start(path, key)
        failed = 0
        progress(Progress(len(done), len(items), failed))
        for item in items:
            if item.id in done:
                continue
            row = grader.row(item)
            done[item.id] = row
            failed += bool(row.error)
            if path is not None:
                files.append(path, row)
            progress(Progress(len(done), len(items), failed))
    return tuple(done[item.id] for item in items)


def failures(rows: Sequence[Row]) -> Counter[str]:
    """How often each reason made a question fail."""
    return Counter(row.error for row in rows if row.error)


class _Meter(UsageMetadataCallbackHandler):
    """Counts model calls, too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        super().on_llm_end(response, **kwargs)
        with self._lock:
            self.calls += 1

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        with self._lock:
            self.calls += 1


class _Grader:
    """One evaluator, called as the corrective pass calls it, on one event loop if it has only an async form."""

    def __init__(self, evaluator: object, timeout_s: float) -> None:
        bound = bind(evaluator, "grade")
        self._world = World({"evaluator": bound}, lambda _: None)
        self._loop = asyncio.Runner() if bound.sync is None else None
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._loop is not None:
            self._loop.close()

    def row(self, item: Item) -> Row:
        meter, begun = _Meter(), time.perf_counter()
        grades: tuple[Grade, ...] = ()
        reason = ""
        try:
            grades = self._grades(item, meter)
        except GradingError as error:
            reason = error.reason
        used = meter.usage_metadata.values()
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
            seconds=round(time.perf_counter() - begun, 4),
            calls=meter.calls,
            input_tokens=sum(u["input_tokens"] for u in used),
            output_tokens=sum(u["output_tokens"] for u in used),
        )

    def _grades(self, item: Item, meter: _Meter) -> tuple[Grade, ...]:
        plan = steps.ask(steps.grade(item.question, item.passages, Scope(TENANT), timeout_s=self._timeout_s))
        # A manager and not a list: merging configs doubles the entries of a list, and a manager drops doubles.
        watched = CallbackManager([meter], inheritable_handlers=[meter])
        with set_config_context(RunnableConfig(callbacks=watched)) as context:
            if self._loop is not None:
                return self._loop.run(arun(plan, self._world), context=context)
            return context.run(run, plan, self._world)
