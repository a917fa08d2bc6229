"""Which kind of answer a question asks for, and which sentences look like one."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.answer_kinds import answer_kind

KINDS = [
    *(
        (question, "It was opened in 1932.", "It was opened by a mayor.")
        for question in ("When was the bridge opened?", "Which year did it open?", "What date is it?", "in what century was it built")
    ),
    *(
        (question, "大桥于1932年通车。", "大桥由市长剪彩。")
        for question in ("大桥什么时候通车？", "大桥何时通车", "哪一年通车？", "哪年开的")
    ),
    ("When does it open?", "It opens on Monday.", "It opens with a key."),
    ("When does it open?", "It opens in May.", "It may open."),
    ("When do they leave?", "They leave in March.", "They march on."),
    ("什么时候开门？", "周一开门。", "用钥匙开门。"),
    *(
        (question, "It has twelve rooms.", "It has rooms.")
        for question in ("How many rooms has it?", "How large is it?", "What is the number of rooms?", "How often is it so?")
    ),
    *((question, "共有十二个房间。", "有房间。") for question in ("有多少个房间？", "有几个房间", "房间多大？", "面积如何")),
    ("How long does it take?", "It takes 7 days.", "It takes long."),
    ("退款要多久？", "退款需两周。", "退款很快。"),
    *(
        (q, "It broke because of the rain.", "It broke on the way.")
        for q in ("Why did it break?", "What is the reason?", "What caused it?")
    ),
    *((q, "由于下雨，它坏了。", "它在路上坏了。") for q in ("它为什么坏了？", "为何坏了", "坏了的原因是什么")),
    ("Where is the office?", "It lies in Lima.", "It lies still."),
    ("where is it", "It is situated on a hill.", "It is nice."),
    *((q, "分部位于秘鲁。", "分部很大。") for q in ("分部在哪里？", "分部在哪个城市？", "分部位于何处")),
    *((q, "It was founded by Maria Lindqvist.", "It was founded late.") for q in ("Who founded it?", "Whose firm is it?", "who owns it")),
    *((q, "创始人是玛丽亚·林奎斯特。", "公司成立很晚。") for q in ("谁创立了公司？", "创始人是哪位", "是哪个人？")),
    ("谁创立了公司？", "她在利马创立了公司。", "公司成立很晚。"),
    *((q, "Open it by pressing the key.", "It opens.") for q in ("How do I open it?", "How to open it", "how can it be opened?")),
    *((q, "通过按键打开。", "它开了。") for q in ("如何打开它？", "怎么打开", "打开的方法")),
    *((q, "They are red, green, and blue.", "They are nice.") for q in ("What are the colours?", "list the colours", "types of colours")),
    *((q, "颜色有红、绿、蓝。", "颜色很美。") for q in ("有哪些颜色？", "颜色包括什么")),
]


@pytest.mark.parametrize(("question", "answer", "other"), KINDS)
def test_a_sentence_that_looks_like_the_answer_is_told_from_one_that_does_not(question: str, answer: str, other: str) -> None:
    kind = answer_kind(question)

    assert kind(answer) > kind(other)
    assert kind(other) == 0


@pytest.mark.parametrize("question", ["", "Milvus port", "退款", "Is it free?", "默认端口", "whenever", "anywhere", "几乎没有"])
def test_a_question_that_asks_for_no_kind_tells_nothing(question: str) -> None:
    kind = answer_kind(question)

    assert [kind(text) for text in ("In 1932, because of Maria Lindqvist.", "Cats.", "")] == [0.5] * 3


def test_of_a_question_for_several_kinds_each_counts_the_same() -> None:
    kind = answer_kind("When and why was it closed?")

    assert [kind(text) for text in ("In 1932, because of the rain.", "In 1932.", "Because of the rain.", "It was closed.")] == [
        1,
        0.5,
        0.5,
        0,
    ]


@given(st.text(max_size=60) | st.sampled_from([question for question, *_ in KINDS]), st.text(max_size=100))
@settings(max_examples=150, deadline=None)
def test_any_sentence_shows_a_share_of_the_kinds_and_always_the_same(question: str, sentence: str) -> None:
    shown = answer_kind(question)(sentence)

    assert 0 <= shown <= 1
    assert answer_kind(question)(sentence) == shown


ALL = "When, how many, why, where, who, how do they, which ones are these?"


@pytest.mark.parametrize(
    "unit",
    [
        "一",
        "一 ",
        "十\u3000",
        "1",
        "1 ",
        "A",
        "Aa",
        "Aa ",
        "Aa A. ",
        ", ",
        "一多",
        "in ",
        "In the ",
        " ",
        "\n",
        "因",
        "哪",
        "how ",
        "\x00",
        "\ud83d",
    ],
)
def test_no_text_takes_long_to_look_at(unit: str) -> None:
    """One strip may be a code block of any length; quadratic time would be minutes here."""
    text = unit * (100_000 // len(unit))
    begun = time.perf_counter()

    answer_kind(ALL)(text)
    answer_kind(text)("In 1932.")

    assert time.perf_counter() - begun < 2
