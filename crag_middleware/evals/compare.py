"""Two runs on the same questions, compared pair by pair."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crag_middleware.calibration import Scale
from crag_middleware.errors import ConfigError
from crag_middleware.evals import rows as files
from crag_middleware.evals.judge import judge
from crag_middleware.evals.measures import MEASURES
from crag_middleware.evals.report import by_set, read_scale
from crag_middleware.evals.rows import Row
from crag_middleware.evals.statistics import RESAMPLES, Difference, Estimate, difference, estimate
from crag_middleware.types import EvaluatorKey

ROWS_FILE = "rows.jsonl"
REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
"""What a run's directory holds: the grades, the numbers, and the page for people."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run as it was read from its directory."""

    evaluator: EvaluatorKey
    rows: Mapping[str, Row]
    scale: Scale


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of one data set in two runs: both values, and the second minus the first."""

    measure: str
    first: Estimate
    second: Estimate
    difference: Difference


@dataclass(frozen=True, slots=True)
class SetComparison:
    """One data set in one language: the questions that both runs graded, and what is compared."""

    source: str
    lang: str
    weak: bool
    questions: int
    comparisons: tuple[Comparison, ...]


def read_run(folder: Path) -> Run:
    """The run in a directory that `crag eval relevance` wrote.

    Raises:
        ConfigError: There is none, or it is not finished.
    """
    key, rows = files.read(folder / ROWS_FILE)
    return Run(key, rows, read_scale(folder / REPORT_FILE))


def compare(first: Run, second: Run, *, resamples: int = RESAMPLES, seed: int = 0) -> tuple[SetComparison, ...]:
    """What both runs have in common, per data set and language.

    Questions that are in one run only, or failed in one of them, are left out of both.

    Raises:
        ConfigError: The same question has other passages or labels in the other run, or no question was graded in both.
    """
    shared = [row for row in first.rows.values() if row.id in second.rows]
    changed = [row.id for row in shared if second.rows[row.id].digest != row.digest]
    if changed:
        msg = f"the runs were made on different data: {len(changed)} questions differ in passages or labels, such as {changed[0]!r}"
        raise ConfigError(msg, reason="foreign_run")
    graded = [row for row in shared if not row.error and not second.rows[row.id].error]
    if not graded:
        msg = f"no question was graded in both runs; the first has {len(first.rows)}, the second {len(second.rows)}, and they share {len(shared)}"
        raise ConfigError(msg, reason="foreign_run")
    return tuple(_set(*name, group, first, second, resamples, seed) for name, group in by_set(graded).items())


def _set(source: str, lang: str, weak: bool, group: list[Row], first: Run, second: Run, resamples: int, seed: int) -> SetComparison:
    one = [judge(row, first.scale) for row in group]
    other = [judge(second.rows[row.id], second.scale) for row in group]
    found = []
    for measure in MEASURES:
        before, after = measure.of(one), measure.of(other)
        if not measure.compared or before is None or after is None:
            continue
        between = difference(before, after, len(group), resamples=resamples, seed=seed)
        values = [estimate(statistic, len(group), resamples=resamples, seed=seed) for statistic in (before, after)]
        if between is not None and values[0] is not None and values[1] is not None:
            found.append(Comparison(measure.name, values[0], values[1], between))
    return SetComparison(source, lang, weak, len(group), tuple(found))
