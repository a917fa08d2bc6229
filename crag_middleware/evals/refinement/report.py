"""The report of a refiner's run: curves of recall against kept share with the area under them, per data set and language, never pooled."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crag_middleware.evals.refinement.curve import STEPS
from crag_middleware.evals.refinement.rows import RefinementRow, RefinerRun
from crag_middleware.evals.sets import MeasuredSet, totals
from crag_middleware.evals.statistics import LEVEL, RESAMPLES, Array, Estimate, estimates

VERSION = 1
"""Of the JSON."""

REFINER = "refiner"
"""The name of the refiner's own ranking among those of the baselines."""

ENOUGH = 0.9
"""The recall whose smallest share is reported."""

SetName = tuple[str, str]
"""A data set and a language."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a ranking finds.

    Attributes:
        recall: At each share from 0 to 1, the share of a question's gold sentences that were found, averaged over questions.
        low: Lower end of each interval; empty for fewer than two questions.
        high: Upper end of each.
        area: Under the curve, by the trapezoid rule.
        enough: The smallest share whose recall is `ENOUGH` or more; None if none is.
    """

    recall: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    area: Estimate
    enough: Estimate | None

    def at(self, percent: int) -> Estimate:
        """The recall at a share, in percent."""
        ends = (self.low[percent], self.high[percent]) if self.low else (None, None)
        return Estimate(self.recall[percent], *ends)


@dataclass(frozen=True, slots=True)
class Point:
    """What the refiner really keeps: the share of a question's characters, and of its gold sentences, both averaged over questions."""

    kept: Estimate
    recall: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinementSet(MeasuredSet):
    """One data set in one language, measured with a refiner; its questions are those that have gold sentences.

    Attributes:
        gold: Gold sentences.
        characters: Of all passages.
        point: What the refiner keeps; None if every question failed.
        rankings: By name: the refiner's own, if it ranks, and the baselines'; empty if every question failed.
    """

    gold: int
    characters: int
    point: Point | None
    rankings: Mapping[str, Ranking]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinementReport:
    """A whole run.

    Attributes:
        run: Whose it is.
        level: Of the confidence intervals.
        resamples: That the intervals are made from.
        without_gold: How many questions of each data set and language were left out, since they have no words or no known gold sentence.
        sets: In order of appearance.
    """

    run: RefinerRun
    level: float
    resamples: int
    without_gold: Mapping[SetName, int]
    sets: tuple[RefinementSet, ...]

    def to_json(self) -> str:
        """The report as JSON text."""
        value: dict[str, Any] = {
            "version": VERSION,
            **asdict(self.run),
            "level": self.level,
            "resamples": self.resamples,
            "without_gold": [{"source": source, "lang": lang, "questions": n} for (source, lang), n in self.without_gold.items()],
            "shares": [n / STEPS for n in range(STEPS + 1)],
            "sets": [asdict(one) for one in self.sets],
        }
        return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def make_refinement_report(
    rows: Sequence[RefinementRow],
    run: RefinerRun,
    *,
    without_gold: Mapping[SetName, int] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> RefinementReport:
    """The report of a run's rows.

    Args:
        rows: One for each question.
        run: Whose rows they are.
        without_gold: How many questions of each data set and language were left out for want of gold sentences.
        resamples: For the confidence intervals.
        seed: Of the resampling.
    """
    groups: dict[SetName, list[RefinementRow]] = {}
    for row in rows:
        groups.setdefault((row.source, row.lang), []).append(row)
    sets = tuple(_set(group, resamples, seed) for group in groups.values())
    return RefinementReport(run=run, level=LEVEL, resamples=resamples, without_gold=dict(without_gold or {}), sets=sets)


def _set(rows: Sequence[RefinementRow], resamples: int, seed: int) -> RefinementSet:
    done = [row for row in rows if not row.error]
    point, rankings = _measured(done, resamples, seed) if done else (None, {})
    gold, characters = sum(row.gold for row in rows), sum(row.characters for row in rows)
    return RefinementSet(**totals(rows), gold=gold, characters=characters, point=point, rankings=rankings)


def _measured(rows: Sequence[RefinementRow], resamples: int, seed: int) -> tuple[Point, dict[str, Ranking]]:
    """All numbers of a set, from the same resamples of its questions."""
    curves = {REFINER: [row.curve for row in rows]} | {name: [row.baselines[name] for row in rows] for name in rows[0].baselines}
    gold = np.array([row.gold for row in rows], dtype=float)
    recalls = {name: np.array(found, dtype=float) / gold[:, None] for name, found in curves.items() if all(found)}
    own = np.array([(row.kept / row.characters, row.found / row.gold) for row in rows])

    def statistics(weights: Array) -> Array:
        drawn = weights / weights.sum(axis=1, keepdims=True)
        return np.hstack([drawn @ own, *(_numbers(drawn @ recall) for recall in recalls.values())])

    kept, recall, *found = estimates(statistics, len(rows), resamples=resamples, seed=seed)
    assert kept is not None
    assert recall is not None
    size = STEPS + 3
    return Point(kept, recall), {name: _ranking(found[n * size : (n + 1) * size]) for n, name in enumerate(recalls)}


def _numbers(curves: Array) -> Array:
    """Each curve, the area under it, and the smallest share at which it reaches `ENOUGH`; NaN if it does nowhere."""
    areas = (curves[:, 1:] + curves[:, :-1]).sum(axis=1) / (2 * STEPS)
    reached = curves >= ENOUGH - 1e-9  # a mean of shares may miss a round number by a rounding error
    shares = np.where(reached.any(axis=1), reached.argmax(axis=1) / STEPS, np.nan)
    return np.column_stack([curves, areas, shares])


def _ranking(found: Sequence[Estimate | None]) -> Ranking:
    *curve, area, enough = found
    known = [estimate for estimate in curve if estimate is not None]
    ends = [(e.low, e.high) for e in known if e.low is not None and e.high is not None]
    assert area is not None
    return Ranking(
        recall=tuple(round(e.value, 6) for e in known),
        low=tuple(round(low, 6) for low, _ in ends),
        high=tuple(round(high, 6) for _, high in ends),
        area=area,
        enough=enough,
    )
