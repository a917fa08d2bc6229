"""What counts as said already: nothing but the same words about the same thing."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.refine import Turn, select
from crag_middleware.stages.sentences import split
from crag_middleware.types import Passage

LONG = "The Acme X200 exporter {} on Linux and Windows for all customers of the enterprise plan in the Lima office."
LONG_ZH = "购买企业版套餐的所有客户在利马分公司的 Linux 和 Windows 系统上{}离线地图的热更新功能。"

DIFFERENT = [
    *(
        (LONG.format(f"supports {a}"), LONG.format(f"supports {b}"))
        for a, b in [("v2.1", "v2.2"), ("v3.1", "v3.10"), ("TLS 1.2", "TLS 1.3")]
    ),
    *(
        (LONG.format(a), LONG.format(b))
        for a, b in [
            ("supports hot updates", "does not support hot updates"),
            ("supports hot updates", "never supports hot updates"),
            ("supports hot updates", "doesn't support hot updates"),
            ("supports hot updates", "only supports hot updates"),
            ("supports hot updates", "may support hot updates"),
            ("supports hot updates", "supported hot updates"),
            ("restarts before updates", "restarts after updates"),
            ("restarts if it is updated", "restarts unless it is updated"),
            ("restarts when updated", "restarts until updated"),
            ("starts with updates", "starts without updates"),
            ("increases latency", "decreases latency"),
            ("allows access", "denies access"),
            ("is above the limit", "is below the limit"),
            ("is over the limit", "is under the limit"),
            ("needs all updates", "needs some updates"),
            ("needs more memory", "needs less memory"),
            ("must be updated", "can be updated"),
            ("and the agent run", "or the agent run"),
            ("waits 7 days", "waits 30 days"),
            ("waits 7 days", "waits seven weeks"),
            ("waits 7 hours", "waits 7 days"),
            ("waits up to 7 days", "waits from 7 days"),
            ("costs 5 USD", "costs 5 EUR"),
            ("costs $5", "costs €5"),
            ("costs 1.5 USD", "costs 15 USD"),
            ("costs 1,5 USD", "costs 1.5 USD"),
            ("sends 10 MB", "sends 10 Mb"),
            ("draws 5 mW", "draws 5 MW"),
            ("cools to -5 °C", "cools to 5 °C"),
            ("needs >5 cores", "needs <5 cores"),
            ("serves 10⁵ rows", "serves 105 rows"),
            ("keeps 5% of rows", "keeps 5 of rows"),
            ("beats the agent", "is beaten by the agent"),
            ("was sold on 2024-01-05", "was sold on 2024-01-06"),
            ("is written in C", "is written in C++"),
        ]
    ),
    *(
        (LONG.format("runs").replace("Lima", a), LONG.format("runs").replace("Lima", b))
        for a, b in [("Lima", "Rome"), ("Lima", "new Lima")]
    ),
    *(
        (LONG_ZH.format(a), LONG_ZH.format(b))
        for a, b in [
            ("支持", "不支持"),
            ("支持", "未支持"),
            ("支持", "仅支持"),
            ("支持", "只在 7 天内支持"),
            ("支持 v2.1", "支持 v2.2"),
            ("允许", "禁止"),
            ("在 7 天内支持", "在 30 天内支持"),
            ("在七天内支持", "在三十天内支持"),
            ("在 7 天内支持", "在 7 周内支持"),
            ("在升级之前支持", "在升级之后支持"),
            ("除非停机，支持", "如果停机，支持"),
            ("增加", "减少"),
            ("必须使用", "可以使用"),
            ("提供 5 元的", "提供 5 美元的"),
            ("提供高于标准的", "提供低于标准的"),
            ("已经支持", "即将支持"),
        ]
    ),
    ("Plan A costs 5 USD and plan B costs 9 USD a month.", "Plan A costs 9 USD and plan B costs 5 USD a month."),
    ("v2.1 of the exporter for Linux is supported.", "v2.1 of the exporter for Linux is supported?"),
    ("甲公司在 2020 年收购了乙公司。", "乙公司在 2020 年收购了甲公司。"),
    ("Botswana is a landlocked country in Southern Africa.", "Zambia is a landlocked country in Southern Africa."),
    ("Refunds are available in the EU within 30 days of the purchase.", "Refunds are available within 30 days of the purchase."),
]
PAIRS = pytest.mark.parametrize(("one", "other"), DIFFERENT)
FILLER = ["Cats are nice.", "猫很可爱。"]


def repeating(*passages: str | Passage, question: str = "") -> list[str]:
    """The strips that are worth nothing beside the others."""
    given = [p if isinstance(p, Passage) else Passage(id=str(n), text=p) for n, p in enumerate(passages)]
    return [strip.text for strips in Turn.of(given).rank(question) for strip in strips if not strip.worth]


@PAIRS
def test_sentences_that_differ_in_a_word_a_number_or_a_sign_are_two_statements(one: str, other: str) -> None:
    """C086"""
    assert repeating(one, other) == repeating(other, one) == repeating(f"{one}\n\n{other}") == []


@PAIRS
def test_both_of_two_statements_are_kept(one: str, other: str) -> None:
    """C086: other sentences of their passages don't take their place."""
    question = "What of Acme X200, Linux, Windows, 利马分公司的企业版套餐, 收购, plan costs, Southern Africa, refunds?"

    kept = {strip.text for strips in select(question, [f"{one}\n{FILLER[0]}", f"{FILLER[1]}\n{other}"]) for strip in strips}

    assert {one, other} <= kept


SLOTS = [
    ["supports", "does not support", "only supports", "may support", "will support", "no longer supports"],
    ["hot updates", "cold updates", "hot backups"],
    ["in v2.1", "in v2.2", "since v2.1", "before v2.1", "except in v2.1"],
    ["within 7 days", "within 30 days", "after 7 days", "within 7 hours"],
    ["", "if the card is foreign", "unless the card is foreign", "where the law allows it"],
]
SLOTS_ZH = [
    ["支持", "不支持", "仅支持", "可能支持", "不再支持"],
    ["热更新", "冷更新", "热备份"],
    ["v2.1", "v2.2", "v2.1 以前的版本", "除 v2.1 外的版本"],
    ["7 天之内", "30 天之内", "7 天之后", "7 小时之内"],
    ["", "如果停机", "除非停机", "仅在停机时"],
]


@given(st.sampled_from([SLOTS, SLOTS_ZH]).flatmap(lambda slots: st.lists(st.tuples(*map(st.sampled_from, slots)), min_size=2, max_size=2)))
@settings(max_examples=150, deadline=None)
def test_generated_sentences_repeat_each_other_only_if_all_their_parts_are_the_same(pair: list[tuple[str, ...]]) -> None:
    """C086"""
    one, other = (
        f"The exporter {' '.join(filter(None, parts))}." if parts[0].isascii() else f"导出器{'，'.join(parts)}。" for parts in pair
    )

    assert (repeating(one, other) == []) == (pair[0] != pair[1])


@pytest.mark.parametrize(
    ("question", "said", "said_again", "other", "new"),
    [
        ("refunds?", "Refunds take 7 days.", "Refunds  take 7\ndays.", "Refunds are free in Peru.", "Refunds go to the card."),
        ("退款几天到账？", "退款在 7 天内到账。", "退款在 7  天内到账。", "猫很可爱。", "退款到账后有短信。"),
    ],
)
def test_an_exact_copy_is_shown_once_and_its_place_goes_to_something_new(
    question: str, said: str, said_again: str, other: str, new: str
) -> None:
    kept = [[strip.text for strip in strips] for strips in select(question, [f"{said} {other}", f"{said_again} {new}"], max_strips=1)]

    assert kept == [[said], [new]]


def test_a_copy_in_the_same_passage_is_shown_once() -> None:
    assert [s.text for s in select("refunds", ["Refunds exist. Cats are nice. Refunds exist. Refunds cost 5 USD."])[0]] == [
        "Refunds exist.",
        "Refunds cost 5 USD.",
    ]


def test_a_copy_of_what_came_along_is_not_shown_again() -> None:
    texts = [
        "The Lima office opened. It has 40 staff in all.",
        "The Lima office opened. It has 40 staff in all. The Lima office has a canteen for staff.",
    ]

    kept = [[strip.text for strip in strips] for strips in select("How many staff has it in all, in Lima?", texts)]

    assert kept == [["The Lima office opened.", "It has 40 staff in all."], ["The Lima office has a canteen for staff."]]


def test_a_passage_that_only_repeats_others_is_not_kept_whole() -> None:
    """An empty list would mean that: its best strip is kept instead, and none that has nothing to do with the question."""
    whole = "Refunds take 7 days. Dogs are nice. The canteen opens at noon."
    near = [[0.9, 0.1], [0.9, 0.2, 0.1]]
    turn = Turn.of([Passage(id="1", text="Refunds take 7 days. Cats are nice."), Passage(id="2", text=whole)])

    for similar in ((), near):
        assert [s.text for s in turn.select("How many days do refunds take?", near=similar)[1]] == ["Refunds take 7 days."]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("The Lima office opened. It has 40 staff.", "The Rome office opened. It has 40 staff.", "It has 40 staff."),
        ("Free:\n- 500 calls\n", "Pro:\n- 500 calls\n", "- 500 calls"),
        ("| plan | price |\n|---|---|\n| pro | 5 |", "| plan | users |\n|---|---|\n| pro | 5 |", "| pro | 5 |"),
        ("# v2.1\n\nHot updates are supported.", "# v2.2\n\nHot updates are supported.", "Hot updates are supported."),
        ("Q: Is it free?\nA: Yes.", "Q: Is it slow?\nA: Yes.", "A: Yes."),
        ("利马分部成立。该分部有员工40名。", "罗马分部成立。该分部有员工40名。", "该分部有员工40名。"),
    ],
)
def test_the_same_words_about_something_else_are_no_repetition(one: str, other: str, said: str) -> None:
    """C086, C087: what a strip is read under belongs to what it says."""
    assert said not in repeating(one, other)
    assert said in repeating(one, f"Cats.\n\n{one}")


@pytest.mark.parametrize(
    ("said", "one", "other"),
    [
        ("Refunds are available.", "Except for software.", "Except for books."),
        ("Refunds are available.", "They take 7 days. This does not apply to shoes.", "They take 7 days. This does not apply to hats."),
        ("Refunds are available.", "The following are excluded:\n- shoes\n- hats", "The following are excluded:\n- shoes\n- books"),
        ("Refunds are available for:", "\n- shoes\n- hats", "\n- shoes\n- books"),
        ("# Refunds", "\n\nWrite to us.", "\n\nCall us."),
        ("Q: Are there refunds?", "\nA: Yes.", "\nA: No."),
        ("支持退货。", "定制商品除外。", "软件除外。"),
        ("支持退货。", "但不含运费。", "但不含礼品卡。"),
    ],
)
def test_the_same_rule_with_another_exception_list_or_answer_is_no_repetition(said: str, one: str, other: str) -> None:
    """C086: dropping the rule would drop what takes something back from it."""
    texts = [f"{said} {one}\n\nCats are nice.", f"{said} {other}\n\nDogs are nice."]

    kept = [[strip.text for strip in strips] for strips in select("Are there refunds? 支持退货吗？", [*texts, texts[0]])]

    assert kept[:2] == [[strip.text for strip in split(f"{said} {rest}")] for rest in (one, other)]
    assert said not in repeating(*texts)
    assert said in repeating(*texts, texts[0])


def test_the_same_words_under_another_title_are_no_repetition() -> None:
    text = "The fee is 5 USD."

    assert repeating(*(Passage(id=title, title=title, text=text) for title in ("Plan A", "Plan B"))) == []
    assert repeating(*(Passage(id=str(n), title="Plan A", text=text) for n in range(2))) == [text]


@given(
    st.lists(st.sampled_from(["Refunds exist.", "It is so.", "退款到账。", "- item\n", "# v2\n", "Which:\n"]), max_size=8),
    st.integers(1, 3),
)
@settings(max_examples=200, deadline=None)
def test_of_copies_of_a_text_only_the_first_is_worth_anything(parts: list[str], copies: int) -> None:
    text = "\n".join(parts)
    turn = Turn.of([Passage(id=str(n), text=text) for n in range(copies)])

    first, *others = turn.rank("Are there refunds? 退款？")

    assert all(strip.worth == 0 for strips in others for strip in strips)
    assert {re.sub(r"\s+", " ", strip.text) for strip in first if strip.worth} == {re.sub(r"\s+", " ", strip.text) for strip in first}
