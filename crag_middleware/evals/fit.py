"""Fitting a calibration: the map, the thresholds for stated aims, and P(the passages together answer), from graded and labelled questions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.model_selection import KFold

from crag_middleware.calibration import Calibration, SetMap
from crag_middleware.errors import ConfigError
from crag_middleware.evals.aims import Aims, Reached, choose
from crag_middleware.evals.datasets import is_negative
from crag_middleware.evals.maps import Map, fit_map, fit_set_map
from crag_middleware.evals.rows import Row
from crag_middleware.types import EvaluatorKey

FOLDS = 5
MIN_QUESTIONS = 30
"""Questions that a calibration needs, and below them, `MIN_EACH` that are answerable, as many that are not, and as many passages of either label."""

MIN_EACH = 10

MIN_EACH_FOR_SETS = 30
"""Answerable questions, and unanswerable ones, that a set map needs: ten for each of its weights.

Source: Peduzzi et al., "A simulation study of the number of events per variable in logistic regression analysis", 1996, doi:10.1016/S0895-4356(96)00236-3.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A calibration, and how it was come by.

    Attributes:
        calibration: The calibration.
        reached: What became of each aim, under either rule.
        ungraded: Passages that the evaluator could not grade; they are left out of the map. Those of a failed question count.
        left_out: Questions left out of the thresholds, since a passage of theirs is ungraded or nobody said whether they can be answered.
        notes: What else to know.
    """

    calibration: Calibration
    reached: tuple[Reached, ...]
    ungraded: int
    left_out: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sets:
    """Questions for the thresholds: their numbers, whether they can be answered, and their folds."""

    numbers: tuple[tuple[float, ...], ...]
    answerable: np.ndarray
    fold: np.ndarray

    def mapped(self, fitted: Map) -> list[list[float]]:
        return [list(map(fitted, numbers)) for numbers in self.numbers]


def fit(
    rows: Sequence[Row],
    *,
    key: EvaluatorKey,
    fitted_on: str,
    aims: Aims | None = None,
    collection: str = "",
    tenant: str | None = None,
) -> Fitted:
    """A calibration from graded and labelled questions.

    Probabilities are right for passages of which as many are relevant, and questions of which as many are answerable, as here (`prior`).

    Where there are fewer than `MIN_EACH` unanswerable questions, the others without their relevant passages stand in for them.

    Args:
        rows: Of one evaluator, in any order; the ids differ.
        key: Whose probabilities they are.
        fitted_on: The data, with its licence.
        aims: What the thresholds are chosen for.
        collection: The collection that the calibration is for; empty for any.
        tenant: The tenant that it is for; None for any.

    Raises:
        ConfigError: There are too few questions, or only one kind, or the evaluator's numbers don't rise with relevance.
    """
    aims = aims or Aims()
    graded = sorted((row for row in rows if not row.error), key=lambda row: row.id)
    pairs = _pairs(graded)
    answerable, unanswerable, notes = _kinds(graded)
    _check_enough(graded, pairs, answerable, unanswerable)

    fold_of = {graded[i].id: fold for fold, (_, held) in enumerate(_folds(len(graded))) for i in held}
    used = [*answerable, *unanswerable]
    sets = _Sets(
        tuple(tuple(p for p in row.probabilities if p is not None) for row in used),
        np.array([True] * len(answerable) + [False] * len(unanswerable)),
        np.array([fold_of[row.id] for row in used]),
    )
    fitted_map = fit_map(pairs)
    best = np.array([max(numbers) for numbers in sets.numbers])
    cuts, reached = choose("paper", best, sets.answerable, sets.fold, aims)
    set_map: SetMap | None = None
    if min(len(answerable), len(unanswerable)) < MIN_EACH_FOR_SETS:
        notes.append(f"no set map: it needs {MIN_EACH_FOR_SETS} answerable and as many unanswerable questions")
    else:
        maps = [fit_map(_pairs([row for row in graded if fold_of[row.id] != fold])) for fold in range(FOLDS)]
        set_map, by_set = _fit_sets(sets, fitted_map, maps, aims)
        reached += by_set
        if set_map is None:
            notes.append("no set map: the grades of a set don't tell whether it answers")
    calibration = Calibration(
        evaluator=key.evaluator,
        model=key.model,
        prompt=key.prompt,
        collection=collection,
        tenant=tenant,
        map=fitted_map,
        thresholds=(fitted_map(cuts.lower), fitted_map(cuts.upper)),
        sets=set_map,
        prior=round(sum(relevant for _, relevant in pairs) / len(pairs), 4),
        aims=(*map(str, reached), *notes),
        fitted_on=fitted_on,
        pairs=len(pairs),
        questions=len(graded),
    )
    known = {row.id for row in used}
    return Fitted(
        calibration=calibration,
        reached=tuple(reached),
        ungraded=sum(len(row.labels) if row.error else row.probabilities.count(None) for row in rows),
        left_out=sum(row.id not in known for row in rows),
        notes=tuple(notes),
    )


def _pairs(rows: Sequence[Row]) -> list[tuple[float, bool]]:
    """The passages that are graded and labelled; every passage of an unanswerable question is irrelevant."""
    found = []
    for row in rows:
        for probability, label in zip(row.probabilities, row.labels, strict=True):
            if probability is not None and (label or is_negative(label, row.answerable)):
                found.append((float(probability), label is True))
    return found


def _kinds(rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[str]]:
    """Answerable and unanswerable questions with all passages graded, and how the latter were come by."""
    graded = [row for row in rows if row.probabilities and None not in row.probabilities]
    answerable = [row for row in graded if row.answerable is True]
    unanswerable = [row for row in graded if row.answerable is False]
    if len(unanswerable) >= MIN_EACH:
        return answerable, unanswerable, []
    made = [row for row in map(_without_relevant, answerable) if row.probabilities]
    note = f"unanswerable questions: {len(unanswerable)}, and {len(made)} answerable ones without their relevant passages"
    return answerable, [*unanswerable, *made], [note] if made else []


def _without_relevant(row: Row) -> Row:
    """The same question, made unanswerable: only the passages that are known to be irrelevant."""
    kept = [i for i, label in enumerate(row.labels) if is_negative(label, row.answerable)]
    return replace(
        row, probabilities=tuple(row.probabilities[i] for i in kept), labels=tuple(row.labels[i] for i in kept), answerable=False
    )


def _check_enough(rows: Sequence[Row], pairs: Sequence[tuple[float, bool]], answerable: Sequence[Row], unanswerable: Sequence[Row]) -> None:
    relevant = sum(label for _, label in pairs)
    counts = (relevant, len(pairs) - relevant, len(answerable), len(unanswerable))
    if len(rows) >= MIN_QUESTIONS and min(counts) >= MIN_EACH:
        return
    msg = (
        f"a calibration needs {MIN_QUESTIONS} graded questions, and {MIN_EACH} each of passages labelled relevant and incorrect and of answerable and "
        f"unanswerable questions; got {len(rows)} questions, {counts[0]} relevant and {counts[1]} incorrect passages, {counts[2]} answerable "
        f"and {counts[3]} unanswerable questions; add data, or have a judge label it"
    )
    raise ConfigError(msg, reason="too_little_data")


def _folds(count: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    folds: Iterable[tuple[np.ndarray, np.ndarray]] = KFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(count))
    return folds


def _fit_sets(sets: _Sets, fitted: Map, maps: Sequence[Map], aims: Aims) -> tuple[SetMap | None, list[Reached]]:
    """The set map, with thresholds chosen on the numbers of maps that did not see the question; None if it would tell nothing."""
    held = np.zeros(len(sets.fold))
    for fold, other in enumerate(maps):
        mapped, out = sets.mapped(other), sets.fold == fold
        without = fit_set_map([some for some, held_out in zip(mapped, out, strict=True) if not held_out], sets.answerable[~out])
        if without is None:
            return None, []
        held[out] = [without(some) for some, held_out in zip(mapped, out, strict=True) if held_out]
    set_map = fit_set_map(sets.mapped(fitted), sets.answerable)
    if set_map is None:
        return None, []
    cuts, reached = choose("set", held, sets.answerable, sets.fold, aims)
    prior = round(float(sets.answerable.mean()), 4)
    return set_map.model_copy(update={"thresholds": (cuts.lower, cuts.upper), "prior": prior}), reached
