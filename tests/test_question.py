import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from crag_middleware.adapters.messages import inject, read_question, text_of
from crag_middleware.stages.question import LEAD_IN, classify, has_words, shorten, without_fence
from crag_middleware.types import Exchange

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "What plant is this?"}, IMAGE], "What plant is this?"),
        (["plain", {"type": "text", "text": "more"}], "plain\nmore"),
        ([IMAGE], ""),
        ([{"type": "text", "text": None}, {"text": "untyped"}], "untyped"),
        ([{"type": "reasoning", "summary": []}], ""),
    ],
)
def test_text_is_read_from_any_content_shape(content, text):
    """C029"""
    assert text_of(content) == text


def test_an_image_alone_is_no_question_and_a_caption_is():
    """C029: no base64 in any query."""
    assert read_question([HumanMessage([IMAGE], id="1")], history=3).skip == "no_text"

    captioned = read_question([HumanMessage([{"type": "text", "text": "What plant is this?"}, IMAGE], id="1")], history=3)

    assert (captioned.text, captioned.skip) == ("What plant is this?", None)


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_blank_text_is_skipped(text):
    """C035"""
    assert classify(text) == "empty"


@pytest.mark.parametrize("text", ["???", "🚀🚀", "111123", "the of and", "7"])
def test_odd_text_is_not_skipped(text):
    """C035"""
    assert classify(text) is None


def test_only_text_with_letters_or_digits_may_go_to_the_web():
    """C035"""
    assert [has_words(t) for t in ("???", "🚀🚀", "111123", "退款", "a")] == [False, False, True, True, True]


@pytest.mark.parametrize(
    "text",
    [
        "Hi",
        "hello!",
        "Hello there",
        "Thanks a lot!",
        "good morning",
        "你好",
        "您好！",
        "谢谢你",
        "好的，谢谢。",
        "ok",
        "Hi, thanks!",
        "在吗？",
        "Bonjour!",
        "bye 👋",
    ],
)
def test_greetings_are_skipped(text):
    assert classify(text) == "greeting"


@pytest.mark.parametrize(
    "text",
    [
        "Hi, what is the refund period?",
        "你好，退款要几天？",
        "hello world program in Go",
        "ok computer release year",
        "好的产品有哪些？",
        "thanks giving date",
        "再见的英文怎么说",
    ],
)
def test_a_question_with_a_greeting_is_a_question(text):
    assert classify(text) is None


def test_the_question_is_the_latest_human_message_that_no_middleware_wrote():
    messages = [
        HumanMessage("old question", id="1"),
        AIMessage("old answer"),
        HumanMessage("new question", id="2"),
        AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "c"}]),
        ToolMessage("result", tool_call_id="c"),
        HumanMessage("Here is a summary", id="3", additional_kwargs={"lc_source": "summarization"}),
    ]

    question = read_question(messages, history=6)

    assert (question.text, question.message_id) == ("new question", "2")
    assert question.history == (Exchange("user", "old question"), Exchange("assistant", "old answer"))


def test_history_holds_no_tool_calls_results_or_summaries():
    """C011"""
    messages = [
        HumanMessage("summary", additional_kwargs={"lc_source": "summarization"}),
        ToolMessage("orphan", tool_call_id="c"),
        AIMessage("calling", tool_calls=[{"name": "t", "args": {}, "id": "c"}]),
        ToolMessage("secret result", tool_call_id="c"),
        AIMessage([{"type": "text", "text": "It is B."}, {"type": "reasoning", "summary": []}]),
        HumanMessage("and C?", id="9"),
    ]

    assert read_question(messages, history=6).history == (Exchange("assistant", "It is B."),)


def test_without_a_message_of_the_user_there_is_no_question():
    assert read_question([SystemMessage("x"), AIMessage("y")], history=6) is None


def test_lone_surrogates_in_a_message_do_not_reach_store_or_receipt():
    assert read_question([HumanMessage("Which \ud800port 🚀?", id="1")], history=1).text == "Which ?port 🚀?"


def test_our_own_block_never_becomes_part_of_the_question():
    """C037"""
    sent_back = "<crag_sources>\nrules\n\n[1] knowledge: T\ntext\n</crag_sources>\n\nWhat is the port?"

    assert without_fence(sent_back) == "What is the port?"
    for lead_in in LEAD_IN.values():
        assert without_fence(sent_back.replace("What is", f"{lead_in}\n\nWhat is")) == "What is the port?"
    assert without_fence("a </crag_sources > b") == "a  b"
    assert read_question([HumanMessage(sent_back, id="1")], history=1).text == "What is the port?"


@pytest.mark.parametrize("filler", ["2026-01-01 10:00:00 INFO worker 7 did something\n", "日志：工作进程已经完成任务。\n"])
def test_a_question_after_a_long_preamble_decides_the_query(filler):
    """C033"""
    log = filler * 100

    one = shorten(log + "Which port does the exporter use?", 500)
    other = shorten(log + "Who owns the exporter?", 500)
    early = shorten("Which port does the exporter use?\n" + log, 500)

    assert one != other
    assert "Which port does the exporter use?" in one
    assert "Which port does the exporter use?" in early
    assert max(map(len, (one, other, early))) <= 500


def test_a_short_question_is_not_changed():
    assert shorten("  Which port?  ", 100) == "Which port?"


def test_a_string_stays_a_string_and_blocks_stay_blocks():
    """C007 and C003"""
    text, blocks = HumanMessage("q", id="1"), HumanMessage([{"type": "text", "text": "q"}, IMAGE], id="2")

    (into_text,), _ = inject("BLOCK", [text], None, message_id="1", into_system=False)
    (into_blocks,), _ = inject("BLOCK", [blocks], None, message_id="2", into_system=False)

    assert into_text.content == "BLOCK\n\nq"
    assert into_blocks.content == [{"type": "text", "text": "BLOCK"}, {"type": "text", "text": "q"}, IMAGE]
    assert text.content == "q"
    assert blocks.content == [{"type": "text", "text": "q"}, IMAGE]


@pytest.mark.parametrize(
    ("system", "content"),
    [
        (None, "BLOCK"),
        (SystemMessage("BASE"), "BASE\n\nBLOCK"),
        (SystemMessage([{"type": "text", "text": "BASE", "cache_control": {"type": "ephemeral"}}]), None),
    ],
)
def test_the_system_prompt_is_kept_in_full_and_the_block_goes_after_it(system, content):
    """C006 and C007"""
    messages, after = inject("BLOCK", [HumanMessage("q")], system, message_id="", into_system=True)

    assert [m.content for m in messages] == ["q"]
    if content is None:
        assert after.content == [*system.content, {"type": "text", "text": "BLOCK"}]
    else:
        assert after.content == content


def test_when_the_question_is_gone_the_block_goes_into_the_last_human_message():
    summary = HumanMessage("summary", id="9", additional_kwargs={"lc_source": "summarization"})
    call = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "c"}])
    result = ToolMessage("r", tool_call_id="c")

    messages, system = inject("BLOCK", [summary, call, result], None, message_id="1", into_system=False)

    assert messages[0].content == "BLOCK\n\nsummary"
    assert messages[1] is call
    assert messages[2] is result
    assert system is None


def test_without_any_human_message_the_block_goes_after_the_system_prompt():
    messages, system = inject("BLOCK", [AIMessage("a")], SystemMessage("BASE"), message_id="1", into_system=False)

    assert [m.content for m in messages] == ["a"]
    assert system.content == "BASE\n\nBLOCK"
