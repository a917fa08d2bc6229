"""Runs in a terminal: progress while they last, tables at the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from crag_middleware.evals.compare import SetComparison
from crag_middleware.evals.measures import MEASURES, VERDICTS
from crag_middleware.evals.report import Report, SetReport
from crag_middleware.evals.runner import Progress
from crag_middleware.evals.statistics import LEVEL, Estimate

LINE_S = 30.0
"""Without a terminal a line is written for every tenth of the questions, and at least this often, in seconds."""

_COLUMNS = {
    "AUC": "passage_auc",
    "upper": "passage_relevant_accuracy",
    "lower": "passage_incorrect_accuracy",
    "ECE": "passage_ece",
    "answerable": "turn_relevant_accuracy",
}


@contextmanager
def progress(console: Console, done: str = "graded") -> Iterator[Callable[[Progress], None]]:
    """A function to be told of progress, of questions `done`: it moves a bar in a terminal, and writes lines elsewhere."""
    if not console.is_terminal:
        yield _lines(console, done)
        return
    columns = (TextColumn(done), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]}"), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, failed="")

        def tell(state: Progress) -> None:
            bar.update(task, completed=state.done, total=state.total, failed=f"{state.failed} failed" if state.failed else "")

        yield tell


def open_table(*head: str, words: int = 1) -> Table:
    """A table without lines; its first columns hold `words`, the others numbers."""
    table = Table(*head, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[0].overflow = "fold"
    for column in table.columns[words:]:
        column.justify = "right"
    return table


def show_report(report: Report, console: Console) -> None:
    """The report in short."""
    cuts = report.scale.thresholds
    fitted = "calibrated" if report.scale.calibration else "not calibrated"
    console.print(
        f"{report.evaluator.evaluator} {report.evaluator.model}".strip() + f", {fitted}, thresholds {cuts.lower:g} and {cuts.upper:g}"
    )
    table = open_table("set", "questions", "failed", *_COLUMNS, "verdicts %", "s/question")
    for one in report.sets:
        values = [short(one.measures[measure]) for measure in _COLUMNS.values()]
        failed = str(sum(one.failed.values()) or "")
        table.add_row(one.name, str(one.questions), failed, *values, _mix(one), f"{one.seconds / max(one.questions, 1):.2f}")
    console.print(table)
    console.print(
        "AUC of passages; upper, lower: balanced accuracy of passages at that threshold; answerable: balanced accuracy of the verdict “relevant”; "
        "verdicts: relevant/ambiguous/incorrect."
    )
    for note, names in _notes(report).items():
        console.print(f"{', '.join(names)}: {note}")


def _notes(report: Report) -> dict[str, list[str]]:
    """Everything to keep in mind, and of which sets it is true."""
    notes: dict[str, list[str]] = {}
    for one in report.sets:
        for note in filter(None, (*one.warnings, one.left_out)):
            notes.setdefault(note, []).append(one.name)
    return notes


def show_comparison(sets: Sequence[SetComparison], first: str, second: str, console: Console) -> None:
    """Both runs side by side, and how sure the difference is."""
    titles = {measure.name: measure.title for measure in MEASURES}
    table = open_table("set", "measure", "A", "B", f"B - A [{LEVEL:.0%}]", "p", words=2)
    for one in sets:
        for found in one.comparisons:
            gap = found.difference
            shown = f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
            table.add_row(
                f"{one.source} ({one.lang}), {one.questions}",
                titles[found.measure],
                short(found.first),
                short(found.second),
                shown,
                f"{gap.p:.3f}",
            )
    console.print(f"A: {first}\nB: {second}")
    console.print(table)
    console.print("Paired bootstrap over the questions that both runs graded; p is two-sided, for one measure at a time.")


def _lines(console: Console, done: str) -> Callable[[Progress], None]:
    last = [-1, time.monotonic()]

    def tell(state: Progress) -> None:
        tenth, now = 10 * state.done // max(state.total, 1), time.monotonic()
        if tenth > last[0] or now - last[1] >= LINE_S:
            last[:] = [tenth, now]
            console.print(f"{done} {state.done} of {state.total}" + (f", {state.failed} failed" if state.failed else ""))

    return tell


def _mix(one: SetReport) -> str:
    counts = [one.verdicts.get("paper", {}).get(verdict, 0) for verdict in VERDICTS]
    return "/".join(f"{100 * n / max(sum(counts), 1):.0f}" for n in counts)


def short(value: Estimate | None) -> str:
    """An estimate without its interval, for a table."""
    return "–" if value is None else f"{value.value:.2f}"
