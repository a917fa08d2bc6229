"""The report of a claim checker's run: how well it tells supported claims from all others, per data set and language, never pooled."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.metrics import roc_curve

from crag_middleware.evals import statistics
from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.evals.claims.rows import CheckerRun, ClaimRow
from crag_middleware.evals.numbers import Groups, Number, estimated, grouped, mean_of
from crag_middleware.evals.report import HISTOGRAM_BINS
from crag_middleware.evals.sets import MeasuredSet, totals
from crag_middleware.evals.statistics import LEVEL, RESAMPLES, Estimate, Statistic, bins

VERSION = 1
"""Of the JSON."""

CHECKER = "checker"
"""The name of the checker's own curve among those of the baselines."""

Curve = tuple[tuple[float, float], ...]
"""Of an ROC: the share of the other claims, and of the supported ones, that score at or above a cut, from the highest cut to the lowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSet(MeasuredSet):
    """One data set in one language; its `questions` are claims.

    Attributes:
        labels: How many claims of each label there are, as people judged.
        undecided: Of how many claims the checker could not say anything.
        numbers: By name, with intervals; None where a number is undefined.
        baselines: By name, the AUC of each.
        roc: By `CHECKER` or a baseline's name; those are missing that have no AUC.
        histogram: How many claims got which probability, in bins of equal width, by whether they are supported.
    """

    unit: ClassVar[str] = "claim"

    labels: Mapping[str, int]
    undecided: int
    numbers: Mapping[str, Estimate | None]
    baselines: Mapping[str, Estimate | None]
    roc: Mapping[str, Curve]
    histogram: Mapping[Literal["supported", "other"], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReport:
    """A whole run.

    Attributes:
        run: Whose it is.
        level: Of the confidence intervals.
        resamples: That the intervals are made from.
        sets: In order of appearance.
    """

    run: CheckerRun
    level: float
    resamples: int
    sets: tuple[ClaimSet, ...]

    def to_json(self) -> str:
        """The report as JSON text."""
        value: dict[str, Any] = {
            "version": VERSION,
            **asdict(self.run),
            "level": self.level,
            "resamples": self.resamples,
            "sets": [asdict(one) for one in self.sets],
        }
        return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def make_claim_report(rows: Sequence[ClaimRow], run: CheckerRun, *, resamples: int = RESAMPLES, seed: int = 0) -> ClaimReport:
    """The report of a run's rows.

    Args:
        rows: One for each claim.
        run: Whose rows they are.
        resamples: For the confidence intervals.
        seed: Of the resampling.
    """
    groups: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in rows:
        groups.setdefault((row.source, row.lang), []).append(row)
    sets = tuple(_set(group, run.threshold, resamples, seed) for group in groups.values())
    return ClaimReport(run=run, level=LEVEL, resamples=resamples, sets=sets)


def claim_numbers(threshold: float) -> tuple[Number[ClaimRow], ...]:
    """The numbers of a set, in the order of a report.

    Args:
        threshold: Claims with a probability below it are flagged. One of which the checker could not say anything is not, as in a turn.
    """

    def flagged(row: ClaimRow) -> bool:
        return row.probability is not None and row.probability < threshold

    def accuracy(rows: Sequence[ClaimRow], groups: Groups) -> Statistic:
        passed = np.array([not flagged(row) for row in rows], dtype=bool)
        return statistics.balanced_accuracy(groups.of, passed, np.array([row.is_supported for row in rows], dtype=bool), groups.total)

    def contradicted(row: ClaimRow) -> float | None:
        return float(row.said == "contradicted") if row.label == "contradicted" else None

    return (
        Number("auc", "AUC", "How often a supported claim scores above another one; 0.5 is chance.", _auc(lambda row: row.probability)),
        Number(
            "accuracy",
            "Balanced accuracy",
            "The mean of the shares of supported claims that pass and of others that are flagged.",
            accuracy,
        ),
        Number(
            "false_alarms",
            "False alarms",
            "The share of supported claims that are flagged.",
            mean_of(lambda row: float(flagged(row)) if row.is_supported else None),
        ),
        Number(
            "caught",
            "Caught",
            "The share of the other claims that are flagged.",
            mean_of(lambda row: None if row.is_supported else float(flagged(row))),
        ),
        Number(
            "contradicted_recall",
            "Contradicted, recall",
            "The share of claims labelled contradicted that the checker, too, calls contradicted.",
            mean_of(contradicted),
        ),
    )


def baseline_numbers() -> tuple[Number[ClaimRow], ...]:
    """The AUC of each baseline."""
    return tuple(Number(b.name, f"AUC of {b.title}", f"By {b.meaning}.", _auc(_score(b.name))) for b in BASELINES)


def _set(rows: Sequence[ClaimRow], threshold: float, resamples: int, seed: int) -> ClaimSet:
    done = [row for row in rows if not row.error]
    groups = grouped([row.evidence for row in done])
    numbers = estimated((*claim_numbers(threshold), *baseline_numbers()), done, groups, resamples=resamples, seed=seed)
    baselines = {baseline.name: numbers.pop(baseline.name) for baseline in BASELINES}
    scores = {CHECKER: lambda row: row.probability} | {name: _score(name) for name in baselines}
    aucs = {CHECKER: numbers["auc"], **baselines}
    return ClaimSet(
        **totals(rows),
        labels=dict(Counter(row.label for row in rows).most_common()),
        undecided=sum(row.probability is None for row in done),
        numbers=numbers,
        baselines=baselines,
        roc={name: _roc(done, score) for name, score in scores.items() if aucs[name]},
        histogram={"supported": _histogram(done, supported=True), "other": _histogram(done, supported=False)},
    )


def _score(baseline: str) -> Callable[[ClaimRow], float | None]:
    return lambda row: row.baselines[baseline]


def _auc(score: Callable[[ClaimRow], float | None]) -> Callable[[Sequence[ClaimRow], Groups], Statistic]:
    def of(rows: Sequence[ClaimRow], groups: Groups) -> Statistic:
        known = [(n, found) for n, row in enumerate(rows) if (found := score(row)) is not None]
        truth = np.array([rows[n].is_supported for n, _ in known], dtype=bool)
        return statistics.auc(groups.of[[n for n, _ in known]], np.array([found for _, found in known], dtype=float), truth)

    return of


def _roc(rows: Sequence[ClaimRow], score: Callable[[ClaimRow], float | None]) -> Curve:
    known = [(row.is_supported, found) for row in rows if (found := score(row)) is not None]
    others, supported, _ = roc_curve([truth for truth, _ in known], [found for _, found in known])
    return tuple(zip(np.round(others, 6).tolist(), np.round(supported, 6).tolist(), strict=True))


def _histogram(rows: Sequence[ClaimRow], *, supported: bool) -> tuple[int, ...]:
    found = np.array([row.probability for row in rows if row.is_supported == supported and row.probability is not None], dtype=float)
    return tuple(np.bincount(bins(found, HISTOGRAM_BINS), minlength=HISTOGRAM_BINS).tolist())
