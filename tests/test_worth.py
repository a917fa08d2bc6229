"""How much each strip bears on the question: laws of the numbers, and what each of them tells apart."""

from collections.abc import Sequence
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.words import finder, terms
from crag_middleware.stages.worth import WIDEST, Reading, Sheet, Traits, read

WORDS = [
    "Refunds",
    "take",
    "7",
    "days",
    "v2.1",
    "Lima",
    "not",
    "the",
    "退款",
    "七天",
    "到账",
    "不支持",
    "🚀",
    "\x00",
    "\ud83d",
    "x" * 80,
    "9" * 80,
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join) | st.text(max_size=20)
QUESTIONS = TEXTS | st.sampled_from(["When do refunds arrive in Lima?", "退款几天到账？", "Why?", ""])


@st.composite
def turns(draw: st.DrawFn) -> list[Sheet]:
    """Sheets that all were measured by meaning, or none."""
    measured = draw(st.booleans())
    sheets = []
    for title, strips in draw(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=5)), max_size=5)):
        near = draw(st.lists(st.floats(-1, 1), min_size=len(strips), max_size=len(strips))) if measured else ()
        sheets.append(Sheet(title, "\n".join(strips), strips, near))
    return sheets


def worths(question: str, *sheets: Sheet) -> list[list[float]]:
    return [list(row) for row in read(question, sheets).worth]


def sheet(*strips: str, title: str = "", near: Sequence[float] = ()) -> Sheet:
    return Sheet(title, " ".join(strips), strips, near)


def traits(question: str, *sheets: Sheet) -> list[Traits]:
    return [one for row in read(question, sheets).traits for one in row]


@given(QUESTIONS, turns())
@settings(max_examples=150, deadline=None)
def test_every_strip_has_a_probability_and_every_number_keeps_its_range(question: str, sheets: list[Sheet]) -> None:
    reading = read(question, sheets)

    assert [len(row) for row in reading.worth] == [len(one.strips) for one in sheets] == [len(row) for row in reading.words]
    assert all(0 < worth < 1 for row in reading.worth for worth in row)
    for one in (one for row in reading.traits for one in row):
        assert all(0 <= share <= 1 + 1e-9 for share in (one.words, one.titled, one.around, one.news, one.kind))
        assert one.words <= min(one.titled, one.around) + 1e-9
        assert one.opens in (0, 1)
        assert max(one.title_behind, one.page_behind, one.near_behind) <= 1e-9
        assert abs(one.near) <= WIDEST
        assert all(map(isfinite, one))


@given(QUESTIONS, turns(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_another_order_of_the_passages_changes_no_strip_s_worth(question: str, sheets: list[Sheet], chance: st.DataObject) -> None:
    order = list(range(len(sheets)))
    chance.shuffle(order)  # type: ignore[attr-defined]  # a random.Random

    there = worths(question, *sheets)

    assert worths(question, *(sheets[n] for n in order)) == [there[n] for n in order]
    assert worths(question, *sheets) == there


@given(QUESTIONS, turns(), st.floats(0.01, 100), st.floats(-10, 10))
@settings(max_examples=150, deadline=None)
def test_the_scale_of_similarities_does_not_matter(question: str, sheets: list[Sheet], factor: float, offset: float) -> None:
    near = [[round(n, 2) for n in one.near] for one in sheets]
    plain, scaled = (
        worths(question, *(Sheet(s.title, s.text, s.strips, [f(n) for n in some]) for s, some in zip(sheets, near, strict=True)))
        for f in (float, lambda n: factor * n + offset)
    )

    if len({n for row in near for n in row}) != 1:  # of equal ones, rounding makes different ones
        assert scaled == [pytest.approx(row, abs=1e-6) for row in plain]


@pytest.mark.parametrize("near", [[0.3, 0.3], [0.0, 0.0], [-1.0, -1.0]])
def test_similarities_that_are_all_the_same_say_nothing(near: list[float]) -> None:
    assert all((one.near, one.near_behind) == (0, 0) for one in traits("refund", sheet("A refund.", "Cats.", near=near)))


@pytest.mark.parametrize(
    ("question", "better", "worse"),
    [
        ("How many days does a refund take?", "A refund takes 7 days.", "Cats are nice."),
        ("退款需要几天？", "退款在七天内到账。", "客服电话见官网。"),
        ("Does v2.1 support maps?", "Hot updates came with v2.1.", "Maps are a nice thing."),
        ("What does Acme sell?", "Everybody knows Acme.", "Shops sell things."),
        ("When was the bridge opened?", "The bridge was opened in 1932.", "The bridge was opened by a mayor."),
        ("大桥什么时候通车？", "大桥于1932年通车。", "大桥由市长剪彩通车。"),
    ],
)
def test_what_a_strip_has_of_the_question_counts_numbers_and_names_and_the_kind_of_answer_more(
    question: str, better: str, worse: str
) -> None:
    for strips in ((better, worse), (worse, better)):
        first = sheet("Something else.", *strips)
        found = dict(zip(first.strips, worths(question, first)[0], strict=True))

        assert found[better] > found[worse]


def test_a_word_of_many_strips_tells_less_than_a_rare_one() -> None:
    ((_, common, rare, *_),) = worths("refund dogs", sheet("Cats.", "A refund.", "The dogs.", "Refund it.", "Refund us."))

    assert rare > common


def test_a_title_speaks_for_its_strips() -> None:
    titled, untitled = worths("What does Acme cost?", sheet("It is cheap.", title="Acme"), sheet("It is cheap.", title="Zeta"))

    assert titled > untitled


def test_nearness_in_meaning_speaks_for_a_strip_that_shares_no_word() -> None:
    _, far, near = worths("退款需要几天？", sheet("Shop.", "Cats.", "It takes a week.", near=[0.4, 0.1, 0.7]))[0]
    behind, ahead = worths("退款需要几天？", sheet("A.", "Cats.", near=[0.0, 0.1]), sheet("A.", "Cats.", near=[0.7, 0.1]))

    assert near > far
    assert ahead[1] > behind[1]


def test_nothing_asked_and_nothing_found_are_no_error() -> None:
    empty: Reading = read("", [])

    assert (empty.words, empty.traits, empty.worth) == ([], [], [])
    assert empty.share(frozenset({"x"})) == 0
    assert worths("", sheet(), sheet("A.")) == [[], worths("the", sheet(), sheet("A."))[1]]


@settings(deadline=None)
@given(QUESTIONS, turns())
def test_shortcuts_change_no_number(question: str, sheets: list[Sheet]) -> None:
    """The shares as their formulas have them, without a look at which must be 0."""
    reading = read(question, sheets)
    share, asked = reading.share, frozenset(terms(question))

    for sheet, own, row in zip(sheets, reading.words, reading.traits, strict=True):
        title = finder(asked)(sheet.title)
        told = title.union(*own[:1])
        for i, (words, traits) in enumerate(zip(own, row, strict=True)):
            assert traits.words == share(words)
            assert traits.titled == share(words | title)
            assert traits.around == share(words.union(*own[max(0, i - 1) : i + 2]))
            assert traits.news == (share(words - told) / share(asked - told) if share(asked - told) else 0.0)
