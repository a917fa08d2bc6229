"""Statistics of labelled grades, for a sample and for thousands of resamples of its questions at once.

A statistic is a function of weights: one row for each resample, one column for each question, how often the question was drawn. scikit-learn has these
statistics for one sample; here they are matrix products, which makes a bootstrap over questions a matter of milliseconds.
Where it is undefined, such as an AUC without both kinds, a statistic is NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indexes = NDArray[np.intp]
Flags = NDArray[np.bool_]
Statistic = Callable[[Array], Array]

RESAMPLES = 2000
LEVEL = 0.95
"""How many resamples a confidence interval is made from, and how often such intervals hold the true value."""

BINS = 10
"""Of equal width, for the calibration error."""

CHUNK = 100
"""Resamples computed at a time; limits memory for large sets."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of the sample, with the ends of its confidence interval; those are None for fewer than two questions."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """How much a statistic of the second of two runs exceeds the first's, with a confidence interval and a two-sided p-value."""

    value: float
    low: float
    high: float
    p: float


def estimate(statistic: Statistic, questions: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate | None:
    """The statistic with the percentile bootstrap interval over questions; None if it is undefined for the sample.

    Passages of one question are drawn together, since their grades depend on each other. Resamples for which it is undefined are left out.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.
    """
    return estimates(lambda weights: statistic(weights)[:, None], questions, resamples=resamples, seed=seed)[0]


def estimates(statistics: Statistic, questions: int, *, resamples: int = RESAMPLES, seed: int = 0) -> list[Estimate | None]:
    """As `estimate`, of many numbers on the same resamples: `statistics` gives a row for each resample, with a column for each number."""
    sample = statistics(np.ones((1, questions)))[0]
    known = np.flatnonzero(~np.isnan(sample))
    found: list[Estimate | None] = [None] * len(sample)
    if questions < 2:
        ends = [(None, None)] * len(known)
    else:
        drawn = _resampled(lambda weights: statistics(weights)[:, known], questions, resamples, seed)
        ends = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0).T.tolist()
    for n, (low, high) in zip(known, ends, strict=True):
        found[n] = Estimate(float(sample[n]), low, high)
    return found


def difference(first: Statistic, second: Statistic, questions: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Difference | None:
    """The second minus the first on the same questions, by the paired bootstrap; None if either is undefined, or with fewer than two questions.

    The p-value is twice the share of resamples on which the difference is not on its own side of 0, counting the sample itself: never below
    2 / (resamples + 1). Swapping the runs' grades, as a permutation test does, would not do: two evaluators' scores have no common scale, so grades of
    one can't stand in for the other's in a statistic over all questions.

    Source: Efron and Tibshirani, 1993, chapters 13 and 16; for paired systems Berg-Kirkpatrick et al., EMNLP 2012, D12-1091.
    """

    def between(weights: Array) -> Array:
        return second(weights) - first(weights)

    value = _of_sample(between, questions) if questions > 1 else np.nan
    if np.isnan(value):
        return None
    found = _resampled(between, questions, resamples, seed)
    found = found[~np.isnan(found)]
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    tail = min(np.sum(found <= 0), np.sum(found >= 0))
    return Difference(value, float(low), float(high), float(min(1.0, 2 * (tail + 1) / (len(found) + 1))))


def auc(question: Indexes, score: Array, truth: Flags) -> Statistic:
    """How often a true case scores above a false one, over all questions together; ties count half.

    Args:
        question: For each case the question it belongs to.
        score: For each case; on any scale.
        truth: For each case.
    """
    order = np.argsort(score, kind="stable")
    ranked, owner, true = score[order], question[order], truth[order].astype(float)
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, dtype=np.intp)

    def statistic(weights: Array) -> Array:
        if not len(starts):
            return np.full(len(weights), np.nan)
        drawn = weights[:, owner]
        trues = np.add.reduceat(drawn * true, starts, axis=1)
        falses = np.add.reduceat(drawn * (1 - true), starts, axis=1)
        below = np.cumsum(falses, axis=1) - falses / 2
        return _ratio((trues * below).sum(1), trues.sum(1) * falses.sum(1))

    return statistic


def balanced_accuracy(question: Indexes, called: Flags, truth: Flags, questions: int) -> Statistic:
    """The mean of the shares of true and of false cases that were called so."""
    table = _confusion(question, called, truth, questions)

    def statistic(weights: Array) -> Array:
        tp, fn, fp, tn = (weights @ table).T
        return (_ratio(tp, tp + fn) + _ratio(tn, tn + fp)) / 2

    return statistic


def macro_f1(question: Indexes, called: Flags, truth: Flags, questions: int) -> Statistic:
    """The mean of both kinds' F1; undefined without both kinds of truth."""
    table = _confusion(question, called, truth, questions)

    def statistic(weights: Array) -> Array:
        tp, fn, fp, tn = (weights @ table).T
        both = np.where((tp + fn > 0) & (tn + fp > 0), 0.5, np.nan)
        return both * (_ratio(2 * tp, 2 * tp + fp + fn) + _ratio(2 * tn, 2 * tn + fp + fn))

    return statistic


def calibration_error(question: Indexes, probability: Array, truth: Flags, questions: int) -> Statistic:
    """The expected calibration error: the mean distance, weighed by size, between probability and truth in `BINS` bins of equal width.

    Source: Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, arXiv 1706.04599, equation 3.
    """
    gaps = np.zeros((questions, BINS))
    np.add.at(gaps, (question, bins(probability)), truth - probability)
    cases = np.bincount(question, minlength=questions).astype(float)
    return lambda weights: _ratio(np.abs(weights @ gaps).sum(1), weights @ cases)


def share(question: Indexes, called: Flags, questions: int) -> Statistic:
    """The share of cases that were called so."""
    hits = np.bincount(question, weights=called.astype(float), minlength=questions)
    cases = np.bincount(question, minlength=questions).astype(float)
    return lambda weights: _ratio(weights @ hits, weights @ cases)


def largest_share(kind: Indexes, kinds: int) -> Statistic:
    """The share of the most frequent kind, where each question is of one kind."""
    table = np.eye(kinds)[kind]
    return lambda weights: _ratio((weights @ table).max(1), weights.sum(1))


def bins(probability: Array, count: int = BINS) -> Indexes:
    """The bin each probability falls into, counted from 0; 1 belongs to the last."""
    return np.minimum((probability * count).astype(np.intp), count - 1)


def _confusion(question: Indexes, called: Flags, truth: Flags, questions: int) -> Array:
    """For each question how many cases are true and called so, true and not called so, false and called true, false and not called true."""
    table = np.zeros((questions, 4))
    np.add.at(table, (question, 2 * ~truth + ~called), 1)
    return table


def _ratio(above: Array, below: Array) -> Array:
    quotient: Array = np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
    return quotient


def _of_sample(statistic: Statistic, questions: int) -> float:
    return float(statistic(np.ones((1, questions)))[0])


def _resampled(statistic: Statistic, questions: int, resamples: int, seed: int) -> Array:
    chance = np.random.default_rng(seed)
    even = np.full(questions, 1 / questions)
    sizes = [min(CHUNK, resamples - begun) for begun in range(0, resamples, CHUNK)]
    return np.concatenate([statistic(chance.multinomial(questions, even, size=size).astype(float)) for size in sizes])
