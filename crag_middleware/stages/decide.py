"""From grades to the turn's verdict: the one place where probabilities are mapped, cut and counted."""

from collections.abc import Sequence
from dataclasses import replace

from crag_middleware.calibration import Calibration, sets_of
from crag_middleware.types import Grade, Label, Thresholds, Verdict, VerdictRule


def calibrated(grade: Grade, calibration: Calibration | None) -> Grade:
    """The grade with the calibrated probability, and the evaluator's own number as `raw`; without a calibration both are that number."""
    raw = grade.probability
    if raw is None or calibration is None:
        return replace(grade, raw=raw)
    return replace(grade, probability=calibration.map(raw), raw=raw)


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


def sufficiency(grades: Sequence[Grade], calibration: Calibration | None) -> float | None:
    """P(the passages together answer the question), from the calibrated grades of those that were graded.

    Returns:
        In [0, 1]; 0 for no passages. None without a calibration that tells it, or if none of the passages could be graded.
    """
    if calibration is None or calibration.sets is None:
        return None
    known = [grade.probability for grade in grades if grade.probability is not None]
    return calibration.sets(known) if known or not grades else None


def decide(grades: Sequence[Grade], *, rule: VerdictRule = "paper", calibration: Calibration | None = None) -> Verdict:
    """The verdict of a turn, from calibrated and labelled grades.

    With the rule `paper`: any passage relevant -> relevant; all incorrect, or none at all -> incorrect; else ambiguous.
    With the rule `set`: `sufficiency`, cut by the set's own thresholds. It is no more than ambiguous if every passage is incorrect by itself, since nothing
    would be kept of them.

    An ungraded passage is neither: it keeps a verdict from being `incorrect` and never makes it `relevant`.

    Raises:
        ConfigError: The rule is `set`, and there is no calibration with a set map.

    Source of `paper`: Yan et al., arXiv 2401.15884, section 4.3.
    """
    labels = {grade.label for grade in grades}
    if rule == "paper":
        if "relevant" in labels:
            return "relevant"
        return "incorrect" if labels <= {"incorrect"} else "ambiguous"
    lower, upper = sets_of(calibration).thresholds
    together = sufficiency(grades, calibration)
    if not grades or (together is not None and together < lower and all(grade.probability is not None for grade in grades)):
        return "incorrect"
    return "relevant" if together is not None and together > upper and labels & {"relevant", "ambiguous"} else "ambiguous"


def could_not_grade(grades: Sequence[Grade]) -> bool:
    """Whether there was something to grade and the evaluator could grade none of it."""
    return bool(grades) and all(grade.label == "ungraded" for grade in grades)
