"""An answer cut into claims."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crag_middleware.stages.claims import claims, is_refusal


def texts(answer: str) -> list[str]:
    return [claim.text for claim in claims(answer)]


@pytest.mark.parametrize(
    "answer",
    [
        "I could not find this in the documents.",
        "I don't know.",
        "I can't find it.",
        "I can't.",
        "I'm sorry, but I can't answer that question.",
        "There is no information about refunds in the provided context.",
        "The documents do not mention the price.",
        "The fee is not mentioned in the provided documents.",
        "Based on the documents, I cannot determine the fee.",
        "I don't have access to that. Please ask HR.",
        "Hello! I could not find anything on that. Do you mean the Pro plan?",
        "抱歉，资料中没有相关信息。",
        "我不知道。",
        "对不起，我无法回答这个问题。",
        "没有找到与您问题相关的信息。",
        "非常抱歉，根据现有资料无法确定具体费用。请联系客服。",
    ],
)
def test_a_refusal_asserts_nothing(answer):
    """C112: an abstention passes without a check, English and Chinese."""
    assert claims(answer) == ()
    assert is_refusal(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   \n",
        "Bonjour!",
        "你好！",
        "Yes.",
        "No.",
        "Thanks for asking! Anything else?",
        "Please contact support.",
        "请联系客服。",
        "建议您先重启设备。",
        "I think you might want to check the manual.",
        "Sure! I'd be happy to help. Let me know if you have questions.",
        "# Fees",
        "```\nfee = 30\n```",
        "| plan | fee |\n| --- | --- |",
        "Sources:\n[1] Handbook\n[2] FAQ",
        "Here are the steps:",
        "Which plan do you mean?",
    ],
)
def test_what_asserts_nothing_is_neither_a_claim_nor_a_refusal(answer):
    """C112: `Bonjour!` and the like have no claims."""
    assert claims(answer) == ()
    assert not is_refusal(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I don't know, but the fee is 30 USD.", ["the fee is 30 USD."]),
        ("The fee is 30 USD, but I don't know about discounts.", ["The fee is 30 USD"]),
        ("资料中未提及价格，但是试用期为14天。", ["试用期为14天。"]),
        ("I was unable to find the answer; the manual only covers v2.", ["the manual only covers v2."]),
        ("The documents do not mention the price. The trial lasts 14 days.", ["The trial lasts 14 days."]),
    ],
)
def test_a_refusal_that_also_asserts_is_checked_for_that_part(answer, expected):
    """C112: the part that asserts is one claim."""
    assert texts(answer) == expected
    assert not is_refusal(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Hello! The fee is 30 USD [1]. Anything else?", ["The fee is 30 USD [1]."]),
        ("您好！退款在七天内到账。如有疑问，请联系客服。", ["退款在七天内到账。"]),
        ("I think the fee is 30 USD.", ["the fee is 30 USD."]),
        ("No, refunds are not possible.", ["refunds are not possible."]),
        ("No refunds are given.", ["No refunds are given."]),
        ("请注意，Milvus 2.4 支持稀疏向量。", ["Milvus 2.4 支持稀疏向量。"]),
        ("Please contact support within 30 days.", ["Please contact support within 30 days."]),
        ("Click Reset [2].", ["Click Reset [2]."]),
        ("Paris.", ["Paris."]),
        ("We do not provide refunds.", ["We do not provide refunds."]),
        ("个人信息不会提供给第三方。", ["个人信息不会提供给第三方。"]),
        ("系统无法提供加密服务。", ["系统无法提供加密服务。"]),
        ("There are no documents required for registration.", ["There are no documents required for registration."]),
        ("# Plans\n- **Basic**: 30 USD\n1. Pro: 49 USD", ["**Basic**: 30 USD", "Pro: 49 USD"]),
        ("| plan | fee |\n| --- | --- |\n| Basic | 30 USD |", ["| Basic | 30 USD |"]),
        ("Refunds take 14 days. [1] Shipping takes 5 days. [2][3]", ["Refunds take 14 days. [1]", "Shipping takes 5 days. [2][3]"]),
        ("The fee is 30 USD [1].\n\nReferences\n[1] Handbook", ["The fee is 30 USD [1]."]),
    ],
)
def test_what_asserts_is_a_claim_word_for_word(answer, expected):
    assert texts(answer) == expected


def test_a_claim_tells_what_it_cites():
    assert [claim.cited for claim in claims("A plan costs 30 USD [1][3]. It lasts a year [2、1]. It renews.")] == [(1, 3), (2, 1), ()]


def test_how_citations_are_read_is_the_callers_choice():
    assert claims("The fee is 30 USD <7>.", lambda text: (7,) if "<7>" in text else ())[0].cited == (7,)


PIECES = st.sampled_from(
    [
        "The fee is 30 USD",
        "I don't know",
        "but",
        "抱歉",
        "，",
        "。",
        ". ",
        "! ",
        "? ",
        "\n",
        "- ",
        "[1]",
        " ",
        "请",
        "Hello",
        "| a | b |",
        "```",
        "但是",
        "费用为30元",
        ";",
        "1. ",
    ]
)


@given(st.lists(PIECES, max_size=25).map("".join))
@example("I don't know;1. ;")
@settings(max_examples=300, deadline=None)
def test_claims_stand_in_order_where_they_say(answer):
    found = claims(answer)

    assert all(answer[claim.start : claim.end] == claim.text == claim.text.strip() for claim in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert not (found and is_refusal(answer))


@pytest.mark.parametrize(
    "answer", ["hi " * 20_000, "[1]" * 20_000, "I can't " * 10_000, "抱歉，" * 20_000, "thanks for " * 10_000, "> " * 30_000, "!" * 50_000]
)
def test_hostile_answers_are_read(answer):
    claims(answer)
    is_refusal(answer)
