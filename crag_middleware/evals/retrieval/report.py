"""The report of a run of retrieval: what each way is worth, per data set and language, never pooled."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crag_middleware.evals.retrieval.rows import RetrievalRow, RetrievalRun
from crag_middleware.evals.retrieval.scores import ndcg, recall, reciprocal_rank
from crag_middleware.evals.retrieval.ways import RRF, WAYS
from crag_middleware.evals.sets import MeasuredSet, totals
from crag_middleware.evals.statistics import LEVEL, RESAMPLES, Array, Difference, Estimate, Statistic, difference, estimates

VERSION = 1
"""Of the JSON."""

DEPTHS = (1, 3, 5, 10, 20)
"""The ranks that recall is told at."""

JUDGED_DEPTH = 10
"""The rank that nDCG and the reciprocal rank look down to."""

SetName = tuple[str, str]
"""A data set and a language."""


@dataclass(frozen=True, slots=True)
class WayReport:
    """What one way is worth, each number averaged over questions.

    Attributes:
        recall: By rank, the share of the relevant documents found up to there.
        ndcg: Normalised discounted cumulative gain of the first ten.
        mrr: Mean reciprocal rank of the first relevant one among the first ten.
        redundancy: Mean cosine between the first five, of questions for which two or more were found; None if of none.
        over_rrf: How much its nDCG exceeds that of the fusion alone, on the same questions; None for the fusion itself and for fewer than two questions.
    """

    recall: Mapping[int, Estimate]
    ndcg: Estimate
    mrr: Estimate
    redundancy: Estimate | None
    over_rrf: Difference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSet(MeasuredSet):
    """One data set in one language; its questions are those that have a relevant document.

    Attributes:
        documents: How many there are to be found among, those without words left out.
        relevant: How many of the question-document pairs are relevant.
        ways: By name; empty if every question failed.
    """

    documents: int
    relevant: int
    ways: Mapping[str, WayReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalReport:
    """A whole run.

    Attributes:
        run: Whose it is.
        level: Of the confidence intervals.
        resamples: That the intervals are made from.
        without_relevant: How many questions of each data set and language were left out, since no document is relevant.
        sets: In order of appearance.
    """

    run: RetrievalRun
    level: float
    resamples: int
    without_relevant: Mapping[SetName, int]
    sets: tuple[RetrievalSet, ...]

    def to_json(self) -> str:
        """The report as JSON text."""
        value: dict[str, Any] = {
            "version": VERSION,
            **asdict(self.run),
            "level": self.level,
            "resamples": self.resamples,
            "without_relevant": [{"source": source, "lang": lang, "questions": n} for (source, lang), n in self.without_relevant.items()],
            "sets": [asdict(one) for one in self.sets],
        }
        return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def make_retrieval_report(
    rows: Sequence[RetrievalRow],
    run: RetrievalRun,
    *,
    documents: Mapping[SetName, int],
    without_relevant: Mapping[SetName, int] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> RetrievalReport:
    """The report of a run's rows.

    Args:
        rows: One for each question.
        run: Whose rows they are.
        documents: How many documents each data set and language was searched among.
        without_relevant: How many questions of each were left out for want of a relevant document.
        resamples: For the confidence intervals.
        seed: Of the resampling.
    """
    groups: dict[SetName, list[RetrievalRow]] = {}
    for row in rows:
        groups.setdefault((row.source, row.lang), []).append(row)
    sets = tuple(_set(group, documents[name], resamples, seed) for name, group in groups.items())
    return RetrievalReport(run=run, level=LEVEL, resamples=resamples, without_relevant=dict(without_relevant or {}), sets=sets)


def _set(rows: Sequence[RetrievalRow], documents: int, resamples: int, seed: int) -> RetrievalSet:
    done = [row for row in rows if not row.error]
    relevant = sum(grade > 0 for row in rows for grade in row.grades.values())
    ways = _ways(done, resamples, seed) if done else {}
    return RetrievalSet(**totals(rows), documents=documents, relevant=relevant, ways=ways)


def _ways(rows: Sequence[RetrievalRow], resamples: int, seed: int) -> dict[str, WayReport]:
    """All numbers of a set, from the same resamples of its questions."""
    names = [way.name for way in WAYS if way.name in rows[0].ranked]
    numbers = {name: np.array([_numbers(row, name) for row in rows], dtype=float) for name in names}
    found = {}
    for name, columns in numbers.items():
        *recalls, gain, rank, redundancy = estimates(_means(columns), len(rows), resamples=resamples, seed=seed)
        assert gain is not None
        assert rank is not None
        over = None if name == RRF else difference(_gain(numbers[RRF]), _gain(columns), len(rows), resamples=resamples, seed=seed)
        known = {depth: value for depth, value in zip(DEPTHS, recalls, strict=True) if value is not None}
        found[name] = WayReport(recall=known, ndcg=gain, mrr=rank, redundancy=redundancy, over_rrf=over)
    return found


def _numbers(row: RetrievalRow, way: str) -> list[float]:
    """Recall at each depth, nDCG, reciprocal rank and redundancy of one question; NaN where there is none."""
    ranked = row.ranked[way]
    return [
        *(recall(ranked, row.grades, depth) for depth in DEPTHS),
        ndcg(ranked, row.grades, JUDGED_DEPTH),
        reciprocal_rank(ranked, row.grades, JUDGED_DEPTH),
        row.redundancy.get(way, np.nan),
    ]


def _means(columns: Array) -> Statistic:
    """The mean of each column over the questions that have a number there; NaN if none has."""
    known = ~np.isnan(columns)
    values = np.where(known, columns, 0.0)

    def means(weights: Array) -> Array:
        drawn = weights @ known
        quotient: Array = np.divide(weights @ values, drawn, out=np.full(drawn.shape, np.nan), where=drawn > 0)
        return quotient

    return means


def _gain(columns: Array) -> Statistic:
    """The mean nDCG."""
    mean: Callable[[Array], Array] = _means(columns[:, [len(DEPTHS)]])
    return lambda weights: mean(weights)[:, 0]
