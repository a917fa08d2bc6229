"""The report of a run over answers: refusals and citations, per data set and language, never pooled."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from crag_middleware.evals.claims.rows import CheckerRun
from crag_middleware.evals.numbers import Number, estimated, grouped, mean_of
from crag_middleware.evals.refusal.rows import RefusalRow
from crag_middleware.evals.sets import MeasuredSet, totals
from crag_middleware.evals.statistics import LEVEL, RESAMPLES, Estimate

VERSION = 1
"""Of the JSON."""

NUMBERS: tuple[Number[RefusalRow], ...] = (
    Number(
        "refusal_precision",
        "Refusals, precision",
        "The share of refusals whose question can't be answered.",
        mean_of(lambda row: float(not row.answerable) if row.refused else None),
    ),
    Number(
        "refusal_recall",
        "Refusals, recall",
        "The share of unanswerable questions that are refused.",
        mean_of(lambda row: None if row.answerable else float(row.refused)),
    ),
    Number(
        "false_refusals",
        "False refusals",
        "The share of answerable questions that are refused.",
        mean_of(lambda row: float(row.refused) if row.answerable else None),
    ),
    Number(
        "citation_recall",
        "Citations, recall",
        "The share of an answer's statements that what they cite supports in full, averaged over answers that state something.",
        mean_of(lambda row: row.supported / row.statements if row.statements else None),
    ),
    Number(
        "citation_precision",
        "Citations, precision",
        "The share of an answer's citations that contribute to a supported statement, averaged over answers that cite.",
        mean_of(lambda row: row.contributing / row.citations if row.citations else None),
    ),
)
"""In the order of a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalSet(MeasuredSet):
    """One data set in one language; its `questions` are answers.

    Attributes:
        answerable: How many of the questions can be answered; of this and what follows, failed ones are left out.
        unanswerable: How many can't.
        refused: How many of either kind are refused.
        statements: Of all answers with passages to cite.
        citations: Of all of them.
        numbers: By name, with intervals; None where a number is undefined.
    """

    unit: ClassVar[str] = "answer"

    answerable: int
    unanswerable: int
    refused: Mapping[str, int]
    statements: int
    citations: int
    numbers: Mapping[str, Estimate | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalReport:
    """A whole run.

    Attributes:
        run: Who checked the citations.
        level: Of the confidence intervals.
        resamples: That the intervals are made from.
        sets: In order of appearance.
    """

    run: CheckerRun
    level: float
    resamples: int
    sets: tuple[RefusalSet, ...]

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


def make_refusal_report(rows: Sequence[RefusalRow], run: CheckerRun, *, resamples: int = RESAMPLES, seed: int = 0) -> RefusalReport:
    """The report of a run's rows.

    Args:
        rows: One for each answer.
        run: Whose rows they are.
        resamples: For the confidence intervals.
        seed: Of the resampling.
    """
    groups: dict[tuple[str, str], list[RefusalRow]] = {}
    for row in rows:
        groups.setdefault((row.source, row.lang), []).append(row)
    sets = tuple(_set(group, resamples, seed) for group in groups.values())
    return RefusalReport(run=run, level=LEVEL, resamples=resamples, sets=sets)


def _set(rows: Sequence[RefusalRow], resamples: int, seed: int) -> RefusalSet:
    done = [row for row in rows if not row.error]
    return RefusalSet(
        **totals(rows),
        answerable=sum(row.answerable for row in done),
        unanswerable=sum(not row.answerable for row in done),
        refused={
            "answerable": sum(row.refused and row.answerable for row in done),
            "unanswerable": sum(row.refused and not row.answerable for row in done),
        },
        statements=sum(row.statements for row in done),
        citations=sum(row.citations for row in done),
        numbers=estimated(NUMBERS, done, grouped([row.id for row in done]), resamples=resamples, seed=seed),
    )
