"""Grading by a chat model inside whole agents, with the real client against a server on loopback (kind 4 of the known failure cases)."""

import json
import logging

import pytest
from langchain_openai import ChatOpenAI

from crag_middleware.adapters.chat_model import CALL_PASSAGES, ChatModelEvaluator
from crag_middleware.adapters.fan_out import PARALLEL_CALLS
from crag_middleware.settings import CHAT_THRESHOLDS, CRAGSettings
from crag_middleware.stages.assemble import NOTES
from crag_middleware.stages.grading import read_grades
from crag_middleware.stages.replies import fraction, read_label
from crag_middleware.testing import ScriptedRetriever, ScriptedWebSearch
from crag_middleware.types import Passage
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.chat_server import serve_chat

QUESTIONS = {"en": "Which port does the exporter use?", "zh": "导出器使用哪个端口？"}
PORT = passage("The exporter listens on port 9100.", "port", title="Exporter")
OTHER = passage("The canteen opens at noon.", "canteen", title="Canteen")
PAGE = passage("The exporter's default port is 9100.", "page", origin="web", url="https://ports.example/x")

in_both_languages = pytest.mark.parametrize(("how", "language"), [("invoke", "en"), ("ainvoke", "zh")])
"""Each question in its language, one sync and one async."""


@pytest.fixture
def server():
    with serve_chat() as running:
        yield running


def entries(*entries):
    """A reply with a label and a confidence for each passage."""
    grades = [{"passage": n, "label": label, "confidence": c, "reason": "r"} for n, (label, c) in enumerate(entries, 1)]
    return json.dumps({"grades": grades})


GOOD = entries(("relevant", 0.97), ("incorrect", 0.05))


def count_of(asked):
    return asked["messages"][-1]["content"].count("<passage ")


def all_relevant(asked):
    return entries(*[("relevant", 0.95)] * count_of(asked))


def turn(server, how, language="en", passages=(PORT, OTHER), **more):
    """What the agent's model saw, and the receipt, of a turn whose passages the server grades."""
    options = {"passages": list(passages), "settings": CRAGSettings(max_rewrites=0), **more}
    agent, model = agent_with(crag(**{"evaluator": server.model()} | options) if server else crag(**options))
    receipt = ask(agent, QUESTIONS[language], how)["crag"]
    return model.requests[0][-1].text, receipt


def labels(receipt):
    return {p["id"]: p["label"] for p in receipt["passages"]}


# --- C039: thinking models and forced tool choice


@in_both_languages
@pytest.mark.parametrize(
    "refuses", [{"tool_choice"}, {"tool_choice", "json_schema"}, {"tool_choice", "json_schema", "json_object", "thinking"}]
)
def test_a_thinking_model_grades_and_what_it_refuses_is_tried_and_told_once(server, how, language, refuses, caplog):
    """C039"""
    caplog.set_level(logging.INFO, "crag_middleware")
    server.mood.replies, server.mood.refuses = [GOOD], frozenset(refuses)
    agent, _ = agent_with(
        crag([PORT, OTHER], evaluator=server.model(model="deepseek-v4-pro"), settings=CRAGSettings(standalone_questions=False))
    )

    receipts = [ask(agent, QUESTIONS[language], how)["crag"]]
    first = len(server.requests)
    receipts += [ask(agent, QUESTIONS[language], how)["crag"] for _ in range(2)]

    assert [r["verdict"] for r in receipts] == ["relevant"] * 3
    assert all(r["degraded"] == [] for r in receipts)
    assert first <= 4
    assert len(server.requests) == first + 2
    assert not any("tools" in asked or "tool_choice" in asked for asked in server.requests)
    assert len([r for r in caplog.records if "refuses" in r.getMessage()]) == (len(refuses) > 1)


# --- C040: prose instead of JSON


@in_both_languages
@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("The passage is relevant.", "relevant"),
        ("Not relevant: it is about lunch.", "incorrect"),
        ("该段落与问题相关。", "relevant"),
        ("这段与问题无关", "incorrect"),
        ("部分相关", "ambiguous"),
    ],
)
def test_prose_about_one_passage_is_read_once_and_leniently(server, how, language, reply, label):
    """C040"""
    server.mood.replies = [reply]

    _, receipt = turn(server, how, language, [PORT])

    assert labels(receipt) == {"port": label}
    assert receipt["degraded"] == []
    assert len(server.requests) == 1


@in_both_languages
@pytest.mark.parametrize(
    "reply", ["I can't say.", "None", "null", "{}", "无可奉告", "[]", '{"grades": null}', '{"grades": [null, 3]}', "relevant or irrelevant"]
)
def test_a_reply_without_any_grade_is_a_failure_of_the_grader_and_no_verdict_on_the_passages(server, how, language, reply):
    """C040"""
    server.mood.replies = [reply]

    seen, receipt = turn(server, how, language, [PORT])

    assert labels(receipt) == {"port": "ungraded"}
    assert (receipt["verdict"], receipt["status"]) == ("ambiguous", "grounded")
    assert receipt["degraded"] == [{"step": "grade", "reason": "invalid_reply"}]
    assert "(unverified)" in seen


# --- C041: blank replies


@both
@pytest.mark.parametrize("blank", ["", "\n\n\n"])
def test_a_blank_reply_costs_one_more_call_and_its_own_passages_only(server, how, blank):
    """C041: two calls grade forty passages, one of them stays blank."""

    def answer(asked):
        return blank if "text 0 " in asked["messages"][-1]["content"] else all_relevant(asked)

    server.mood.replies = [answer]
    many = [passage(f"text {n} of many", str(n)) for n in range(2 * CALL_PASSAGES)]

    _, receipt = turn(server, how, passages=many, settings=CRAGSettings(top_k=2 * CALL_PASSAGES))

    assert [p["label"] for p in sorted(receipt["passages"], key=lambda p: int(p["id"]))] == ["ungraded"] * CALL_PASSAGES + [
        "relevant"
    ] * CALL_PASSAGES
    assert receipt["degraded"] == [{"step": "grade", "reason": "incomplete"}]
    assert sorted(server.forms()) == ["json_schema", "json_schema", "plain"]


@in_both_languages
def test_blank_for_good_keeps_the_passages_as_unverified(server, how, language):
    """C041"""
    server.mood.replies = ["\n\n"]

    seen, receipt = turn(server, how, language)

    assert set(labels(receipt).values()) == {"ungraded"}
    assert receipt["verdict"] == "ambiguous"
    assert PORT.text in seen
    assert len(server.requests) == 2


@both
def test_a_reply_that_leaves_passages_out_grades_the_others_and_says_so(server, how):
    """C041"""
    server.mood.replies = [entries(("relevant", 0.97))]

    _, receipt = turn(server, how)

    assert labels(receipt) == {"port": "relevant", "canteen": "ungraded"}
    assert receipt["degraded"] == [{"step": "grade", "reason": "incomplete"}]


# --- C042: JSON mode wants the word


@in_both_languages
@pytest.mark.parametrize("instructions", [None, "请给每个段落打分。", "Rate every passage."])
def test_json_mode_finds_the_word_an_example_and_a_limit_whatever_the_prompt(server, how, language, instructions):
    """C042"""
    server.mood.replies, server.mood.refuses = [GOOD], frozenset({"json_schema"})

    _, receipt = turn(server, how, language, evaluator=ChatModelEvaluator(server.model(), instructions=instructions))

    asked = server.requests[-1]
    assert asked["response_format"] == {"type": "json_object"}
    assert "JSON" in asked["messages"][0]["content"]
    assert '{"grades":[' in asked["messages"][0]["content"]
    assert asked["max_tokens"] > 0
    assert receipt["degraded"] == []


# --- C043: JSON in any dress


DRESSED = [
    f"```json\n{GOOD}\n```",
    f"Here you are:\n```\n{GOOD}\n```\nAnything else?",
    f"结果如下：\n```json\n{GOOD}\n```\n以上。",
    f"Like {entries(('incorrect', 0), ('relevant', 1))}\nso:\n{GOOD}",
    f"First {entries(('ambiguous', 0.6), ('ambiguous', 0.6))}. On second thought:\n```json\n{GOOD}\n```",
    GOOD.replace('"r"', json.dumps('says ```json\n{"grades": [{"passage": 1, "label": "incorrect", "confidence": 0}]}\n``` there')),
    f'{GOOD}\n{{"note": "done"}}',
    f"{GOOD}\n[1] and [2] were read.",
    GOOD.replace('"grades"', '"结果"'),
    f"\ufeff{GOOD}",
    GOOD.replace("}, {", "}\n\n,\n{"),
    f"<think>{entries(('incorrect', 0.1), ('incorrect', 0.1))}</think>{GOOD}",
]


@pytest.mark.parametrize(("how", "reply"), [(how, reply) for reply, how in zip(DRESSED, ["invoke", "ainvoke"] * 6, strict=True)])
def test_the_last_complete_json_that_fits_is_read(server, how, reply):
    """C043"""
    server.mood.replies = [reply]

    _, receipt = turn(server, how)

    assert [(p["id"], p["label"], p["probability"]) for p in receipt["passages"]] == [
        ("port", "relevant", 0.97),
        ("canteen", "incorrect", 0.05),
    ]
    assert receipt["degraded"] == []


# --- C045: confidences on any scale


@pytest.mark.parametrize(
    ("stated", "meant"),
    [
        *(
            (s, 0.85)
            for s in (0.85, 85, "85%", "0.85", "0,85", "85,0", "８５％", "85 %", "85 percent", "约85%", "~0.85", "0.85 (high)", "85/100")
        ),
        *((s, 0.9) for s in ("9/10", "9 out of 10", "0.9.", "+0.9", "9e-1", "about 90%", "百分之90")),
        *((s, 1.0) for s in (1, 1.0, "1", "100%", 100, "1/1", "１")),
        *((s, 0.0) for s in (0, "0%", "0.0", -0.0, "0/10")),
        ("1e-1", 0.1),
        ("1%", 0.01),
        *((s, None) for s in (-3, 140, "140%", "-0.5", None, True, False, float("nan"), float("inf"), "NaN", "Infinity", "high", "高", "")),
        *((s, None) for s in ([0.9], {"p": 0.9}, "12/10", "5/0", "1,000", "9_0", "0.1 to 0.9", "0.1-0.9", "1e999", 10**400, "%", "八成")),
    ],
)
def test_a_confidence_is_read_in_any_spelling_or_is_unknown(stated, meant):
    """C045"""
    read = fraction(stated)

    assert read == (None if meant is None else pytest.approx(meant))
    assert str(read) != "-0.0"


@both
def test_one_odd_confidence_never_costs_the_batch(server, how):
    """C045"""
    odd = [0.97, "９７％", "0,97", 97, "97/100", None, True, "high", [0.9], -3, 140, "NaN"]
    stated = [{"passage": n, "label": "relevant", "confidence": c} for n, c in enumerate(odd, 1)]
    server.mood.replies = [json.dumps({"grades": stated}).replace('"NaN"', "NaN")]
    many = [passage(f"text {n}", str(n)) for n in range(len(odd))]

    _, receipt = turn(server, how, passages=many, settings=CRAGSettings(top_k=len(odd)))

    read = {int(p["id"]): p["probability"] for p in receipt["passages"]}
    assert [read[n] for n in range(len(odd))] == [0.97] * 5 + [0.95] * 7
    assert set(labels(receipt).values()) == {"relevant"}
    assert receipt["degraded"] == []


# --- C047: labels in any wording


WORDED = {
    "relevant": (
        "Relevant|RELEVANT.|**relevant**|highly relevant|Highly-Relevant|relevent|high relevance|yes|true|✅ relevant",
        "相关|相關|很相关|非常相关|高度相关|完全相关|相关性高|有关系|正确|是|对|“相关”。",
    ),
    "ambiguous": (
        "partially relevant|Partly_relevant|partly relevant|not fully relevant|not very relevant|somewhat relevant|borderline relevant",
        "weakly relevant|low relevance|ambiguous|unsure|not sure|can't tell|maybe",
        "部分相关|部分相關|不太相关|不是很相关|不怎么相关|不完全相关|可能相关|间接相关|弱相关|相关性低|相关性不高|关系不大|不确定|无法判断",
    ),
    "incorrect": (
        "not relevant|NOT RELEVANT!|Not relevant at all|not_relevant|irrelevant|irrelevent|non-relevant|isn't relevant|hardly relevant",
        "far from relevant|no longer relevant|Relevant? No.|unrelated|off-topic|incorrect|no|false|It does not answer it",
        "不相关|不相關|不 相关|不\u200b相关|毫不相关|基本不相关|非常不相关|并非相关|无关|無關|毫无关系|没有关系|非相关|否|不对|答非所问|跑题",
    ),
    None: ("banana|not irrelevant|没有不相关|relevant or irrelevant|相关，但没有回答|relevant/ambiguous/incorrect||?|n/a",),
}


@pytest.mark.parametrize(("written", "meant"), [(w, meant) for meant, lines in WORDED.items() for line in lines for w in line.split("|")])
def test_a_label_means_what_it_says(written, meant):
    """C047"""
    assert read_label(written) == meant


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        ({"relevant": True}, "relevant"),
        ({"relevant": False}, "incorrect"),
        ({"binary_score": "yes"}, "relevant"),
        ({"score": "no"}, "incorrect"),
        ({"relevance": 0.95}, "relevant"),
        ({"relevance": "20%"}, "incorrect"),
        ({"relevance": 2}, "ungraded"),
        ({"label": "banana", "confidence": 0.95}, "relevant"),
        ({"label": "banana"}, "ungraded"),
        ({"label": ["relevant"]}, "ungraded"),
        ({"label": None, "confidence": None}, "ungraded"),
        ({"相关性": "部分相关"}, "ambiguous"),
    ],
)
def test_a_grade_is_read_under_the_names_that_models_give_it(entry, label):
    """C047"""
    (grade,) = read_grades(json.dumps({"grades": [{"passage": 1, **entry}]}), (Passage(id="1", text="t"),), CHAT_THRESHOLDS)

    assert grade.label == label


@both
@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("NOT RELEVANT!", "incorrect"),
        ("不太相关", "ambiguous"),
        ("Highly relevant", "relevant"),
        ("无关", "incorrect"),
        ("banana", "ambiguous"),
    ],
)
def test_the_wording_decides_what_happens_in_the_turn(server, how, words, verdict):
    """C047"""
    server.mood.replies = [json.dumps({"grades": [{"passage": 1, "label": words}]})]

    seen, receipt = turn(server, how, passages=[PORT])

    assert receipt["verdict"] == verdict
    assert (PORT.text in seen) is (verdict != "incorrect")
    assert bool(receipt["degraded"]) is (words == "banana")


# --- C049: rate limits


MANY = [passage(f"text {n}", str(n)) for n in range(40)]


@both
def test_forty_passages_are_few_calls_at_a_time(server, how):
    """C049"""
    server.mood.replies, server.mood.max_parallel = [all_relevant], PARALLEL_CALLS

    _, receipt = turn(server, how, passages=MANY, settings=CRAGSettings(top_k=40))

    assert list(labels(receipt).values()) == ["relevant"] * 40
    assert len(server.requests) == 2
    assert server.peak <= PARALLEL_CALLS
    assert receipt["degraded"] == []


@both
def test_a_call_that_meets_the_limit_is_counted_logged_and_never_read_as_a_verdict(server, how, caplog):
    """C049"""
    server.mood.replies = [all_relevant]
    server.mood.limits = lambda asked, number: "\ntext 0\n" in asked["messages"][-1]["content"]

    _, receipt = turn(server, how, passages=MANY, settings=CRAGSettings(top_k=40))

    assert sorted(labels(receipt).values()) == ["relevant"] * CALL_PASSAGES + ["ungraded"] * CALL_PASSAGES
    assert receipt["degraded"] == [{"step": "grade", "reason": "incomplete"}]
    assert "1 of 2 grading calls failed: rate_limited" in [r.getMessage() for r in caplog.records]


@both
def test_the_clients_own_backoff_is_used_and_nothing_is_degraded(server, how):
    """C049"""
    server.mood.replies, server.mood.limits = [all_relevant], lambda asked, number: number == 0

    _, receipt = turn(server, how, evaluator=server.model(max_retries=2))

    assert receipt["verdict"] == "relevant"
    assert receipt["degraded"] == []
    assert len(server.requests) == 2


# --- C051: an outage is no verdict


@in_both_languages
@pytest.mark.parametrize(("status", "reason"), [(429, "rate_limited"), (500, "unavailable"), (401, "unauthorized"), (402, "quota")])
@pytest.mark.parametrize("allowed", [False, True])
def test_a_grader_that_is_down_keeps_the_passages_unverified_and_the_web_is_a_switch_of_its_own(
    server, how, language, status, reason, allowed
):
    """C051"""
    server.mood.status = status
    web = ScriptedWebSearch([PAGE])

    seen, receipt = turn(server, how, language, web_search=web, settings=CRAGSettings(web_on_evaluator_failure=allowed))

    assert "knowledge (unverified): Exporter" in seen
    assert PORT.text in seen
    assert receipt["verdict"] == "ambiguous"
    assert {p["label"] for p in receipt["passages"]} == {"ungraded"}
    assert {p["probability"] for p in receipt["passages"]} == {None}
    assert receipt["degraded"][0] == {"step": "grade", "reason": reason}
    assert bool(web.asked) is allowed
    # The passages, and the pages, unless the evaluator said that asking again is in vain.
    assert len(server.requests) == (2 if allowed and status not in (401, 402) else 1)


@both
@pytest.mark.parametrize("allowed", [False, True])
def test_a_grader_that_can_not_be_reached_at_all_is_the_same(how, allowed):
    """C051"""
    with serve_chat() as gone:
        evaluator = gone.model()
    web = ScriptedWebSearch([PAGE])

    _, receipt = turn(None, how, evaluator=evaluator, web_search=web, settings=CRAGSettings(web_on_evaluator_failure=allowed))

    assert (receipt["verdict"], receipt["degraded"][0]) == ("ambiguous", {"step": "grade", "reason": "unavailable"})
    assert bool(web.asked) is allowed


@both
def test_a_partial_outage_searches_the_web_as_any_ambiguous_turn(server, how):
    """C051"""
    server.mood.replies = [entries(("ambiguous", 0.7))]
    web = ScriptedWebSearch([PAGE])

    _, receipt = turn(server, how, web_search=web)

    assert labels(receipt) | {"page": ""} == {"port": "ambiguous", "canteen": "ungraded", "page": ""}
    assert web.asked


# --- C052: a passage that is too long


HUGE = passage(
    "HEAD " + "Nothing of note happened in the valley. " * 2000 + "The exporter listens on port 9187. " + "All was calm. " * 5000 + "TAIL",
    "huge",
)
HUGE_ZH = passage("开头。" + "山谷里那天什么也没有发生。" * 6000 + "导出器使用端口九一八七。" + "一切平静。" * 14000 + "结尾", "huge")


@both
@pytest.mark.parametrize(("language", "huge", "answer"), [("en", HUGE, "port 9187"), ("zh", HUGE_ZH, "端口九一八七")])
def test_a_huge_passage_is_clipped_for_grading_and_whole_for_refinement(server, how, language, huge, answer):
    """C052"""
    server.mood.replies, server.mood.window = [all_relevant], 12_000
    assert len(huge.text) > 145_000

    seen, receipt = turn(server, how, language, [huge, PORT, OTHER, passage("short", "short")])

    (asked,) = server.requests
    shown = asked["messages"][-1]["content"]
    assert answer in shown
    assert huge.text[:4] in shown
    assert huge.text[-2:] in shown
    assert set(labels(receipt).values()) == {"relevant"}
    assert receipt["degraded"] == []
    (source,) = [s for s in receipt["sources"] if s["id"] == "huge"]
    assert any(answer in strip["text"] for strip in source["strips"])
    assert all(huge.text[s["start"] : s["end"]] == s["text"] for s in source["strips"])
    assert answer in seen


@both
@pytest.mark.parametrize("client", ["deepseek", "openai"])
def test_passages_that_do_not_fit_together_are_graded_in_smaller_calls(server, how, client):
    """C052"""
    server.mood.replies, server.mood.window = [all_relevant], 4500
    long = [passage(f"{n} " + "word " * 280, str(n)) for n in range(4)]
    model = server.model() if client == "deepseek" else ChatOpenAI(model="small", api_key="k", base_url=server.url, max_retries=0)

    _, receipt = turn(server, how, passages=long, evaluator=model)

    assert labels(receipt) == dict.fromkeys("0123", "relevant")
    assert receipt["degraded"] == []
    assert [count_of(asked) for asked in server.requests] == [4, 2, 2]
    assert set(server.forms()) == {"json_schema"}


@both
def test_the_error_of_a_passage_that_fits_no_call_stays_its_own(server, how):
    """C052"""
    server.mood.replies, server.mood.window = [all_relevant], 6000
    evaluator = ChatModelEvaluator(server.model(), max_passage_chars=20_000)
    texts = {"a": "short a", "huge": "word " * 3900, "b": "short b", "c": "short c"}

    _, receipt = turn(server, how, passages=[passage(text, id_) for id_, text in texts.items()], evaluator=evaluator)

    assert labels(receipt) == {"a": "relevant", "huge": "ungraded", "b": "relevant", "c": "relevant"}
    assert receipt["verdict"] == "relevant"
    assert receipt["degraded"] == [{"step": "grade", "reason": "incomplete"}]
    assert [count_of(asked) for asked in server.requests] == [4, 2, 1, 1, 2]


@both
def test_a_model_too_small_for_any_passage_is_an_outage_that_says_why(server, how):
    """C052"""
    server.mood.window = 100

    _, receipt = turn(server, how)

    assert receipt["degraded"] == [{"step": "grade", "reason": "too_long"}]
    assert set(labels(receipt).values()) == {"ungraded"}
    assert len(server.requests) == 3


# --- C053: the verdict is acted on


@in_both_languages
@pytest.mark.parametrize("position", ["human", "system"])
def test_incorrect_passages_reach_the_model_in_no_form_and_it_is_told_so(server, how, language, position):
    """C053"""
    server.mood.replies = [entries(("incorrect", 0.03), ("不相关", 0.02))]
    agent, model = agent_with(
        crag([OTHER, passage("午餐十二点开始。", "lunch")], evaluator=server.model(), settings=CRAGSettings(position=position)),
        system_prompt="BASE",
    )

    receipt = ask(agent, QUESTIONS[language], how)["crag"]

    seen = " ".join(message.text for message in model.requests[0])
    assert NOTES["no_evidence"][language] in seen
    for text in (OTHER.text, "Canteen", "午餐", "[1]"):
        assert text not in seen
    assert (receipt["verdict"], receipt["status"], receipt["sources"], receipt["tokens"] > 0) == ("incorrect", "no_evidence", [], True)
    assert "no_web_search" in receipt["notes"]


@in_both_languages
def test_of_mixed_grades_only_what_is_not_incorrect_is_injected(server, how, language):
    """C053"""
    server.mood.replies = [GOOD]

    seen, receipt = turn(server, how, language)

    assert PORT.text in seen
    assert OTHER.text not in seen
    assert [s["id"] for s in receipt["sources"]] == ["port"]


@both
def test_incorrect_web_pages_are_no_evidence_either(server, how):
    """C053"""
    server.mood.replies = [lambda asked: entries(*[("incorrect", 0.02)] * count_of(asked))]

    seen, receipt = turn(server, how, web_search=ScriptedWebSearch([PAGE]))

    assert NOTES["no_evidence"]["en"] in seen
    assert PAGE.text not in seen
    assert receipt["status"] == "no_evidence"


def test_a_retriever_is_asked_again_for_an_incorrect_verdict_and_not_for_an_outage(server):
    """C051, C053"""
    store = ScriptedRetriever({"a": [OTHER]})
    server.mood.status = 503

    turn(server, "invoke", vector_store=store)

    assert len(store.asked) == 1
