"""The numbers of a set of passages, and what is made of them. No test hangs on the weights."""

import math
from dataclasses import astuple, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crag_middleware.stages.relevance import E5, FOREIGN_AT_MOST, USE, Features, Read, features, probability

SENTENCES = (
    "Acme was founded by Maria Lindqvist.",
    "Maria Lindqvist began Acme in 2014.",
    "Acme belongs to John Doe.",
    "创始人是李明。",
    "李明在北京创立了 Acme。",
    "It has 30 days.",
    "🚀🚀",
    "，。！",
    "",
    "x",
)
NEAR = st.floats(-3, 3)


@st.composite
def reads(draw: st.DrawFn) -> Read:
    parts = draw(st.lists(st.sampled_from(SENTENCES) | st.text(max_size=20), min_size=1, max_size=4))
    return Read(draw(st.sampled_from(("", "Acme", "手册"))), tuple(parts), tuple(draw(NEAR) for _ in parts))


QUESTIONS = st.sampled_from(("Who founded Acme?", "谁创立了 Acme？", "How many days?", "需要几天？", "", "???", "🚀")) | st.text(
    max_size=20
)
SETS = st.lists(reads(), min_size=1, max_size=6)


@given(QUESTIONS, SETS)
@example("", [Read("", ("",), (0.0,))])
@example("Who?", [Read("", ("x" * 50_000,), (0.5,)), Read("", ("，" * 50_000,), (0.5,))])
@settings(deadline=None)
def test_all_numbers_are_finite_and_in_their_ranges(question: str, some: list[Read]) -> None:
    found = features(question, some)

    assert len(found) == len(some)
    for one in found:
        assert all(map(math.isfinite, astuple(one)))
        assert 0 <= one.words <= 1
        assert 0 <= one.names <= 1
        assert -1 <= one.said <= 0
        assert one.told <= 0
        assert one.behind <= 0
    for name in ("behind", "said", "told"):
        assert max(getattr(one, name) for one in found) == 0, "of the best"


@given(QUESTIONS, SETS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_passages_changes_nothing(question: str, some: list[Read], chance: object) -> None:
    order = list(range(len(some)))
    chance.shuffle(order)  # type: ignore[attr-defined]

    shuffled = features(question, [some[i] for i in order])

    assert shuffled == tuple(features(question, some)[i] for i in order)


@given(QUESTIONS, SETS, st.integers(0, 5))
@settings(deadline=None)
def test_a_copy_of_a_passage_changes_nothing(question: str, some: list[Read], which: int) -> None:
    copy = some[which % len(some)]

    assert features(question, [*some, copy])[: len(some)] == features(question, some)


@given(QUESTIONS, reads())
@settings(deadline=None)
def test_a_passage_alone_is_the_best_and_nobody_says_the_same(question: str, one: Read) -> None:
    (found,) = features(question, [one])

    assert (found.behind, found.said, found.told) == (0, 0, 0)


def test_no_passages_have_no_numbers() -> None:
    assert features("Who?", []) == ()


def alike(*texts: str) -> list[Read]:
    return [Read("", (text,), (0.8,)) for text in texts]


@pytest.mark.parametrize(
    ("question", "mine", "other", "same"),
    [
        (
            "Who founded Acme?",
            "Acme was founded by Maria Lindqvist.",
            "Acme was founded by John Doe.",
            "The founder of Acme was Maria Lindqvist.",
        ),
        ("谁创立了星辰公司？", "星辰公司由李明创立。", "星辰公司由王芳创立。", "李明是星辰公司的创始人，现已退休。"),
        ("谁创立了 Acme？", "Acme 由 Maria Lindqvist 创立。", "Acme 由 John Doe 创立。", "The founder of Acme is Maria Lindqvist."),
        ("How many days do I have?", "You have 30 days.", "You have 14 days.", "Thirty days are what you have."),
        ("退款需要几天？", "退款在七天内到账。", "退款在三天内到账。", "到账一般要 7 天的时间，退款请耐心等待。"),
    ],
)
def test_a_passage_that_says_the_same_in_other_words_raises_a_passage_above_those_that_say_another(
    question: str, mine: str, other: str, same: str
) -> None:
    before, rival = features(question, alike(mine, other))
    after, behind, _ = features(question, alike(mine, other, same))

    assert before.said == rival.said
    assert after.said > behind.said


def test_a_copy_is_no_second_witness_but_counts_as_one_in_training() -> None:
    some = alike("Acme was founded by Maria Lindqvist.", "Acme was founded by Maria Lindqvist.", "Acme was founded by John Doe.")

    assert {one.said for one in features("Who founded Acme?", some)} == {0}
    assert features("Who founded Acme?", some, same_counts=True)[2].said < 0


def test_what_is_said_far_from_the_matter_counts_for_almost_nothing() -> None:
    best, *others = alike("Acme was founded by Bo Kim.", "Bread is made by Maria Lindqvist.", "Maria Lindqvist bakes.")

    found = features("Who founded Acme?", [best, *(replace(other, near=(-1.5,)) for other in others)])

    assert found[0].said > -0.01


def test_the_title_counts_for_words_and_names() -> None:
    plain, titled = features("ports of Milvus 2.4", [Read("", ("It is 19530.",), (0.5,)), Read("Milvus\n2.4", ("It is 19530.",), (0.5,))])

    assert (plain.names, titled.names) == (0, 1)
    assert plain.words < titled.words


NUMBERS = st.builds(Features, NEAR, st.floats(0, 1), st.just(1.0), st.floats(-4, 0), st.floats(-1, 0), st.floats(-2, 0))


@pytest.mark.parametrize("model", [USE, E5, "another"])
@given(NUMBERS, NUMBERS, st.floats(0, 1, exclude_max=True))
def test_a_passage_that_lacks_a_name_keeps_its_place_among_its_like_and_stays_below_the_bound(
    model: str, one: Features, two: Features, share: float
) -> None:
    """The right topic and the wrong product."""
    low, high = sorted((probability(replace(one, names=share), model), probability(replace(two, names=share), model)))

    assert 0 <= low <= high <= FOREIGN_AT_MOST
    assert probability(replace(one, names=share), model) <= probability(one, model) <= 1


@pytest.mark.parametrize("model", [USE, E5])
@given(NUMBERS, st.sampled_from(("near", "words", "behind", "said", "told", "names")), st.floats(0, 1))
def test_no_number_that_speaks_for_a_passage_lowers_its_probability(model: str, one: Features, name: str, more: float) -> None:
    """Holds also of a passage that lacks a name: nearer is never worse."""
    lacking = replace(one, names=0.5)
    better = replace(lacking, **{name: 1.0 if name == "names" else getattr(one, name) + more})

    assert probability(lacking, model) <= probability(better, model) + 1e-12


def test_the_extremes_are_probabilities() -> None:
    for near in (-1e6, 1e6):
        for names in (0.0, 1.0):
            assert 0 <= probability(Features(near, 0.0, names, 0.0, 0.0, 0.0), USE) <= 1
