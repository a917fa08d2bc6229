"""The report of a run: every number of it, per data set and language, never pooled."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crag_middleware.calibration import Calibration, Scale, parse_calibration
from crag_middleware.errors import ConfigError
from crag_middleware.evals.judge import Judged, judge
from crag_middleware.evals.measures import MEASURES, VERDICTS, Cases, labelled
from crag_middleware.evals.rows import Row
from crag_middleware.evals.sets import MeasuredSet, totals
from crag_middleware.evals.statistics import BINS, LEVEL, RESAMPLES, Estimate, bins, estimate
from crag_middleware.types import EvaluatorKey, Thresholds, Verdict

VERSION = 1
"""Of the JSON."""

HISTOGRAM_BINS = 20

FEWEST_UNANSWERABLE = 0.2
"""A set with a smaller share of unanswerable questions hardly tells whether an evaluator says no in time."""


@dataclass(frozen=True, slots=True)
class Point:
    """One bin of the reliability diagram: its passages, their mean probability, and the share of them that are relevant."""

    passages: int
    probability: float
    relevant: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport(MeasuredSet):
    """One data set in one language, measured with an evaluator.

    Attributes:
        weak: The labels were not given passage by passage by a person.
        answerable: Questions whose passages answer them.
        unanswerable: Questions whose passages don't.
        relevant: Passages labelled so.
        incorrect: Passages labelled so.
        unlabelled: Passages without a label.
        ungraded: Passages that the evaluator could not grade.
        measures: By the names of `MEASURES`; None where undefined.
        verdicts: How often each verdict came, by rule (`paper`, `set`), and for only the passages known not to answer (`paper_negatives`, `set_negatives`).
        reliability: The bins that hold passages, from low to high probability.
        histogram: Relevant and incorrect passages in bins of equal width from probability 0 to 1.
        warnings: What to keep in mind when reading this, in sentences.
    """

    weak: bool
    answerable: int
    unanswerable: int
    relevant: int
    incorrect: int
    unlabelled: int
    ungraded: int
    measures: Mapping[str, Estimate | None]
    verdicts: Mapping[str, Mapping[Verdict, int]]
    reliability: tuple[Point, ...]
    histogram: Mapping[str, tuple[int, ...]]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run.

    Attributes:
        evaluator: Whose grades these are.
        scale: What they went through.
        negatives_only: The evaluator was shown only passages that don't answer.
        level: Of the confidence intervals.
        resamples: That the intervals are made from.
        sets: In order of appearance.
    """

    evaluator: EvaluatorKey
    scale: Scale
    negatives_only: bool
    level: float
    resamples: int
    sets: tuple[SetReport, ...]

    def to_json(self) -> str:
        """The report as JSON text."""
        calibration = self.scale.calibration
        value: dict[str, Any] = {
            "version": VERSION,
            "evaluator": asdict(self.evaluator),
            "thresholds": asdict(self.scale.thresholds),
            "calibration": calibration.model_dump(mode="json") if calibration else None,
            "negatives_only": self.negatives_only,
            "level": self.level,
            "resamples": self.resamples,
            "sets": [asdict(one) for one in self.sets],
        }
        return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def make_report(
    rows: Sequence[Row], key: EvaluatorKey, scale: Scale, *, negatives_only: bool = False, resamples: int = RESAMPLES, seed: int = 0
) -> Report:
    """The report of a run's rows.

    Args:
        rows: One for each question.
        key: Whose grades they hold.
        scale: What these go through.
        negatives_only: Whether the evaluator was shown only passages that don't answer.
        resamples: For each confidence interval.
        seed: Of the resampling.
    """
    sets = tuple(_set_report(group, scale, negatives_only, resamples, seed) for group in by_set(rows).values())
    return Report(evaluator=key, scale=scale, negatives_only=negatives_only, level=LEVEL, resamples=resamples, sets=sets)


def by_set(rows: Sequence[Row]) -> dict[tuple[str, str, bool], list[Row]]:
    """The rows of each data set and language, those with weak labels apart."""
    groups: dict[tuple[str, str, bool], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.source, row.lang, row.weak), []).append(row)
    return groups


def read_scale(path: Path) -> Scale:
    """The thresholds and the calibration that a report's numbers were made with.

    Raises:
        ConfigError: There is no such report, or it is of another version.
    """
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"there is no report at {str(path)!r} ({type(error).__name__}); finish the run with `crag eval relevance ... --resume`"
        raise ConfigError(msg, reason="bad_run") from error
    match found:
        case {"version": int(version), "thresholds": {"lower": float(lower), "upper": float(upper)}, "calibration": given} if (
            version == VERSION
        ):
            calibration: Calibration | None = None if given is None else parse_calibration(given, origin=str(path))
            return Scale(Thresholds(lower, upper), calibration)
    msg = f"{str(path)!r} is no report of version {VERSION}; `crag eval relevance` writes one"
    raise ConfigError(msg, reason="bad_run")


def _set_report(rows: Sequence[Row], scale: Scale, negatives_only: bool, resamples: int, seed: int) -> SetReport:
    judged = [judge(row, scale) for row in rows if not row.error]
    labels = [label for row in rows for label in row.labels]
    answers = Counter(row.answerable for row in rows)
    cases = labelled(judged, numbered=True)
    return SetReport(
        **totals(rows),
        weak=rows[0].weak,
        answerable=answers[True],
        unanswerable=answers[False],
        relevant=labels.count(True),
        incorrect=labels.count(False),
        unlabelled=labels.count(None),
        ungraded=sum(grade.label == "ungraded" for one in judged for grade in one.grades),
        measures=_measures(judged, resamples, seed),
        verdicts=_verdicts(judged),
        reliability=_reliability(cases),
        histogram=_histogram(cases),
        warnings=() if negatives_only else tuple(_warnings(answers, rows[0].weak)),
    )


def _measures(judged: Sequence[Judged], resamples: int, seed: int) -> dict[str, Estimate | None]:
    statistics = {measure.name: measure.of(judged) for measure in MEASURES}
    return {
        name: estimate(statistic, len(judged), resamples=resamples, seed=seed) if statistic and judged else None
        for name, statistic in statistics.items()
    }


def _verdicts(judged: Sequence[Judged]) -> dict[str, dict[Verdict, int]]:
    negatives = [one.negatives for one in judged if one.negatives is not None]
    found: dict[str, list[Verdict | None]] = {
        "paper": [one.ruling.verdict for one in judged],
        "paper_negatives": [ruling.verdict for ruling in negatives],
        "set": [one.ruling.by_set for one in judged],
        "set_negatives": [ruling.by_set for ruling in negatives],
    }
    return {rule: {v: verdicts.count(v) for v in VERDICTS} for rule, verdicts in found.items() if any(verdicts)}


def _reliability(cases: Cases) -> tuple[Point, ...]:
    held = bins(cases.probability)
    members = ((held == n) for n in range(BINS))
    return tuple(
        Point(int(m.sum()), round(float(cases.probability[m].mean()), 6), round(float(cases.truth[m].mean()), 6))
        for m in members
        if m.any()
    )


def _histogram(cases: Cases) -> dict[str, tuple[int, ...]]:
    held = bins(cases.probability, HISTOGRAM_BINS)
    kinds = {"relevant": cases.truth, "incorrect": ~cases.truth}
    return {kind: tuple(np.bincount(held[of], minlength=HISTOGRAM_BINS).tolist()) for kind, of in kinds.items()}


def _warnings(answers: Mapping[bool | None, int], weak: bool) -> list[str]:
    yes, no = answers.get(True, 0), answers.get(False, 0)
    found = []
    if not yes + no:
        found.append("Nobody said which of its questions are answerable.")
    elif not no:
        found.append("None of its questions is unanswerable: it can't tell whether an evaluator says no.")
    elif no < FEWEST_UNANSWERABLE * (yes + no):
        found.append(
            f"Only {no / (yes + no):.0%} of its questions are unanswerable: "
            f"below {FEWEST_UNANSWERABLE:.0%} a set hardly tells whether an evaluator says no."
        )
    if weak:
        found.append("Its labels are weak: not given passage by passage by a person.")
    return found
