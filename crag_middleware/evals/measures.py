"""What is measured of a data set, by name: for people and as a statistic of its judged questions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crag_middleware.evals import statistics
from crag_middleware.evals.datasets import is_negative
from crag_middleware.evals.judge import Judged, Ruling
from crag_middleware.evals.statistics import Array, Flags, Indexes, Statistic
from crag_middleware.types import Grade, Verdict, VerdictRule

VERDICTS: tuple[Verdict, ...] = ("relevant", "ambiguous", "incorrect")


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a report.

    Attributes:
        name: In the JSON.
        title: In a table.
        meaning: What it is, in a sentence.
        better: Which way is good.
        of: The statistic over judged questions; None where nothing of what it needs is known.
        compared: Whether two runs are compared by it.
    """

    name: str
    title: str
    meaning: str
    better: Literal["higher", "lower"]
    of: Callable[[Sequence[Judged]], Statistic | None]
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Cases:
    """Passages of all questions in a row: whose question, what is true, and the grade."""

    question: Indexes
    truth: Flags
    grades: tuple[Grade, ...]

    @property
    def probability(self) -> Array:
        """Of each; only where all have one."""
        return np.array([g.probability for g in self.grades], dtype=float)

    def called(self, label: str) -> Flags:
        """Whether each has this label."""
        return np.array([g.label == label for g in self.grades], dtype=bool)


def labelled(judged: Sequence[Judged], *, numbered: bool = False) -> Cases:
    """The passages that somebody labelled and the evaluator graded, or, `numbered`, gave a probability."""
    found = [
        (n, said, grade)
        for n, one in enumerate(judged)
        for said, grade in zip(one.row.labels, one.grades, strict=True)
        if said is not None and grade.label != "ungraded" and not (numbered and grade.probability is None)
    ]
    return _cases(found)


def _negatives(judged: Sequence[Judged]) -> Cases:
    return _cases(
        [
            (n, False, grade)
            for n, one in enumerate(judged)
            for said, grade in zip(one.row.labels, one.grades, strict=True)
            if is_negative(said, one.row.answerable)
        ]
    )


def _cases(found: Sequence[tuple[int, bool, Grade]]) -> Cases:
    return Cases(
        np.array([n for n, _, _ in found], dtype=np.intp), np.array([t for _, t, _ in found], dtype=bool), tuple(g for _, _, g in found)
    )


def _passage_auc(judged: Sequence[Judged]) -> Statistic:
    cases = labelled(judged, numbered=True)
    return statistics.auc(cases.question, cases.probability, cases.truth)


def _passage_error(judged: Sequence[Judged]) -> Statistic:
    cases = labelled(judged, numbered=True)
    return statistics.calibration_error(cases.question, cases.probability, cases.truth, len(judged))


def _passages(
    kind: Callable[[Indexes, Flags, Flags, int], Statistic], cut: Literal["relevant", "incorrect"]
) -> Callable[[Sequence[Judged]], Statistic]:
    """`relevant` against the rest, or `incorrect` against the rest, where the cases that should be kept are the true ones."""

    def of(judged: Sequence[Judged]) -> Statistic:
        cases = labelled(judged)
        called = cases.called("relevant") if cut == "relevant" else ~cases.called("incorrect")
        return kind(cases.question, called, cases.truth, len(judged))

    return of


def _turns(judged: Sequence[Judged]) -> tuple[Indexes, Flags, list[Ruling]]:
    """The questions of which it is known whether their passages answer them."""
    known = [(n, one.row.answerable, one.ruling) for n, one in enumerate(judged) if one.row.answerable is not None]
    return np.array([n for n, _, _ in known], dtype=np.intp), np.array([t for _, t, _ in known], dtype=bool), [r for _, _, r in known]


def _turn_auc(of_ruling: Callable[[Ruling], float | None]) -> Callable[[Sequence[Judged]], Statistic | None]:
    def of(judged: Sequence[Judged]) -> Statistic | None:
        question, truth, rulings = _turns(judged)
        scores = [of_ruling(ruling) for ruling in rulings]
        kept = np.array([score is not None for score in scores], dtype=bool)
        if not kept.any():
            return None
        return statistics.auc(question[kept], np.array([s for s in scores if s is not None]), truth[kept])

    return of


def _verdict(rule: VerdictRule, ruling: Ruling) -> Verdict | None:
    return ruling.verdict if rule == "paper" else ruling.by_set


def _turn_accuracy(rule: VerdictRule, cut: Literal["relevant", "incorrect"]) -> Callable[[Sequence[Judged]], Statistic | None]:
    def of(judged: Sequence[Judged]) -> Statistic | None:
        question, truth, rulings = _turns(judged)
        verdicts = [_verdict(rule, ruling) for ruling in rulings]
        if None in verdicts:
            return None
        called = np.array([(v == "relevant") if cut == "relevant" else (v != "incorrect") for v in verdicts], dtype=bool)
        return statistics.balanced_accuracy(question, called, truth, len(judged))

    return of


def _largest(rule: VerdictRule) -> Callable[[Sequence[Judged]], Statistic | None]:
    def of(judged: Sequence[Judged]) -> Statistic | None:
        verdicts = [_verdict(rule, one.ruling) for one in judged]
        kinds = [VERDICTS.index(v) for v in verdicts if v is not None]
        return statistics.largest_share(np.array(kinds, dtype=np.intp), len(VERDICTS)) if len(kinds) == len(verdicts) else None

    return of


def _false_passages(judged: Sequence[Judged]) -> Statistic:
    cases = _negatives(judged)
    return statistics.share(cases.question, cases.called("relevant"), len(judged))


def _false_turns(rule: VerdictRule) -> Callable[[Sequence[Judged]], Statistic | None]:
    def of(judged: Sequence[Judged]) -> Statistic | None:
        verdicts = [(n, _verdict(rule, one.negatives)) for n, one in enumerate(judged) if one.negatives is not None]
        if any(verdict is None for _, verdict in verdicts):
            return None
        question = np.array([n for n, _ in verdicts], dtype=np.intp)
        return statistics.share(question, np.array([v == "relevant" for _, v in verdicts], dtype=bool), len(judged))

    return of


MEASURES = (
    Measure("passage_auc", "Passage AUC", "How often a relevant passage scores above an incorrect one.", "higher", _passage_auc, True),
    Measure(
        "passage_relevant_accuracy",
        "Balanced accuracy, upper cut",
        "Of passages: “relevant” (above the upper threshold) against the rest.",
        "higher",
        _passages(statistics.balanced_accuracy, "relevant"),
        True,
    ),
    Measure(
        "passage_relevant_f1",
        "Macro-F1, upper cut",
        "Of passages: “relevant” against the rest.",
        "higher",
        _passages(statistics.macro_f1, "relevant"),
    ),
    Measure(
        "passage_incorrect_accuracy",
        "Balanced accuracy, lower cut",
        "Of passages: the rest against “incorrect” (below the lower threshold).",
        "higher",
        _passages(statistics.balanced_accuracy, "incorrect"),
        True,
    ),
    Measure(
        "passage_incorrect_f1",
        "Macro-F1, lower cut",
        "Of passages: the rest against “incorrect”.",
        "higher",
        _passages(statistics.macro_f1, "incorrect"),
    ),
    Measure(
        "passage_ece",
        "Calibration error (ECE)",
        f"Mean distance between probability and share of relevant passages, {statistics.BINS} bins of equal width (Guo et al. 2017).",
        "lower",
        _passage_error,
    ),
    Measure(
        "false_passages",
        "False alarms, passages",
        "Share of the passages known not to answer that are called “relevant”.",
        "lower",
        _false_passages,
    ),
    Measure(
        "turn_auc",
        "Answerable AUC, best passage",
        "How often the best passage of an answerable question scores above that of an unanswerable one.",
        "higher",
        _turn_auc(lambda ruling: ruling.highest),
        True,
    ),
    Measure(
        "turn_relevant_accuracy",
        "Answerable, verdict relevant",
        "Balanced accuracy of taking the verdict “relevant” for answerable and the rest for not.",
        "higher",
        _turn_accuracy("paper", "relevant"),
        True,
    ),
    Measure(
        "turn_incorrect_accuracy",
        "Answerable, verdict not incorrect",
        "Balanced accuracy of taking the verdict “incorrect” for unanswerable and the rest for answerable.",
        "higher",
        _turn_accuracy("paper", "incorrect"),
        True,
    ),
    Measure("turn_largest_share", "Largest verdict share", "Share of the most frequent verdict.", "lower", _largest("paper")),
    Measure(
        "false_turns",
        "False alarms, turns",
        "Share of questions with the verdict “relevant” on only the passages known not to answer, graded as they were beside the others.",
        "lower",
        _false_turns("paper"),
    ),
    Measure(
        "set_auc",
        "Set: answerable AUC",
        "As above, by P(the passages together answer).",
        "higher",
        _turn_auc(lambda ruling: ruling.together),
        True,
    ),
    Measure(
        "set_relevant_accuracy",
        "Set: answerable, verdict relevant",
        "As above, with the verdict cut from P(the passages together answer) at its upper threshold.",
        "higher",
        _turn_accuracy("set", "relevant"),
        True,
    ),
    Measure(
        "set_incorrect_accuracy",
        "Set: answerable, verdict not incorrect",
        "The same at its lower threshold.",
        "higher",
        _turn_accuracy("set", "incorrect"),
        True,
    ),
    Measure("set_largest_share", "Set: largest verdict share", "Share of the most frequent of these verdicts.", "lower", _largest("set")),
    Measure("set_false_turns", "Set: false alarms, turns", "As above, with these verdicts.", "lower", _false_turns("set")),
)
"""In the order of a report. `set_` ones exist with a calibration that tells P(the passages together answer)."""
