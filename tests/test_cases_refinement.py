"""Splitting and refinement inside whole agents (kind 6 of the known failure cases)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.refine import WordRefiner
from crag_middleware.stages.sentences import split
from crag_middleware.types import Passage
from tests.support.agents import agent_with, ask, both, crag, passage


def cut(text):
    return [strip.text for strip in split(text)]


def refined(question, text):
    return WordRefiner(max_strips=1).refine(question, [Passage(id="p", text=text)])[0]


def sent(question, text, how):
    """What the agent's model gets to read for a question when this passage was found."""
    agent, model = agent_with(crag([passage(text)], refiner=WordRefiner(max_strips=1)))
    ask(agent, question, how)
    return model.requests[0][-1].text


@both
def test_dots_in_titles_decimals_and_dates_do_not_cut(how):
    """C076"""
    text = "Dr. Lee paid 2.13 USD on Jan. 5. It was late."

    assert cut(text) == ["Dr. Lee paid 2.13 USD on Jan. 5.", "It was late."]
    assert "Dr. Lee paid 2.13 USD on Jan. 5." in sent("How much did Lee pay?", f"Cats are nice. {text}", how)


@both
def test_addresses_and_versions_with_many_dots_do_not_cut(how):
    """C078"""
    text = "Use 10.0.0.1 with v4.0.7. Then restart."

    assert cut(text) == ["Use 10.0.0.1 with v4.0.7.", "Then restart."]
    assert "Use 10.0.0.1 with v4.0.7." in sent("Which address goes with v4.0.7?", f"Cats are nice. {text}", how)


@both
def test_technical_tokens_survive_where_scripts_meet(how):
    """C079"""
    text = "见 https://docs.acme.test/a.b?x=1。再改 pkg.settings.yaml！Mail ana@acme.test.好的"

    assert cut(text) == ["见 https://docs.acme.test/a.b?x=1。", "再改 pkg.settings.yaml！", "Mail ana@acme.test.", "好的"]
    assert "再改 pkg.settings.yaml！" in sent("改哪个文件，pkg.settings.yaml 吗？", text, how)


@both
def test_chinese_sentences_are_strips_without_space_or_newline(how):
    """C081"""
    sentences = ["退款七天到账。", "定制商品不退！", "要等多久？", "客服会回电。", "运费自理。"]
    clauses = [f"第{n}类客户在购买之后的第{n}天之内可以申请无理由退货；" for n in "一二三四五"]

    assert cut("".join(sentences)) == sentences
    assert cut("".join(clauses)) == clauses
    assert "运费自理。" not in sent("退款几天到账？", "".join(sentences), how)


@both
def test_list_items_are_strips_and_come_with_their_lead_in(how):
    """C083"""
    text = "Limits:\n- free: 5 calls\n- pro: 500 calls\n1. Sign in\n2. Pay"

    read = sent("How many calls with pro?", text, how)

    assert cut(text) == text.split("\n")
    assert "Limits:" in read
    assert "- pro: 500 calls" in read
    assert "Pay" not in read


@both
def test_chinese_strips_are_told_apart_by_their_words(how):
    """C085"""
    read = sent("退款需要几天？", "退款在七天内到账。客服电话见官网。", how)

    assert "退款在七天内到账。" in read
    assert "客服电话" not in read


@both
def test_no_word_in_common_means_unknown_and_the_passage_stays_whole(how):
    """C085: an all-zero score is no judgement."""
    text = "Refunds arrive within 7 days. Call us any time."

    assert refined("退款需要几天？", text) == ()
    assert text in sent("退款需要几天？", text, how)


@both
@pytest.mark.parametrize(
    ("question", "rule", "exception"),
    [
        ("Refund for a gift card?", "Refunds are available.", "This does not apply to gift cards unless damaged."),
        ("Are refunds available?", "Refunds are available.", "This does not apply to gift cards unless damaged."),
        ("支持退货吗？", "支持七天退货。", "定制商品除外。"),
    ],
)
def test_exception_is_read_with_its_rule(question, rule, exception, how):
    """C086"""
    read = sent(question, f"{rule}{'' if exception[0] > 'z' else ' '}{exception} Cats are nice.", how)

    assert rule in read
    assert exception in read
    assert "Cats" not in read


@both
@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        ("How many staff in Lima?", "The Lima office opened in 2019.", "It has 40 staff."),
        ("How many staff are there?", "The Lima office opened in 2019.", "It has 40 staff."),
        ("有员工多少名？", "利马分部成立于2019年。", "该分部有员工40名。"),
    ],
)
def test_fact_is_read_with_what_it_is_about(question, first, second, how):
    """C087"""
    read = sent(question, f"Cats are nice. {first} {second}", how)

    assert first in read
    assert second in read
    assert "Cats" not in read


ODDS = [
    *("Dr. Lee paid.", "支持退货。", "“好。”", "...", "……", "；", "；乙。", "😀", "👩\u200d👩\u200d👧", "x" * 700),
    *("\r\n", "\t", "\u3000", "\n\n", "- a", "| a | b |\n", "|---|---|\n", "```\n", "====="),
    *("<tr>", "<td>", "</td></tr>", "<p>", "</p>", "<ul><li>", "</li>", "<br>"),
]


@given(st.text() | st.lists(st.sampled_from(ODDS), max_size=40).map("".join))
@settings(max_examples=400, deadline=None)
def test_no_character_is_lost_and_offsets_lead_back_to_the_source(text):
    """C089"""
    position = 0
    for strip in split(text):
        assert text[strip.start : strip.end] == strip.text == strip.text.strip() != ""
        assert not text[position : strip.start].strip()
        position = strip.end
    assert not text[position:].strip()
    for strip in refined("Lee 退货 a", text):
        assert text[strip.start : strip.end] == strip.text
