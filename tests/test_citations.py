"""Citations: every form that models write is read, what does not exist goes, all else stays, however the text arrives."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.stages.citations import Mender, mend

SOURCES = {1: "knowledge", 2: "knowledge", 3: "web", 4: "web"}

KEPT = {
    # plain
    "A [1].": [1],
    "A [1][2].": [1, 2],
    "A [1] [2].": [1, 2],
    "A [1,2].": [1, 2],
    "A [1, 2].": [1, 2],
    "A [1 , 2 ].": [1, 2],
    "A [ 1 ].": [1],
    "A [1; 2].": [1, 2],
    "A [1 and 2].": [1, 2],
    "A [1, 2, and 3].": [1, 2, 3],
    "A [1 & 2].": [1, 2],
    "A [1-3].": [1, 2, 3],
    "A [1–3].": [1, 2, 3],
    "A [1—3].": [1, 2, 3],
    "A [1 - 3].": [1, 2, 3],
    "A [1~3].": [1, 2, 3],
    "A [1 to 3].": [1, 2, 3],
    "A [1-2, 4].": [1, 2, 4],
    "A [2-2].": [2],
    "A ([1]).": [1],
    "A (see [1]).": [1],
    "A [01].": [1],
    "**A** [1]": [1],
    "- A [1]\n- B [2]\n": [1, 2],
    "| A | B [1] |\n": [1],
    "[1] says A.": [1],
    "Great![1]": [1],
    "He said “A”[2].": [2],
    "30 days[1].": [1],
    # letters and words
    "A [K1].": [1],
    "A [k2].": [2],
    "A [W3].": [3],
    "A [W1].": [3],
    "A [W2].": [4],
    "A [K1][W2].": [1, 4],
    "A [K1, W3].": [1, 3],
    "A [K1-K2].": [1, 2],
    "A [Source 1].": [1],
    "A [Source: 1].": [1],
    "A [source 1, source 2].": [1, 2],
    "A [Ref 2].": [2],
    "A [#2].": [2],
    "Said 【1†source】.": [1],
    "甲【1†L3-L9】": [1],
    # Chinese forms
    "甲【1】。": [1],
    "甲［2］。": [2],
    "甲〔3〕。": [3],
    "甲[1，3]丁": [1, 3],
    "甲[1、2]": [1, 2],
    "甲[1；2]": [1, 2],
    "甲【1】【2】": [1, 2],
    "甲【1、2、3】": [1, 2, 3],
    "甲[１]": [1],
    "甲［１，２］": [1, 2],
    "甲[2-4]": [2, 3, 4],
    "甲[1～3]": [1, 2, 3],
    "甲[1至3]": [1, 2, 3],
    "甲[1到3]": [1, 2, 3],
    "甲[1和2]": [1, 2],
    "甲[来源1]": [1],
    "甲[资料 2]": [2],
    "甲[来源1、来源2]": [1, 2],
    "甲（[1]）。": [1],
    "甲【1】乙［2］丙[1，3]丁[2-4]戊[1][2]己〔3〕 [1、2]": [1, 2, 1, 3, 2, 3, 4, 1, 2, 3, 1, 2],
    # no citations
    "`a[1]`": [],
    "``a[9] ` b[9]``": [],
    "`[9]`": [],
    "```\nx [9]\n```\n": [],
    "~~~py\nx = y[9] # [9]\n~~~": [],
    "````\n```\n[9]\n````\n": [],
    "   ```\n[9]": [],
    "[9](https://example.org)": [],
    "see [1](#a)": [],
    "![9](a.png)": [],
    "[9]: https://example.org": [],
    "A\n[9]: https://example.org\n": [],
    "[docs][9]": [],
    "A [^9].": [],
    "[^9]: note": [],
    "code[0]": [],
    "items[9] = x": [],
    "a[9]": [],
    "m[9][8]": [],
    "user_ids[9]": [],
    "f(x)[9]": [],
    "os.argv[9]": [],
    "rowsById[9]": [],
    "[TODO]": [],
    "- [x] done": [],
    "- [ ] open": [],
    "[sic]": [],
    "[2024]": [],
    "[1.5]": [],
    "p lies in [0, 1]": [],
    "the range [1, 100]": [],
    "区间[1, 9]": [],
    "[a, b]": [],
    "[]": [],
    "[": [],
    "[1": [],
    "[1\n]": [],
    "1] x": [],
}

MENDED = {
    "A [2]. B [7][0][-1][999].": "A [2]. B.",
    "A [7] and": "A and",
    "A [7]and": "A and",
    "A [7].": "A.",
    "A [7], B": "A, B",
    "A [7]": "A",
    "A [7]\nB": "A\nB",
    "A[7] B": "A[7] B",
    "30 days[7].": "30 days.",
    "[7] A": "A",
    "A\n[7] B": "A\nB",
    "A\n- [7] B": "A\n- B",
    "A ([7]) b": "A b",
    "A ([7]).": "A.",
    "A ([7][1]) b": "A ([1]) b",
    "A ([7], p. 3)": "A (p. 3)",
    "A (see [7]) b": "A (see) b",
    "A [7][8] b": "A b",
    "A [7] [8] b": "A b",
    "A [1][7].": "A [1].",
    "A [7][1].": "A [1].",
    "A [1,7,2].": "A [1,2].",
    "A [7, 1].": "A [1].",
    "A [1, 7].": "A [1].",
    "A [1-9].": "A [1,2,3,4].",
    "A [4-2].": "A.",
    "A [1-200].": "A.",
    "A [K9] b": "A b",
    "A [W9][K1]": "A [K1]",
    "A [source 9].": "A.",
    "甲【9】乙": "甲乙",
    "甲［９］。": "甲。",
    "甲[来源9]。": "甲。",
    "甲[1、9]。": "甲[1]。",
    "甲【9】【1】": "甲【1】",
    "甲（[9]）。": "甲。",
    "甲 【9】 乙": "甲 乙",
    "stray ` tick [7].\nnext [1]": "stray ` tick.\nnext [1]",
    "```\n[7]\n```\nA [7]": "```\n[7]\n```\nA",
    "`x[7]` A [7]": "`x[7]` A",
}


@pytest.mark.parametrize(("text", "numbers"), KEPT.items())
def test_every_form_is_read_and_stays_as_it_is(text: str, numbers: list[int]) -> None:
    """C107, and what looks like a citation and is none."""
    found = mend(text, SOURCES)
    assert found.text == text
    assert [number for citation in found.citations for number in citation.numbers] == numbers
    assert not found.unknown


@pytest.mark.parametrize(("text", "mended"), MENDED.items())
def test_what_does_not_exist_goes_with_its_spaces(text: str, mended: str) -> None:
    """C105."""
    found = mend(text, SOURCES)
    assert found.text == mended
    if text != mended:
        assert found.unknown
        assert all(unknown in text for unknown in found.unknown)


@pytest.mark.parametrize("text", [*KEPT, *MENDED])
def test_flagging_changes_nothing_and_tells_the_same(text: str) -> None:
    found = mend(text, SOURCES, when_unknown="flag")
    assert found.text == text
    assert found.unknown == mend(text, SOURCES).unknown


@pytest.mark.parametrize("text", [*KEPT, *MENDED])
def test_citations_stand_where_they_are_said_to(text: str) -> None:
    found = mend(text, SOURCES)
    for citation in found.citations:
        assert found.text[citation.start] in "[【［〔"
        assert found.text[citation.end - 1] in "]】］〕"


ANSWER = "\n".join([*KEPT, *MENDED])


@pytest.mark.parametrize("when_unknown", ["remove", "flag"])
@pytest.mark.parametrize("seed", range(200))
def test_how_the_answer_is_cut_into_pieces_changes_nothing(seed: int, when_unknown: str) -> None:
    cuts = random.Random(seed)
    expected = mend(ANSWER, SOURCES, when_unknown=when_unknown)
    mender, shown, place = Mender(SOURCES, when_unknown), "", 0
    while place < len(ANSWER):
        size = cuts.randint(1, 12)
        shown += mender.feed(ANSWER[place : place + size])
        place += size
    shown += mender.end()
    assert (shown, tuple(mender.citations), tuple(mender.unknown)) == (expected.text, expected.citations, expected.unknown)


@given(st.text(alphabet="ab1 9[]【】()（）`~\n^-,、:K", max_size=60), st.lists(st.integers(1, 5), max_size=60))
def test_no_odd_text_depends_on_its_pieces(text: str, sizes: list[int]) -> None:
    expected = mend(text, SOURCES)
    mender, shown, place = Mender(SOURCES), "", 0
    for size in [*sizes, len(text)]:
        shown += mender.feed(text[place : place + size])
        place += size
    shown += mender.end()
    assert (shown, mender.citations, mender.unknown) == (expected.text, list(expected.citations), list(expected.unknown))


@given(st.text(alphabet="ab1 9[]【】()（）`~\n^-,、:K", max_size=60))
def test_what_is_mended_needs_no_more_mending_by_ids(text: str) -> None:
    """Only citations, blanks and parentheses go."""
    found = mend(text, SOURCES)
    letters = [c for c in text if c in "ab`~^"]
    assert [c for c in found.text if c in "ab`~^"] == letters


def test_text_without_brackets_is_let_go_at_once() -> None:
    mender = Mender(SOURCES)
    assert mender.feed("Hello") == "Hello"
    assert mender.feed(" there, ") == " there,"
    assert mender.feed("all is well [") == " all is well"
    assert mender.feed("1") == ""
    assert mender.feed("].") == " [1]."
    assert mender.end() == ""


def test_a_long_bracket_is_not_waited_for() -> None:
    mender = Mender(SOURCES)
    assert mender.feed("[see the manual").startswith("[see")
    assert mender.feed("[1" + " 1" * 100)


def test_reading_takes_time_in_proportion() -> None:
    for unit in ("[", "[1", "([", "`[", " [9]", "[9", "(([9]", "【9】", "`", "   "):
        text = unit * (20_000 // len(unit))
        assert len(mend(text, SOURCES).text) <= len(text)
