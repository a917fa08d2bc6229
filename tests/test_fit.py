"""Fitting: a known distortion is found again, and the aims hold on questions that nobody has seen."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.calibration import IsotonicMap, PlattMap, Scale, logit, sigmoid
from crag_middleware.errors import ConfigError
from crag_middleware.evals.aims import Aims
from crag_middleware.evals.datasets import Item
from crag_middleware.evals.fit import fit
from crag_middleware.evals.judge import judge
from crag_middleware.evals.labelling import judge_pairs
from crag_middleware.evals.maps import ISOTONIC_PAIRS, fit_map
from crag_middleware.evals.rows import Row
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import EvaluatorKey
from tests.support.agents import passage

KEY = EvaluatorKey("Grader", "small-1", "2")


def row(id_, probabilities, labels, answerable=None, **more):
    """One question of a run; by default answerable if a passage is relevant."""
    found = any(labels) if answerable is None else answerable
    stated = ("ambiguous",) * len(probabilities)
    facts = {"digest": "", "source": "s", "lang": "en", "weak": False, "seconds": 0.0, "stated": stated} | more
    return Row(id=id_, probabilities=tuple(probabilities), labels=tuple(labels), answerable=found, **facts)


def world(questions, *, seed=0, slope=0.5, offset=-1.0, passages=5):
    """Questions whose passages are relevant with log odds `slope * logit(raw) + offset`; of four questions in ten nothing is known to the store."""
    chance = random.Random(seed)
    rows = []
    for number in range(questions):
        known = chance.random() < 0.6
        raw = [chance.random() ** (1 if known else 2) for _ in range(passages)]
        rows.append(row(f"q{number}", raw, [known and chance.random() < sigmoid(slope * logit(x) + offset) for x in raw]))
    return rows


def fitted(rows, **more):
    return fit(rows, key=KEY, fitted_on="made up", **more)


def wrong(rows, calibration):
    """Shares of wrong verdicts by either rule: answerable called incorrect, unanswerable called relevant."""
    rulings = [(r.answerable, judge(r, Scale(calibration.cuts, calibration)).ruling) for r in rows]
    shares = {}
    for rule in ("verdict", "by_set"):
        calls = {kind: [getattr(ruling, rule) for answerable, ruling in rulings if answerable is kind] for kind in (True, False)}
        shares[rule] = calls[True].count("incorrect") / len(calls[True]), calls[False].count("relevant") / len(calls[False])
    return shares


@pytest.mark.parametrize(("slope", "offset"), [(0.5, -1.0), (2.0, 1.0)])
@pytest.mark.parametrize(("count", "kind"), [(400, PlattMap), (4000, IsotonicMap)])
def test_a_known_distortion_is_found_again(slope, offset, count, kind):
    chance = random.Random(1)
    pairs = [(x, chance.random() < sigmoid(slope * logit(x) + offset)) for x in (chance.random() for _ in range(count))]

    found = fit_map(pairs)

    assert isinstance(found, kind)
    errors = [abs(found(x / 100) - sigmoid(slope * logit(x / 100) + offset)) for x in range(5, 96)]
    assert sum(errors) / len(errors) < 0.04
    assert max(errors) < 0.12


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.05, 0.5, 0.95, 1.0]) | st.floats(0, 1), min_size=20, max_size=60), st.randoms())
def test_a_fitted_map_rises_strictly_and_never_says_never(numbers, chance):
    """Whatever the numbers: for few of them and for many."""
    pairs = [(x, chance.random() < x) for x in numbers] + [(0.0, False)] * 5 + [(1.0, True)] * 5
    for some in (pairs, pairs * (1 + ISOTONIC_PAIRS // len(pairs))):
        found = fit_map(some)

        values = [found(x / 50) for x in range(51)]
        assert values[0] > 0
        assert values[-1] < 1
        assert all(low < high for low, high in pairwise(values))


def test_aims_hold_on_questions_that_nobody_has_seen():
    unseen = world(2000, seed=99)
    for aims in (Aims(), Aims(missed=0.1, false=0.2)):
        shares = [wrong(unseen, fitted(world(200, seed=seed), aims=aims).calibration) for seed in range(6)]

        for rule in ("verdict", "by_set"):
            for place, aim in enumerate((aims.missed, aims.false)):
                mean = sum(share[rule][place] for share in shares) / len(shares)
                assert 0.3 * aim < mean < 1.3 * aim, (rule, place, mean)


def test_what_was_reached_is_told_with_counts():
    found = fitted(world(200))
    by_paper = found.reached[0]

    assert [(r.rule, r.kind, r.aim) for r in found.reached] == [
        ("paper", "answerable", 0.05),
        ("paper", "unanswerable", 0.1),
        ("set", "answerable", 0.05),
        ("set", "unanswerable", 0.1),
    ]
    assert by_paper.total + found.reached[1].total == 200
    assert str(by_paper).startswith(f"at most 5.0% of answerable questions called incorrect: {by_paper.wrong} of {by_paper.total} held out")
    assert found.calibration.aims[:4] == tuple(map(str, found.reached))
    assert not any(r.why_not for r in found.reached)


def test_a_calibration_says_what_it_is_for_and_which_shares_it_takes_for_granted():
    rows = world(100)

    calibration = fitted(rows, collection="docs", tenant="t").calibration

    relevant = [label for r in rows for label in r.labels]
    assert (calibration.key, calibration.collection, calibration.tenant, calibration.fitted_on) == (KEY, "docs", "t", "made up")
    assert (calibration.pairs, calibration.questions) == (500, 100)
    assert calibration.prior == pytest.approx(sum(relevant) / len(relevant), abs=1e-4)
    assert calibration.sets.prior == pytest.approx(sum(r.answerable for r in rows) / len(rows), abs=1e-4)


def test_the_order_of_the_questions_does_not_matter():
    rows = world(80)
    shuffled = random.Random(3).sample(rows, len(rows))

    assert fitted(rows) == fitted(shuffled)


def test_ungraded_passages_and_failed_questions_are_left_out_and_counted():
    rows = world(100)
    holes = [replace(r, probabilities=(None, *r.probabilities[1:])) for r in rows[:7]]
    failed = [replace(r, probabilities=(), stated=(), error="timeout") for r in rows[7:10]]

    found = fitted([*holes, *failed, *rows[10:]])

    assert (found.ungraded, found.left_out) == (7 + 15, 10)
    assert (found.calibration.pairs, found.calibration.questions) == (97 * 5 - 7, 97)


def test_without_unanswerable_questions_the_others_without_their_relevant_passages_stand_in():
    rows = [r for r in world(300) if r.answerable][:100]

    found = fitted(rows)

    assert found.notes[0].startswith("unanswerable questions: 0, and ")
    assert found.notes[0] in found.calibration.aims
    assert found.reached[1].total >= 95
    assert found.calibration.sets is not None


def test_unlabelled_passages_of_an_answerable_question_count_for_the_set_only():
    unlabelled = [replace(r, id=f"u{r.id}", labels=(None,) * 5) for r in world(100, seed=5)]

    found = fitted([*world(100), *unlabelled])

    irrelevant = sum(not r.answerable for r in unlabelled) * 5
    assert found.calibration.pairs == 500 + irrelevant
    assert found.left_out == 0


def test_an_evaluator_that_separates_both_kinds_gets_one_cut_between_them():
    rows = [row(str(n), [0.9 if n % 2 else 0.1] * 3, [n % 2 == 1] * 3) for n in range(100)]

    lower, upper = fitted(rows).calibration.thresholds

    assert wrong(rows, fitted(rows).calibration)["verdict"] == (0, 0)
    assert lower <= upper


def test_an_aim_that_many_equal_numbers_rule_out_is_told_with_the_best_that_was_found():
    """Where a third of the unanswerable questions has the evaluator's highest number, no cut keeps the aim and calls anything relevant."""
    chance = random.Random(2)
    rows = [row(f"a{n}", [chance.choice([0.5, 1.0, 1.0])], [True]) for n in range(60)]
    rows += [row(f"u{n}", [chance.choice([0.0, 0.5, 1.0])], [False]) for n in range(60)]

    found = fitted(rows)
    false = found.reached[1]

    assert "NOT MET: a cut that keeps it would call no question of the other kind so" in str(false)
    assert false.wrong / false.total > 0.2
    assert found.reached[0].right > 20
    assert wrong(rows, found.calibration)["verdict"][1] == pytest.approx(false.wrong / false.total, abs=0.1)
    assert str(false) in found.calibration.aims


def test_too_few_questions_for_an_aim_are_told():
    assert "too few to tell" in str(fitted(world(40), aims=Aims(missed=0.001)).reached[0])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "got 0 questions, 0 relevant and 0 incorrect passages"),
        (world(29), "a calibration needs 30 graded questions, .*got 29 questions"),
        ([row(str(n), [0.5], [False]) for n in range(50)], "got 50 questions, 0 relevant and 50 incorrect passages"),
        ([row(str(n), [0.5], [True]) for n in range(50)], "50 relevant and 0 incorrect passages, 50 answerable and 0 unanswerable"),
        ([row(str(n), [None], [True]) for n in range(50)], "0 relevant"),
        ([row(str(n), [0.5, 0.5], [True, False]) for n in range(50)], "don't rise with relevance"),
        ([row(str(n), [0.1, 0.9], [True, False]) for n in range(50)], "don't rise with relevance"),
    ],
)
def test_data_that_can_not_be_fitted_is_one_clear_error(rows, message):
    with pytest.raises(ConfigError, match=message):
        fitted(rows)


def test_few_questions_of_a_kind_give_no_set_map_and_say_so():
    found = fitted(world(40))

    assert found.calibration.sets is None
    assert "no set map: it needs 30 answerable and as many unanswerable questions" in found.notes


@pytest.mark.parametrize("odd", [{"missed": 0}, {"false": 1}, {"missed": -1}, {"false": float("nan")}])
def test_an_aim_is_a_share(odd):
    with pytest.raises(ConfigError, match="above 0 and below 1"):
        Aims(**odd)


def item(id_, labels, answerable=None):
    passages = tuple(passage(f"{id_} {n}", f"{id_}-{n}") for n in range(len(labels)))
    return Item(id=id_, lang="en", source="s", question="q?", passages=passages, labels=labels, answerable=answerable)


def test_a_judge_labels_what_is_unlabelled_where_it_is_sure():
    """Its thresholds are 0.5 and 0.9; on the upper one it is sure."""
    judging = ScriptedEvaluator({"a-1": 0.9, "a-2": 0.7, "b-0": 0.1, "b-1": 0.49, "c-0": 0.95, "d-0": None})
    items = [item("a", (False, None, None)), item("b", (None, None)), item("c", (None,), False), item("d", (None,)), item("e", (True,))]

    found = judge_pairs(items, judging)

    assert [i.labels for i in found.items] == [(False, True, None), (False, False), (None,), (None,), (True,)]
    assert [i.answerable for i in found.items] == [True, False, False, None, None]
    assert (found.relevant, found.incorrect, found.dropped) == (1, 2, 2)
    assert [ids for _, ids in judging.asked] == [("a-1", "a-2"), ("b-0", "b-1"), ("d-0",)]


def test_a_judge_that_fails_labels_nothing(tmp_path):
    found = judge_pairs([item("a", (None, True))], ScriptedEvaluator(error=TimeoutError()), path=tmp_path / "judge.jsonl")

    assert found.items == (item("a", (None, True), True),)
    assert found.dropped == 1
