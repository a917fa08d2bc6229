"""Fitting the maps of a calibration: from an evaluator's number to a probability, and from a set's probabilities to one."""

from collections.abc import Sequence

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from crag_middleware.calibration import IsotonicMap, PlattMap, SetMap, logit, set_features
from crag_middleware.errors import ConfigError

ISOTONIC_PAIRS = 1000
"""Labelled passages from which on the map is isotonic; below, its many steps follow chance more than the two numbers of Platt's.

Source: Niculescu-Mizil and Caruana, "Predicting good probabilities with supervised learning", ICML 2005, section 5, doi:10.1145/1102351.1102430.
"""

SOLVER = "newton-cholesky"
"""Made for few features; the default spends its time on threads for vectors of three numbers."""

Map = PlattMap | IsotonicMap


def fit_map(pairs: Sequence[tuple[float, bool]]) -> Map:
    """P(relevant) as a strictly rising function of the evaluator's number, never 0 or 1; Platt's below `ISOTONIC_PAIRS` pairs, else isotonic.

    Raises:
        ConfigError: The numbers don't rise with relevance.
    """
    raw = np.array([round(number, 6) for number, _ in pairs])
    relevant = np.array([label for _, label in pairs])
    platt = _platt(raw, relevant)
    return platt if len(pairs) < ISOTONIC_PAIRS else _isotonic(raw, relevant)


def _platt(raw: np.ndarray, relevant: np.ndarray) -> PlattMap:
    """Platt's two numbers, fitted to his targets, which stay clear of 0 and 1: (n + 1) / (n + 2) for relevant and 1 / (m + 2) for others."""
    n, m = int(relevant.sum()), int((~relevant).sum())
    target = np.where(relevant, (n + 1) / (n + 2), 1 / (m + 2))
    x = np.array([[logit(number)] for number in raw])
    if np.ptp(x) == 0:
        raise _no_signal()
    both, labels = np.concatenate([x, x]), np.repeat([1, 0], len(raw))
    model = LogisticRegression(C=np.inf, solver=SOLVER).fit(both, labels, sample_weight=np.concatenate([target, 1 - target]))
    slope, offset = float(model.coef_[0, 0]), float(model.intercept_[0])
    if not slope > 1e-3:
        raise _no_signal()
    return PlattMap(slope=round(slope, 6), offset=round(offset, 6))


def _no_signal() -> ConfigError:
    msg = "the evaluator's numbers don't rise with relevance on this data; there is nothing to calibrate: try another evaluator, or look at the labels"
    return ConfigError(msg, reason="no_signal")


def _isotonic(raw: np.ndarray, relevant: np.ndarray) -> IsotonicMap:
    """Isotonic regression with Laplace's rule at both ends (one passage of each label at 0 and at 1), each of its steps drawn together to its centre.

    Beyond the outer centres it goes on half the way to 0 and to 1, so that it rises strictly everywhere and keeps the evaluator's order.

    Source: Oron and Flournoy, "Centered isotonic regression", Statistics in Biopharmaceutical Research 9(3), 2017, doi:10.1080/19466315.2017.1286256.
    """
    x, y = np.concatenate([raw, [0, 0, 1, 1]]), np.concatenate([relevant, [0, 1, 0, 1]])
    steps = IsotonicRegression(y_min=0, y_max=1).fit(x, y).predict(x).round(6)
    points = {float(step): round(float(x[steps == step].mean()), 6) for step in np.unique(steps)}
    curve = {0.0: min(points) / 2, 1.0: (1 + max(points)) / 2} | {at: value for value, at in points.items()}
    at = sorted(curve)
    return IsotonicMap(at=tuple(at), value=tuple(curve[x] for x in at))


def fit_set_map(sets: Sequence[Sequence[float]], answerable: np.ndarray) -> SetMap | None:
    """P(the passages together answer), by regularised logistic regression; its thresholds are still to be chosen.

    A feature whose weight would be negative is left out (`SetMap` says why).

    Args:
        sets: The calibrated probabilities of each question's passages; none empty.
        answerable: For each question whether it is; both occur.

    Returns:
        None if no feature is left.
    """
    features = np.array([set_features(probabilities) for probabilities in sets])
    kept = list(range(features.shape[1]))
    while kept:
        model = LogisticRegression(C=1.0, solver=SOLVER).fit(features[:, kept], answerable)
        weights = dict(zip(kept, map(float, model.coef_[0]), strict=True))
        if min(weights.values()) >= 0:
            found = tuple(round(weights.get(i, 0.0), 6) for i in range(features.shape[1]))
            return SetMap(offset=round(float(model.intercept_[0]), 6), weights=found, thresholds=(0, 1))
        kept = [i for i in kept if weights[i] >= 0]
    return None
