"""Thresholds for stated aims, and how far the aims are reached on questions that were held out."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import binomtest

from crag_middleware.errors import ConfigError
from crag_middleware.types import Thresholds, VerdictRule

SIGNIFICANCE = 0.05
"""An aim counts as missed if a true rate at the aim would give so many misses, or more, less often than this (binomial test)."""

Kind = Literal["answerable", "unanswerable"]


@dataclass(frozen=True, slots=True)
class Aims:
    """What the thresholds are chosen for.

    Attributes:
        missed: At most this share of answerable questions is called `incorrect`, in (0, 1).
        false: At most this share of unanswerable questions is called `relevant`, in (0, 1).

    Raises:
        ConfigError: A share is out of range.
    """

    missed: float = 0.05
    false: float = 0.1

    def __post_init__(self) -> None:
        for name in ("missed", "false"):
            if not 0 < getattr(self, name) < 1:
                msg = f"the aim `{name}` must be a share above 0 and below 1, got {getattr(self, name)!r}"
                raise ConfigError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What became of an aim on questions that were held out when the thresholds were chosen.

    Attributes:
        rule: By which the verdict was cut.
        kind: Of which questions.
        aim: The share that was to be at most called wrong.
        wrong: How many were.
        right: How many got the verdict they should have; the rest is ambiguous.
        total: Of how many.
        why_not: Why the aim is not met; empty if it is.
    """

    rule: VerdictRule
    kind: Kind
    aim: float
    wrong: int
    right: int
    total: int
    why_not: str = ""

    def __str__(self) -> str:
        verdicts = ("incorrect", "relevant") if self.kind == "answerable" else ("relevant", "incorrect")
        by = "" if self.rule == "paper" else ", by the set"
        told = (
            f"at most {self.aim:.1%} of {self.kind} questions called {verdicts[0]}{by}: {self.wrong} of {self.total} held out "
            f"({self.wrong / self.total:.1%}), {self.right} called {verdicts[1]}"
        )
        return f"{told}; NOT MET: {self.why_not}" if self.why_not else told


def choose(rule: VerdictRule, scores: np.ndarray, answerable: np.ndarray, fold: np.ndarray, aims: Aims) -> tuple[Thresholds, list[Reached]]:
    """The cuts for these questions, and what became of each aim when the cuts were chosen without each fold and tried on it.

    Thresholds are chosen so that a new question of the same kind is called wrong no more often than the aim: with n questions of the kind, the cut lies at
    the k-th worst of them, k = floor(aim (n + 1)) (split conformal prediction: Angelopoulos and Bates, arXiv 2107.07511, section 1).

    Args:
        rule: What the scores are: `paper`, each question's best passage; `set`, P(its passages together answer).
        scores: One a question; higher is more relevant, on any scale.
        answerable: For each question whether it is; there is one of either kind in the rest of every fold.
        fold: For each question the number of its fold.
        aims: The shares.
    """
    cuts, *why_not = _cut(scores, answerable, aims)
    calls = np.zeros(len(scores), dtype=int)
    for number in np.unique(fold):
        rest = fold != number
        without = _cut(scores[rest], answerable[rest], aims)[0]
        calls[~rest] = (scores[~rest] > without.upper).astype(int) - (scores[~rest] < without.lower).astype(int)
    reached = []
    kinds: tuple[tuple[Kind, np.ndarray, int, float], ...] = (
        ("answerable", calls[answerable], -1, aims.missed),
        ("unanswerable", calls[~answerable], 1, aims.false),
    )
    for (kind, called, wrong, aim), why in zip(kinds, why_not, strict=True):
        count = int((called == wrong).sum())
        if not why and binomtest(count, len(called), aim, alternative="greater").pvalue < SIGNIFICANCE:
            why = "more than chance explains"
        right = int((called == -wrong).sum())
        reached.append(Reached(rule=rule, kind=kind, aim=aim, wrong=count, right=right, total=len(called), why_not=why))
    return cuts, reached


def _cut(scores: np.ndarray, answerable: np.ndarray, aims: Aims) -> tuple[Thresholds, str, str]:
    """The cuts, and why each doesn't keep its aim, or nothing."""
    lower, missed = _strictest(scores[answerable], scores[~answerable], aims.missed)
    upper, false = _strictest(-scores[~answerable], -scores[answerable], aims.false)
    upper = -upper
    if lower > upper:  # Both aims leave room: one cut in the middle keeps both.
        lower = upper = (lower + upper) / 2
    return Thresholds(lower, upper), missed, false


def _strictest(ours: np.ndarray, others: np.ndarray, aim: float) -> tuple[float, str]:
    """The highest cut with at most the aimed share of new ones of ours below it, and why the aim isn't kept, or nothing.

    A cut that leaves none of the others below it, where many scores are the same, is raised until it does.
    """
    ranked = np.sort(ours)
    place = math.floor(aim * (len(ours) + 1) + 1e-9)
    cut = float(ranked[max(place, 1) - 1])
    lowest = others.min() if len(others) else math.inf
    above = np.concatenate([ours, others])
    above = above[above > lowest]
    if lowest >= cut and len(above):
        return float(above.min()), "a cut that keeps it would call no question of the other kind so"
    return cut, "" if place else f"{len(ours)} questions are too few to tell"
