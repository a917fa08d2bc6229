"""From grades to the turn's verdict: the one place where probabilities are cut and counted."""

from collections.abc import Sequence
from dataclasses import replace

from crag_middleware.types import Grade, Label, Thresholds, Verdict


def label(grade: Grade, thresholds: Thresholds) -> Grade:
    """The grade with the label that its probability has under these thresholds.

    A probability on a threshold is `ambiguous`. Without a probability the evaluator's own label stays.
    """
    if grade.probability is None:
        return grade
    cut: Label = "ambiguous"
    if grade.probability > thresholds.upper:
        cut = "relevant"
    elif grade.probability < thresholds.lower:
        cut = "incorrect"
    return grade if grade.label == cut else replace(grade, label=cut)


def decide(grades: Sequence[Grade]) -> Verdict:
    """The verdict of a turn: any passage relevant -> relevant; all incorrect, or none at all -> incorrect; else ambiguous.

    An ungraded passage is neither: it keeps a verdict from being `incorrect` and never makes it `relevant`.

    Source: Yan et al., arXiv 2401.15884, section 4.3.
    """
    labels = {grade.label for grade in grades}
    if "relevant" in labels:
        return "relevant"
    return "incorrect" if labels <= {"incorrect"} else "ambiguous"


def could_not_grade(grades: Sequence[Grade]) -> bool:
    """Whether there was something to grade and the evaluator could grade none of it."""
    return bool(grades) and all(grade.label == "ungraded" for grade in grades)
