"""From an evaluator's raw numbers to grades and verdicts, by the same functions that the corrective pass uses."""

from collections.abc import Sequence
from dataclasses import dataclass

from crag_middleware.adapters.given import calibration_of, evaluator_key, thresholds_of
from crag_middleware.calibration import Calibration, Scale, check_fits
from crag_middleware.evals.datasets import is_negative
from crag_middleware.evals.rows import Row
from crag_middleware.stages.decide import calibrated, decide, label, sufficiency
from crag_middleware.types import Grade, Verdict


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the passages of one question add up to.

    Attributes:
        verdict: By the rule `paper`.
        highest: The highest probability of a passage; None if none could be graded.
        by_set: The verdict by the rule `set`; None without a calibration that tells it.
        together: P(the passages together answer the question); None as `by_set`, and if none could be graded.
    """

    verdict: Verdict
    highest: float | None
    by_set: Verdict | None
    together: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """One question's row with its calibrated grades.

    Attributes:
        row: As the evaluator graded it.
        grades: Calibrated and labelled, in the passages' order.
        ruling: For all passages.
        negatives: For those passages alone that are known not to answer; None if there are none.
    """

    row: Row
    grades: tuple[Grade, ...]
    ruling: Ruling
    negatives: Ruling | None


def scale_of(evaluator: object, calibration: Calibration | None = None) -> Scale:
    """What an evaluator's numbers go through: the given calibration, else its own, else its own thresholds alone.

    Raises:
        ConfigError: The calibration belongs to another evaluator.
    """
    if calibration is not None:
        check_fits(calibration, evaluator_key(evaluator), collection=calibration.collection)
    used = calibration or calibration_of(evaluator)
    return Scale(used.cuts if used else thresholds_of(evaluator), used)


def judge(row: Row, scale: Scale) -> Judged:
    """The row's grades and verdicts on that scale; the row must not have failed."""
    raw = (Grade(str(n), p, own) for n, (p, own) in enumerate(zip(row.probabilities, row.stated, strict=True)))
    grades = tuple(label(calibrated(grade, scale.calibration), scale.thresholds) for grade in raw)
    negatives = [grade for grade, said in zip(grades, row.labels, strict=True) if is_negative(said, row.answerable)]
    return Judged(row, grades, _rule(grades, scale), _rule(negatives, scale) if negatives else None)


def _rule(grades: Sequence[Grade], scale: Scale) -> Ruling:
    by_set = None
    if scale.calibration is not None and scale.calibration.sets is not None:
        by_set = decide(grades, rule="set", calibration=scale.calibration)
    highest = max((g.probability for g in grades if g.probability is not None), default=None)
    return Ruling(decide(grades), highest, by_set, sufficiency(grades, scale.calibration))
