"""When two texts say the same but for their formatting, and when a like text tells another fact."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.sameness import Look, normal
from tests.test_repeats import DIFFERENT

FORMATTED = [
    ("**Port** 9100 is `used`.", "port 9100 is used"),
    ("# Title\n\n- one\n- two", "Title\none\ntwo"),
    ("Title\n=====\ntext", "title text"),
    ("> quote me", "Quote me!"),
    ("* a\n* b", "- a\n- b"),
    ("• 第一\n• 第二", "第一 第二"),
    ("支持**离线**模式。", "支持离线模式"),
    ("**5**天", "5天"),
    ("用 Python 写", "用Python写"),
    ("价格：5元", "价格: 5 元"),
    ("ＡＢＣ　１２３", "abc 123"),
    ("_two words_ here", "two words here"),
    ("__bold text__", "bold text"),
    ("(**note**)", "(note)"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a b\n1 2"),
    ("|a|b|\n|:-|-:|\n|1|2|", "a\tb\n1 2"),
    ("<p>Hello <b>world</b></p>", "hello world"),
    ("x &lt; 3", "x < 3"),
    ("“quoted”", '"quoted"'),
    ("don’t", "don't"),
    ("1,000 rows", "1000 rows"),
    ("5GB", "5 GB"),
    ("wait…", "wait..."),
    ("快看！鸟", "快看\n鸟"),
    ("```python\nx = 1\n```", "x = 1"),
    ("a\u200bb", "ab"),
    ("5−3", "5-3"),
    ("**C++**", "C++"),
]

MEANT = [
    ("-5", "5"),
    ("-5 °C", "5 °C"),
    ("C++", "C"),
    ("C#", "C"),
    (".NET", "NET"),
    ("1.25", "125"),
    ("1,5", "15"),
    ("1,5 USD", "1.5 USD"),
    ("1..5", "1.5"),
    ("9:30", "930"),
    ("x < 3", "x > 3"),
    ("≥5", "≤5"),
    ("Cores:\n> 5", "Cores:\n5"),
    ("a != b", "a = b"),
    ("|x| < 3", "x < 3"),
    ("v2.1", "v21"),
    ("1.2.3", "12.3"),
    ("10²", "102"),
    ("10₂", "102"),
    ("5①", "51"),
    ("1½", "11/2"),
    ("5 Mb", "5 MB"),
    ("5 mW", "5 MW"),
    ("2*3", "23"),
    ("2 * 3", "2 3"),
    ("x**2", "x2"),
    ("f(x)*(y)", "f(x)(y)"),
    ("5%", "5"),
    ("$5", "€5"),
    ("__init__", "init"),
    ("foo_bar", "foo bar"),
    ("~~gone~~", "gone"),
    ("支持？", "支持。"),
    ("不支持", "支持"),
    ("!!!", "???"),
    ("。", ""),
]


@pytest.mark.parametrize(("one", "other"), FORMATTED)
def test_formatting_does_not_count(one, other):
    assert normal(one) == normal(other)


@pytest.mark.parametrize(("one", "other"), MEANT)
def test_signs_that_mean_something_count(one, other):
    assert normal(one) != normal(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_texts_that_differ_in_a_fact_say_other_things(one, other):
    assert Look(one).says_other(Look(other))
    assert Look(other).says_other(Look(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The library opens at 9:00 on weekdays.", "Please note: the libary opens at 9:00 on weekdays"),
        ("Opening Hours: the shop in Lima opens at 9:00.", "OPENING HOURS: THE SHOP IN LIMA OPENS AT 9:00"),
        ("图书馆周末照常开放，请携带借书证。", "**图书馆**周末照常开放，请携带好借书证！"),
    ],
)
def test_an_edit_that_changes_no_fact_says_nothing_else(one, other):
    assert not Look(one).says_other(Look(other))


@settings(deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_saying_other_things_and_the_share_of_trigrams_are_mutual(one, other):
    a, b = Look(one), Look(other)

    assert a.says_other(b) == b.says_other(a)
    assert a.share(b) == b.share(a)
    assert 0 <= a.share(b) <= 1
    assert a.share(a) == 1
    assert not a.says_other(a)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_white_space_around_a_text_never_counts(text):
    assert normal(f"  {text}\t\n") == normal(text)


@pytest.mark.parametrize("sign", ["_", "*", "| ", "|", "- ", " ", "\n", "`", "_a ", "1,", "a.", "#", "-|", "&amp", "<p ", "*a", "> ", "·"])
def test_a_text_of_one_sign_takes_no_longer_than_its_length(sign):
    """A quadratic pattern would take minutes."""
    assert isinstance(normal(sign * (200_000 // len(sign))), str)
