"""When two texts say the same but for their formatting, and when a like text tells another fact."""

import html
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jieba import posseg

from crag_middleware.stages import chinese, sameness
from crag_middleware.stages.fences import seen
from crag_middleware.stages.sameness import Look, Looks, normal
from crag_middleware.stages.stops import HAN
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
    ("0 |", "  0 |\n"),
    ("| 0", "0"),
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


_OLD_TOKEN = re.compile(
    rf"\d+(?:[.,:]\d+)*|(?<![^\W{HAN}.])\.(?=[^\W{HAN}])|[^\W\d{HAN}][^\W{HAN}]*(?:(?:[.']|::)[^\W{HAN}]+)*|[{HAN}]|!(?=[a-z_=])"
    rf"|[^\w{sameness._NOTHING}]"
)
SIGNS = "aB1 ,.，。：5Mm bW|*_-#\n`<>&中文不Ａ１…—“’'!:=\u3000\u2011\u2017kKg０²é\x00>+~•[]()xİßｶﾞ豈ゔ\u0301"


def slow_normal(text):
    """The normal form by every rule for every text, a sign at a time."""
    plain = html.unescape(sameness._TAG.sub(" ", text)) if "<" in text or "&" in text else text
    plain = sameness._ROW.sub(lambda row: row.group().replace("|", " "), sameness._LINE_MARKS.sub(" ", plain))
    plain = sameness._UNDERSCORES.sub(sameness._without_emphasis, sameness._STARS.sub("", plain))
    plain = sameness._SMALLER.sub(lambda unit: f" small_{unit.group().strip()}", plain)
    if not plain.isascii():
        plain = unicodedata.normalize("NFKC", sameness._NOT_PLAIN.sub(sameness._apart, seen(plain))).translate(sameness._DASHES)
    return " ".join(_OLD_TOKEN.findall(sameness._THOUSANDS.sub("", plain.casefold()))) or " ".join(text.split())


odd_texts = st.one_of(
    st.text(max_size=60), st.text(alphabet=SIGNS, max_size=60), st.sampled_from([t for pair in (*FORMATTED, *MEANT) for t in pair])
)


@settings(deadline=None, max_examples=1000)
@given(odd_texts)
def test_shortcuts_change_no_normal_form(text):
    assert normal(text) == slow_normal(text)


def test_shortcuts_change_no_normal_form_with_any_sign_of_the_first_plane():
    for sign in map(chr, (*range(0xD800), *range(0xE000, 0x10000))):
        text = f"a{sign}b 5{sign}，3 中{sign}文"

        assert normal(text) == slow_normal(text), hex(ord(sign))


@st.composite
def formatted_twice(draw):
    """Two texts of one normal form, more often than not."""
    words = draw(
        st.lists(st.sampled_from(["port", "9100", "5 Mb", "small", "v2.1", "离线", "不", "é", "Ａ１", "`x`", "3,000"]), max_size=6)
    )
    marks = [
        draw(st.lists(st.sampled_from([" ", "  ", "\n- ", "，", " **", ". ", "<b>", " `"]), min_size=len(words), max_size=len(words)))
        for _ in "ab"
    ]
    return tuple("".join(mark + word for mark, word in zip(some, words, strict=True)) for some in marks)


@settings(deadline=None, max_examples=1000)
@given(st.one_of(formatted_twice(), st.tuples(odd_texts, odd_texts), st.sampled_from([*FORMATTED, *MEANT])))
def test_texts_of_one_normal_form_have_one_key_and_others_have_another(pair):
    one, other = pair
    looks = Looks()

    assert (looks.same(one) == looks.same(other)) == (normal(one) == normal(other))
    assert looks.same(looks.same(other)) == looks.same(other)
    if normal(one) == normal(other):
        assert Look(one).letters == Look(other).letters


@settings(deadline=None, max_examples=1000)
@given(st.one_of(formatted_twice(), st.tuples(odd_texts, odd_texts)))
def test_texts_of_the_same_marks_have_the_same_digits(pair):
    one, other = map(Look, pair)

    if one.marks == other.marks:
        assert one.digits == other.digits
    assert other.marks == tuple(
        t for t in other.normal.split(" ") if t in sameness._TURNING or t in sameness._TURNING_HAN or not t.isalpha() or t.endswith("n't")
    )


@settings(deadline=None)
@given(st.lists(st.sampled_from("北京张伟在上海大学，。 ab1丂李明、\n"), max_size=60).map("".join))
def test_the_names_of_a_text_are_those_of_its_clauses_remembered_or_not(text):
    told: dict[str, tuple[str, ...]] = {}
    whole = [p.word for p in posseg.dt.cut(text.replace("丂", " ")) if p.flag[:2] in chinese._NAME_TAGS and len(p.word) > 1]

    assert list(chinese.proper_names(text)) == whole
    assert list(chinese.proper_names(text, told=told)) == whole
    assert list(chinese.proper_names(text, told=told)) == whole
