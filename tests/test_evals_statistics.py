"""Statistics of labelled grades: against hand-worked numbers, against scikit-learn, and by their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from crag_middleware.evals import statistics
from crag_middleware.evals.statistics import Array, Statistic


def value(statistic: Statistic, *weights: float) -> float:
    return float(statistic(np.array([weights], dtype=float))[0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Array, Array, Array, Array]:
    """For each passage its question, score and truth, both kinds among them; and how often each question is drawn."""
    questions = draw(st.integers(1, 6))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, questions - 1), st.sampled_from([0.0, 0.2, 0.5, 0.50001, 1.0]), st.booleans()), min_size=1, max_size=25
        )
    )
    weights = draw(st.lists(st.integers(0, 3), min_size=questions, max_size=questions))
    question, score, truth = (np.array(column) for column in zip(*rows, strict=True))
    return question, score.astype(float), truth.astype(bool), np.array(weights, dtype=float)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_statistic_of_a_resample_is_scikit_learns_of_the_same_cases(drawn: tuple[Array, Array, Array, Array]) -> None:
    question, score, truth, weights = drawn
    times = weights[question].astype(int)
    said, true = np.repeat(score, times), np.repeat(truth, times)
    called = score > 0.4
    n = len(weights)

    found = [
        value(statistics.auc(question, score, truth), *weights),
        value(statistics.balanced_accuracy(question, called, truth, n), *weights),
        value(statistics.macro_f1(question, called, truth, n), *weights),
    ]

    if len(set(true.tolist())) < 2:
        assert np.isnan(found).all()
    else:
        wanted = [
            roc_auc_score(true, said),
            balanced_accuracy_score(true, said > 0.4),
            f1_score(true, said > 0.4, average="macro"),
        ]
        assert found == pytest.approx(wanted)


@given(cases())
@settings(max_examples=50, deadline=None)
def test_auc_asks_for_the_order_of_the_scores_only(drawn: tuple[Array, Array, Array, Array]) -> None:
    question, score, truth, weights = drawn

    stretched = [value(statistics.auc(question, s, truth), *weights) for s in (score, np.exp(3 * score) - 7, -score)]

    assert stretched[1] == pytest.approx(stretched[0], nan_ok=True)
    assert stretched[2] == pytest.approx(1 - stretched[0], nan_ok=True)


def test_calibration_error_by_hand() -> None:
    """Bin 0.1-0.2 holds two passages at 0.15, one relevant: a gap of 0.35. The last bin holds 1.0 and 0.95, both relevant: 0.025. Halves: 0.1875."""
    probability = np.array([0.15, 0.15, 1.0, 0.95])
    truth = np.array([True, False, True, True])

    error = statistics.calibration_error(np.array([0, 0, 1, 1]), probability, truth, 2)

    assert value(error, 1, 1) == pytest.approx(0.1875)
    assert value(error, 1, 0) == pytest.approx(0.35)
    assert value(error, 0, 4) == pytest.approx(0.025)


def test_shares_by_hand() -> None:
    assert value(statistics.share(np.array([0, 0, 2]), np.array([True, False, True]), 3), 1, 1, 1) == pytest.approx(2 / 3)
    assert value(statistics.largest_share(np.array([0, 1, 1, 2]), 3), 1, 1, 1, 1) == pytest.approx(0.5)
    assert value(statistics.largest_share(np.array([0, 1, 1, 2]), 3), 3, 1, 0, 0) == pytest.approx(0.75)


def test_nothing_at_all_is_undefined_and_no_error() -> None:
    none = np.zeros(0, dtype=np.intp)
    flags = np.zeros(0, dtype=bool)

    assert statistics.estimate(statistics.auc(none, np.zeros(0), flags), 3) is None
    assert statistics.estimate(statistics.share(none, flags, 3), 3) is None
    assert statistics.estimate(statistics.calibration_error(none, np.zeros(0), flags, 3), 3) is None


def share_of(hits: Array) -> Statistic:
    return statistics.share(np.arange(len(hits)), hits, len(hits))


def test_an_interval_holds_the_true_share_about_as_often_as_it_says() -> None:
    """200 samples of 60 questions of which 70 % are hits, with intervals for 95 %."""
    chance = np.random.default_rng(7)
    samples = [chance.random(60) < 0.7 for _ in range(200)]

    found = [statistics.estimate(share_of(hits), 60, resamples=400) for hits in samples]

    held = [e.low <= 0.7 <= e.high for e in found if e is not None and e.low is not None and e.high is not None]
    assert 0.88 <= sum(held) / 200 <= 0.99


def test_questions_are_drawn_whole() -> None:
    """Ten passages of one question that all fare alike tell no more than one: the interval must not shrink."""
    hits = np.arange(20) % 2 == 0
    lone = statistics.estimate(share_of(hits), 20)
    crowd = statistics.estimate(statistics.share(np.repeat(np.arange(20), 10), np.repeat(hits, 10), 20), 20)

    assert lone == crowd


def test_the_same_seed_gives_the_same_interval_and_one_question_gives_none() -> None:
    hits = np.array([True, False, True, True, False])

    first, again, other = (statistics.estimate(share_of(hits), 5, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first is not None
    assert other is not None
    assert first.low is not None
    assert first.low <= first.value == other.value == pytest.approx(0.6)
    assert statistics.estimate(share_of(hits[:1]), 1) == statistics.Estimate(1.0, None, None)


def test_a_pair_shows_a_difference_that_two_intervals_hide() -> None:
    """The second run is right wherever the first is, and on six questions more."""
    chance = np.random.default_rng(3)
    first = chance.random(60) < 0.5
    second = first.copy()
    second[np.flatnonzero(~first)[:6]] = True

    found = statistics.difference(share_of(first), share_of(second), 60)
    back = statistics.difference(share_of(second), share_of(first), 60)
    ends = [statistics.estimate(share_of(hits), 60) for hits in (first, second)]

    assert found is not None
    assert back is not None
    assert ends[0] is not None
    assert ends[1] is not None
    assert found.value == pytest.approx(0.1)
    assert found.low > 0
    assert found.p < 0.05
    assert ends[0].high is not None
    assert ends[1].low is not None
    assert ends[0].high > ends[1].low
    assert (back.value, back.p) == pytest.approx((-found.value, found.p))


def test_no_difference_is_no_finding() -> None:
    """Under the null hypothesis about one p-value in twenty lies below 0.05."""
    chance = np.random.default_rng(5)
    pairs = [(chance.random(50) < 0.6, chance.random(50) < 0.6) for _ in range(200)]

    found = [statistics.difference(share_of(a), share_of(b), 50, resamples=400) for a, b in pairs]

    assert 0.01 <= np.mean([d.p < 0.05 for d in found if d is not None]) <= 0.11
    same = statistics.difference(share_of(pairs[0][0]), share_of(pairs[0][0]), 50)
    assert same is not None
    assert (same.value, same.p) == (0, 1)


def test_one_question_or_an_undefined_side_is_no_comparison() -> None:
    hits = np.array([True, False])
    undefined = statistics.auc(np.array([0, 1]), np.array([0.1, 0.2]), np.array([True, True]))

    assert statistics.difference(share_of(hits[:1]), share_of(hits[:1]), 1) is None
    assert statistics.difference(share_of(hits), undefined, 2) is None
