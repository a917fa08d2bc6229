"""Numbers, dates, times and versions as values."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.values import same, told_by, values


def agree(one: str, other: str) -> bool:
    mine, theirs = values(one), values(other)
    return bool(mine) and len(mine) == len(theirs) and all(map(same, mine, theirs))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1,200", "1.2k"),
        ("1,200", "一千二百"),
        ("1,200", "1.2千"),
        ("１２００", "1200"),
        ("30 天", "thirty days"),
        ("30 days", "三十天"),
        ("90-day", "90 days"),
        ("50%", "50 percent"),
        ("50%", "百分之五十"),
        ("50 per cent", "50％"),
        ("3.5%", "百分之三点五"),
        ("one third", "三分之一"),
        ("half of it", "50%"),
        ("1 h", "60 min"),
        ("1 小时", "60 minutes"),
        ("$30", "30 USD"),
        ("30美元", "US$30"),
        ("$1.50", "1.5 dollars"),
        ("人民币30元", "¥30"),
        ("4.2 billion dollars", "$4.2bn"),
        ("42亿元", "4.2 billion yuan"),
        ("1200余万元", "12 million yuan"),
        ("two hundred and fifty users", "250 users"),
        ("twenty-five days", "25 days"),
        ("3-5 days", "3 to 5 天"),
        ("10 business days", "10个工作日"),
        ("2024-01-05", "January 5, 2024"),
        ("2024年1月5日", "5 Jan 2024"),
        ("二〇二四年", "2024年"),
        ("Monday", "周一"),
        ("2 pm", "14:00"),
        ("下午两点", "14:00"),
        ("晚上八点半", "8:30 p.m."),
        ("v4.0.7", "4.0.7"),
        ("第十六届", "the 16th"),
        ("30 days", "30"),
    ],
)
def test_one_value_in_many_forms_is_one(one, other):
    assert agree(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("30 days", "30 hours"),
        ("3.10", "3.1"),
        ("v3.10", "v3.1"),
        ("4.0.7", "4.0.6"),
        ("30 USD", "30 EUR"),
        ("50%", "50"),
        ("5 percentage points", "5%"),
        ("10 business days", "10 days"),
        ("25 MB", "25 GB"),
        ("2024-01-05", "2024-01-06"),
        ("Monday", "Tuesday"),
        ("2 pm", "2 am"),
        ("3 months", "3 years"),
        ("近千场", "近万场"),
        ("100 元", "100 万元"),
    ],
)
def test_other_values_are_others(one, other):
    mine, theirs = values(one), values(other)
    assert mine
    assert theirs
    assert not same(mine[0], theirs[0])


@pytest.mark.parametrize(
    "text", ["no one knew a few of them", "一个统一的系统，十分重要，万一失败", "sha256 on an RTX 4090D with 5G", "三星和四川", "数学"]
)
def test_what_only_looks_like_a_number_is_none(text):
    assert values(text) == ()


def test_five_out_of_ten_is_no_share():
    assert [value.unit for value in values("five out of ten")] == ["", ""]


def test_a_date_tells_its_year_and_a_year_does_not_tell_a_date():
    year, date = values("2024年")[0], values("2024-01-05")[0]
    assert told_by(year, [date])
    assert not told_by(date, [year])
    assert told_by(date, [year, *values("1月5日")])


def test_places_are_those_of_the_value():
    text = "It costs $30 within 14 days."
    assert [text[value.start : value.end] for value in values(text)] == ["$30", "14 days"]


@given(st.text(alphabet="0123456789.,:%$-+/ 年月日号点天个元千万亿一二十百第周vkMB上午amjunehalfdays", max_size=60))
@settings(max_examples=300, deadline=None)
def test_values_of_any_text_stand_in_order_and_agree_with_themselves(text):
    found = values(text)

    assert all(a.end <= b.start for a, b in pairwise(found))
    assert all(same(value, value) and told_by(value, found) for value in found)


@given(st.integers(2, 999_999_999))
@settings(max_examples=100, deadline=None)
def test_grouping_changes_nothing(number):
    assert agree(f"{number:,} files", f"{number} files")


@pytest.mark.parametrize(
    "text", ["9" * 50_000, "1," * 20_000, "1." * 20_000, "one " * 10_000, "一百" * 20_000, "百分之" * 10_000, "v1" * 20_000]
)
def test_hostile_runs_are_read(text):
    values(text)


@given(
    st.sampled_from(["7", "7.0", "0.5", "50%", "1,200", "1.2k", "一千二百", "30 天", "thirty days", "720 h", "3.10", "3.1", "¥5", "5 元"]),
    st.data(),
)
def test_amounts_of_one_unit_are_the_same_if_their_numbers_are_equal(written, data):
    (one,), (other,) = (
        values(written),
        values(data.draw(st.sampled_from(["7", "1200", "30 days", "0.5 h", "1800 s", "5 元", "3.1", "50 percent"]))),
    )

    if (one.unit and one.unit == other.unit) or (not one.unit and not other.unit and "." not in one.written):
        assert same(one, other) == (one.parts == other.parts)
