"""From what a user sends to what is searched, through whole agents (kind 3 of the known failure cases)."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.messages import read_question
from crag_middleware.errors import RewriteError
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.assemble import RULES
from crag_middleware.stages.question import LEAD_IN, classify, shorten
from crag_middleware.stages.rewriting import read_query
from crag_middleware.testing import ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter, ScriptedWebSearch
from tests.support import milvus as support
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.models import ScriptedModel

lite_uri = support.lite_uri

PIXELS = "iVBORw0KGgo" * 40
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}}
PORT = passage("The exporter listens on port 9100.", "port", title="Exporter")


class Turn:
    """One turn over a store, an ambiguous evaluator and a web search, and what each of them was asked."""

    def __init__(self, messages, how, **more):
        self.store, self.web = ScriptedRetriever({"a": [PORT]}), ScriptedWebSearch()
        self.evaluator = ScriptedEvaluator(otherwise=0.7)
        middleware = crag(**{"vector_store": self.store, "evaluator": self.evaluator, "web_search": self.web, **more})
        agent, self.model = agent_with(middleware)
        self.result = ask(agent, messages, how)
        self.receipt = self.result["crag"]

    @property
    def queries(self):
        return [query for _, query in self.store.asked]


# --- C029: content in blocks


@pytest.mark.parametrize(("how", "words"), [("invoke", "What plant is this?"), ("ainvoke", "这是什么植物？")])
@pytest.mark.parametrize(
    "content",
    [
        lambda words: [{"type": "text", "text": words}, IMAGE],
        lambda words: [IMAGE, {"type": "text", "text": words}],
        lambda words: [words, IMAGE],
        lambda words: [{"type": "text", "text": words}, {"type": "image", "base64": PIXELS, "mime_type": "image/png"}],
        lambda words: [{"type": "text", "text": words}, {"type": "file", "base64": PIXELS, "mime_type": "application/pdf"}],
        lambda words: [{"type": "text", "text": words}, {"type": "input_audio", "input_audio": {"data": PIXELS, "format": "wav"}}],
        lambda words: f"![](data:image/png;base64,{PIXELS}) {words}",
    ],
)
def test_the_words_beside_a_picture_are_the_query_and_no_pixels_go_anywhere(how, words, content, caplog):
    """C029"""
    caplog.set_level(logging.DEBUG)

    turn = Turn([HumanMessage(content(words), id="1")], how)

    (query,) = turn.queries
    assert words in query
    assert turn.web.asked == turn.receipt["web_queries"]
    assert PIXELS[:20] not in json.dumps(turn.receipt) + str(turn.evaluator.asked) + str(turn.web.asked) + query
    assert PIXELS[:20] not in " ".join(r.getMessage() for r in caplog.records if r.name.startswith("crag_middleware"))
    assert PIXELS in str(turn.model.requests[0][-1].content)


@both
@pytest.mark.parametrize("content", [[IMAGE], [IMAGE, {"type": "text", "text": " "}], f"data:image/png;base64,{PIXELS}"])
def test_a_picture_alone_searches_nothing_and_reaches_the_model_untouched(how, content):
    """C029"""
    turn = Turn([HumanMessage(content, id="1")], how)

    assert turn.queries == []
    assert (turn.receipt["status"], turn.receipt["skipped"]) == ("skipped", "no_text")
    assert turn.model.requests[0][-1].content == content


@both
def test_several_texts_are_joined_and_the_history_is_read_alike(how):
    """C029"""
    rewriter = ScriptedRewriter("What plant is it?")
    earlier = [HumanMessage(["plain", {"type": "text", "text": "more"}, IMAGE]), AIMessage([{"type": "text", "text": "A fern."}])]

    turn = Turn([*earlier, HumanMessage(["and", {"type": "text", "text": "this one?"}], id="3")], how, rewriter=rewriter)

    ((question, history, _),) = rewriter.asked
    assert question == "and\nthis one?"
    assert [e.text for e in history] == ["plain\nmore", "A fern."]
    assert turn.queries == ["What plant is it?"]


def test_an_address_that_only_begins_like_a_file_stays():
    """C029"""
    for text in ("What is a data:image/png;base64, prefix?", "metadata:a/b, c", "data: see docs/a, docs/b"):
        assert read_question([HumanMessage(text)], history=0).text == text


# --- C030: follow-ups


TALKS = [
    ("Compare plan A and plan B.", "A costs 5 USD, B costs 9 USD.", "What about the second one?", "What does plan B cost?"),
    ("比较套餐甲和套餐乙。", "甲每月五元，乙每月九元。", "第二个呢？", "套餐乙每月多少钱？"),
]


@both
@pytest.mark.parametrize(("first", "answer", "follow_up", "alone"), TALKS)
def test_a_follow_up_is_searched_graded_and_sent_out_as_a_question_of_its_own(how, first, answer, follow_up, alone):
    """C030"""
    inner = ScriptedModel(script=[f"Rewritten: {alone}"])

    turn = Turn([("user", first), ("assistant", answer), ("user", follow_up)], how, rewriter=inner)

    assert first in inner.prompts[0]
    assert answer in inner.prompts[0]
    assert turn.queries == [alone] == [turn.receipt["query"]]
    assert turn.evaluator.asked[0][0] == alone
    assert turn.model.requests[0][-1].text.endswith(follow_up)


@both
@pytest.mark.parametrize(("first", "answer", "follow_up", "alone"), TALKS)
@pytest.mark.parametrize("reply", ["", "\n", "x" * 2000, TimeoutError(), ConnectionError()])
def test_a_rewriting_that_fails_leaves_the_users_words(how, first, answer, follow_up, alone, reply):
    """C030"""
    turn = Turn([("user", first), ("assistant", answer), ("user", follow_up)], how, rewriter=ScriptedModel(script=[reply]))

    assert turn.queries == [follow_up]
    steps = [d["step"] for d in turn.receipt["degraded"]]
    assert steps[0] == "rewrite"
    assert set(steps[1:]) <= {"keywords"}  # drafted by the same model, where the passages look poor


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("Which port does Milvus 2.4 use?", "Which port does Milvus use?"),
        ("What does ERR_TIMEOUT_42 mean?", "What does that error mean?"),
        ("Is gpt-4o supported?", "Is the model supported?"),
        ("What did Acme earn in 2023?", "What did Acme earn?"),
        ("Does VAT apply to books?", "Is there a tax on books?"),
        ("getUserById 抛出什么异常？", "这个方法抛出什么异常？"),
    ],
)
def test_a_rewriting_that_asks_for_something_else_is_not_used(question, reply):
    """C030: a question that stands on its own keeps its meaning."""
    with pytest.raises(RewriteError):
        read_query(reply, question)

    assert read_query(question, question) == question


@pytest.mark.parametrize(
    "question", ["What about the 2nd one?", "And option 2?", "WHAT ABOUT THE SECOND ONE?", "第2个呢？", "e.g. the other one?"]
)
def test_what_points_into_the_conversation_may_be_replaced(question):
    """C030"""
    reply = "套餐乙多少钱？" if "第" in question else "What does plan B cost?"

    assert read_query(reply, question) == reply


# --- C033: a question after a long preamble


LOGS = {
    "en": "2026-01-01 10:00:00 INFO GET https://host.example/metrics?id=7&page=2 took 3 ms\n" * 60,
    "zh": "日志：工作进程已经完成第七项任务，耗时三毫秒。\n" * 200,
}
QUESTIONS = {
    "en": ["Which port does v2.4 of the exporter use?", "Who owns the exporter?"],
    "zh": ["导出器 v2.4 用哪个端口？", "谁负责导出器？"],
}


@both
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("place", ["after", "before", "between"])
def test_the_question_in_a_long_text_decides_what_is_searched(how, language, place):
    """C033"""
    log = LOGS[language]
    before, after = {"after": (log, ""), "before": ("", log), "between": (log, log)}[place]

    turns = [Turn(f"{before}{q}\n{after}", how) for q in QUESTIONS[language]]

    for turn, question in zip(turns, QUESTIONS[language], strict=True):
        (query,) = turn.queries
        assert question in query
        assert len(query) <= CRAGSettings().max_question_chars
        assert all(len(text) <= 400 for text in turn.web.asked)
    assert turns[0].queries != turns[1].queries
    assert turns[0].web.asked != turns[1].web.asked


def test_an_instruction_without_a_question_mark_is_kept_at_either_end():
    """C033"""
    for order in ("Tell me the exporter's port.", "告诉我导出器的端口"):
        assert order in shorten(LOGS["en"] + order, 500)
        assert order in shorten(order + "\n" + LOGS["en"], 500)


@given(st.text(max_size=400), st.integers(100, 200))
def test_a_shortened_question_is_bounded_and_never_empty(text, limit):
    """C033"""
    short = shorten(text, limit)

    assert len(short) <= limit
    assert bool(short) == bool(text.strip())


# --- C035: queries without words


@pytest.fixture
def store(lite_uri):
    store = open_knowledge(lite_uri, support.WordEmbeddings())
    store.add_texts(["Order 111123 was sent on Monday.", "图书馆周末照常开放。"], agent_id="a")
    return store


@both
@pytest.mark.parametrize("text", ["???", "。。。", "🚀🚀", "111123", "the of and", "的了吗", "!@#$%^&*()", '"', "\\", "é́", "x"])
def test_a_text_without_words_is_searched_without_an_error(store, how, text):
    """C035: on a real collection, both legs."""
    web = ScriptedWebSearch()
    agent, model = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator(otherwise=0.1), web_search=web))

    receipt = ask(agent, text, how)["crag"]

    assert receipt["degraded"] == []
    assert receipt["verdict"] == "incorrect"
    assert bool(web.asked) is any(c.isalnum() for c in text)
    assert model.requests[0][-1].text.endswith(text)


@both
@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u3000", "\u200b", "\ufeff \u2060", "\x00"])
def test_a_text_of_nothing_searches_nothing_and_reaches_the_model_unchanged(how, text):
    """C035"""
    turn = Turn([HumanMessage(text, id="1")], how)

    assert (turn.queries, turn.web.asked) == ([], [])
    assert (turn.receipt["status"], turn.receipt["skipped"]) == ("skipped", "empty")
    assert turn.model.requests[0][-1].content == text


@given(st.text(max_size=60))
def test_any_text_is_a_question_or_has_a_reason_why_not(text):
    """C035"""
    question = read_question([HumanMessage(text)], history=0)

    assert question.skip in (None, "empty", "greeting", "no_text")
    assert question.skip or question.text.strip()
    assert classify(question.text) in (None, question.skip)


# --- C037: our own block


@tool
def get_stock(x: str) -> str:
    """Stock of an article."""
    return "17"


@both
@pytest.mark.parametrize("position", ["human", "system"])
@pytest.mark.parametrize("questions", [("Which port?", "Which host?"), ("哪个端口？", "哪台主机？")])
def test_the_next_step_and_the_next_turn_are_asked_in_the_users_words(how, position, questions):
    """C037"""
    store, rewriter, web = ScriptedRetriever({"a": [PORT]}), ScriptedRewriter(RuntimeError()), ScriptedWebSearch()
    middleware = crag(
        vector_store=store,
        rewriter=rewriter,
        web_search=web,
        evaluator=ScriptedEvaluator(otherwise=0.7),
        settings=CRAGSettings(position=position),
    )
    call = AIMessage("", tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c"}])
    agent, _ = agent_with(middleware, replies=[call, "9100 [1].", call, "A host."], tools=[get_stock])

    first = ask(agent, questions[0], how)
    ask(agent, [*first["messages"], ("user", questions[1])], how)

    assert [query for _, query in store.asked] == list(questions) == web.asked
    ((question, history, _),) = rewriter.asked
    assert question == questions[1]
    assert [e.text for e in history] == [questions[0], "9100 [1]."]


@both
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_block_that_a_client_sends_back_is_no_part_of_the_query(how, language):
    """C037: a client that keeps the request instead of the history."""
    question = {"en": "Which port?", "zh": "哪个端口？"}[language]
    sent = Turn(question, how).model.requests[0][-1].text
    assert LEAD_IN[language] in sent

    again = Turn(sent, how)
    later = Turn([("user", sent), ("assistant", "9100"), ("user", question)], how, rewriter=(rewriter := ScriptedRewriter(question)))

    assert again.queries == [question] == again.web.asked == later.queries
    assert [e.text for e in rewriter.asked[0][1]] == [question, "9100"]


@pytest.mark.parametrize(
    "sent",
    [
        "<crag_sources>\nunclosed Which port?",
        "</crag_sources> Which port?",
        "<CRAG_SOURCES foo> Which port?",
        "＜crag_sources＞ Which port?",
        "<crag_sources>a<crag_sources>b</crag_sources>c</crag_sources> Which port?",
    ],
)
def test_delimiters_are_stripped_wherever_they_are_found(sent):
    """C037"""
    text = read_question([HumanMessage(sent)], history=0).text

    assert text.endswith("Which port?")
    assert "crag_sources" not in text.casefold()


# --- C038: the user's language


VAT = "国内增值税一般纳税人的标准税率是多少？"
LIMIT = "LangGraph 怎么设置 recursion_limit？"
DOCUMENTS = {
    VAT: {"zh": "一般纳税人适用的增值税标准税率为 13%。", "en": "The standard VAT rate for general taxpayers in China is 13%."},
    LIMIT: {
        "zh": "在 LangGraph 中通过 config 的 recursion_limit 设置递归上限。",
        "en": "In LangGraph, pass recursion_limit in the config.",
    },
}


@both
@pytest.mark.parametrize("documents", ["zh", "en"])
@pytest.mark.parametrize("question", [VAT, LIMIT])
def test_a_chinese_question_stays_chinese_and_takes_evidence_in_either_language(how, question, documents):
    """C038"""
    text = DOCUMENTS[question][documents]
    grade = json.dumps({"grades": [{"passage": 1, "label": "relevant", "confidence": 0.97, "reason": "r"}]})
    grader = ScriptedModel(script=[grade])

    turn = Turn(question, how, vector_store=ScriptedRetriever({"a": [passage(text, "1")]}), evaluator=ChatModelEvaluator(grader))

    seen = turn.model.requests[0][-1].text
    assert "为编号的段落打分" in str(grader.asked[0][0].text)
    assert turn.receipt["verdict"] == "relevant"
    assert text in seen
    assert RULES["zh"] in seen
    assert RULES["en"] not in seen
    assert seen.endswith(f"{LEAD_IN['zh']}\n\n{question}")


@both
@pytest.mark.parametrize(
    ("question", "drifted"),
    [
        (VAT, "What is the standard VAT rate in China?"),
        (LIMIT, "How do I set recursion_limit in LangGraph?"),
        (LIMIT, "怎么设置递归上限？"),
        ("What is the standard VAT rate?", "增值税的标准税率是多少？"),
        ("Какая стандартная ставка НДС?", "What is the standard VAT rate?"),
    ],
)
def test_a_rewriting_in_another_language_or_without_the_identifiers_is_not_used(how, question, drifted):
    """C038"""
    turn = Turn([("user", "Hi, tax and tools"), ("assistant", "Sure."), ("user", question)], how, rewriter=ScriptedModel(script=[drifted]))

    assert turn.queries == [question]
    assert turn.receipt["degraded"][0] == {"step": "rewrite", "reason": "invalid_reply"}


@both
@pytest.mark.parametrize(
    ("question", "written", "searched"),
    [
        (LIMIT, "递归深度上限 配置", "递归深度上限 配置 LangGraph recursion_limit"),
        (LIMIT, "LangGraph recursion_limit 配置方法", "LangGraph recursion_limit 配置方法"),
        ("Which port does Milvus 2.4 use?", "Milvus default port", "Milvus default port 2.4"),
        (VAT, "增值税 税率 一般纳税人", "增值税 税率 一般纳税人"),
    ],
)
def test_another_query_is_searched_with_every_identifier_of_the_question(how, question, written, searched):
    """C038"""
    store = ScriptedRetriever({"a": [PORT]})

    turn = Turn(question, how, vector_store=store, rewriter=ScriptedModel(script=[written]), evaluator=ScriptedEvaluator(otherwise=0.1))

    assert [query for _, query in store.asked] == [question, searched] == turn.receipt["queries"]


def test_a_pasted_log_need_not_be_repeated_in_a_query():
    """C038"""
    log = " ".join(f"worker_{n} failed at 10.0.0.{n}" for n in range(30))

    assert read_query("Why do the workers fail?", f"{log}. Why?") == "Why do the workers fail?"


async def test_a_rewriter_is_told_to_keep_language_and_names():
    """C038"""
    model = ScriptedModel(script=["递归上限 recursion_limit LangGraph"])

    await ChatModelRewriter(model).arewrite(LIMIT, tried=(LIMIT,))

    system = str(model.asked[0][0].text)
    assert "语言与问题一致" in system
    assert "名称、标识符、数字和版本原样保留" in system
