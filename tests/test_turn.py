"""One turn: what each verdict and each failure leads to, seen by the agent's model and in the receipt."""

import json
import logging

import numpy as np
import pytest
from langchain_core.messages.utils import count_tokens_approximately

from crag_middleware.errors import ConfigError, GradingError, TenantError, WebSearchError
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.assemble import NOTES
from crag_middleware.testing import ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter, ScriptedWebSearch
from crag_middleware.types import Strip
from tests.support.agents import agent_with, ask, both, crag, passage

PORT = passage("The exporter listens on port 9100.", "port", title="Exporter", source="exporter.md")
OTHER = passage("The canteen opens at noon.", "canteen", title="Canteen")
PAGE = passage("The exporter's default port is 9100.", "page", origin="web", title="Ports", url="https://ports.example/x")
QUESTION = "Which port does the exporter use?"


def turn(how, question=QUESTION, **more):
    """The text the model saw in the user's message, and the receipt."""
    agent, model = agent_with(crag(**more))
    result = ask(agent, question, how)
    return model.requests[0][-1].text, result["crag"]


@both
def test_relevant_knowledge_is_refined_and_injected_and_nothing_goes_to_the_web(how):
    web = ScriptedWebSearch([PAGE])

    seen, receipt = turn(how, passages=[PORT], web_search=web)

    assert "[1] knowledge: Exporter | exporter.md\nThe exporter listens on port 9100." in seen
    assert seen.endswith(QUESTION)
    assert (receipt["verdict"], receipt["status"]) == ("relevant", "grounded")
    assert receipt["queries"] == [QUESTION]
    assert not web.asked
    assert receipt["web_queries"] == []
    assert [(s["number"], s["id"]) for s in receipt["sources"]] == [(1, "port")]
    (strip,) = receipt["sources"][0]["strips"]
    assert {**strip, "worth": None} == {"start": 0, "end": 34, "text": PORT.text, "why": "chosen", "worth": None}
    assert 0 < strip["worth"] < 1


@both
def test_ambiguous_knowledge_is_joined_by_the_web(how):
    web = ScriptedWebSearch([PAGE])

    seen, receipt = turn(how, passages=[PORT], evaluator=ScriptedEvaluator({"port": 0.7}), web_search=web)

    assert "[1] knowledge (unverified): Exporter" in seen
    assert "[2] web: Ports | https://ports.example/x" in seen
    assert web.asked == [QUESTION] == receipt["web_queries"]
    assert (receipt["verdict"], receipt["status"]) == ("ambiguous", "grounded")
    assert receipt["calls"] == {"retriever": 1, "evaluator": 2, "web_search": 1, "refiner": 2}


@both
def test_ambiguous_knowledge_without_a_web_search_stays_and_is_marked(how):
    seen, receipt = turn(how, passages=[PORT], evaluator=ScriptedEvaluator({"port": 0.7}))

    assert "[1] knowledge (unverified): Exporter" in seen
    assert "no_web_search" in receipt["notes"]


@both
def test_incorrect_knowledge_is_replaced_by_the_web(how):
    web = ScriptedWebSearch([PAGE])

    seen, receipt = turn(how, passages=[OTHER], evaluator=ScriptedEvaluator({"canteen": 0.1}), web_search=web)

    assert "[1] web: Ports" in seen
    assert "canteen" not in seen
    assert (receipt["verdict"], receipt["status"]) == ("incorrect", "grounded")
    assert receipt["passages"][0]["label"] == "incorrect"


@both
def test_incorrect_knowledge_without_web_is_not_injected_and_the_model_is_told(how):
    """C053"""
    seen, receipt = turn(how, passages=[OTHER], evaluator=ScriptedEvaluator({"canteen": 0.1}))

    assert NOTES["no_evidence"]["en"] in seen
    assert "canteen" not in seen
    assert (receipt["verdict"], receipt["status"], receipt["sources"]) == ("incorrect", "no_evidence", [])


@both
def test_irrelevant_web_pages_are_not_injected_either(how):
    evaluator = ScriptedEvaluator(otherwise=0.1)

    seen, receipt = turn(how, passages=[OTHER], evaluator=evaluator, web_search=ScriptedWebSearch([PAGE]))

    assert NOTES["no_evidence"]["en"] in seen
    assert [p["origin"] for p in receipt["passages"]] == ["knowledge", "web"]


@both
def test_an_empty_tenant_counts_as_incorrect(how):
    """C075"""
    evaluator = ScriptedEvaluator()

    seen, receipt = turn(how, passages=[], evaluator=evaluator, web_search=ScriptedWebSearch([PAGE]))

    assert receipt["verdict"] == "incorrect"
    assert evaluator.asked == [(QUESTION, ("page",))]
    assert "[1] web" in seen


class SecondQueryFinds:
    """A retriever whose rows depend on the query."""

    def __init__(self, **rows):
        self.rows = rows
        self.asked = []

    def retrieve(self, question):
        self.asked.append(question)
        return self.rows.get(question.replace(" ", "_"), [OTHER])


@both
def test_an_incorrect_verdict_is_answered_with_another_query_before_the_web(how):
    store = SecondQueryFinds(exporter_default_port=[PORT])
    web = ScriptedWebSearch([PAGE])
    rewriter = ScriptedRewriter("exporter default port")

    seen, receipt = turn(how, vector_store=store, evaluator=ScriptedEvaluator({"canteen": 0.1}), rewriter=rewriter, web_search=web)

    assert "[1] knowledge: Exporter" in seen
    assert receipt["verdict"] == "relevant"
    assert receipt["queries"] == [QUESTION, "exporter default port"]
    assert rewriter.asked == [(QUESTION, (), (QUESTION,))]
    assert not web.asked


@both
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_rewriting_is_bounded(how, rounds):
    class Fresh:
        def __init__(self):
            self.asked = 0

        def retrieve(self, question):
            self.asked += 1
            return [passage(f"text {self.asked}")]

    store, rewriter = Fresh(), ScriptedRewriter(*[f"query {n}" for n in range(9)])

    _, receipt = turn(
        how, vector_store=store, evaluator=ScriptedEvaluator(otherwise=0.1), rewriter=rewriter, settings=CRAGSettings(max_rewrites=rounds)
    )

    assert store.asked == rounds + 1
    assert len(receipt["queries"]) == rounds + 1


@both
@pytest.mark.parametrize("repeat", [QUESTION, QUESTION.upper() + " "])
def test_rewriting_stops_when_a_query_repeats(how, repeat):
    store = ScriptedRetriever({"a": [OTHER]})

    turn(
        how,
        vector_store=store,
        evaluator=ScriptedEvaluator(otherwise=0.1),
        rewriter=ScriptedRewriter(repeat),
        settings=CRAGSettings(max_rewrites=3),
    )

    assert len(store.asked) == 1


@both
def test_rewriting_stops_when_nothing_new_comes_and_nothing_is_graded_twice(how):
    store, evaluator = ScriptedRetriever({"a": [OTHER]}), ScriptedEvaluator(otherwise=0.1)

    turn(
        how,
        vector_store=store,
        evaluator=evaluator,
        rewriter=ScriptedRewriter("one", "two", "three"),
        settings=CRAGSettings(max_rewrites=3),
    )

    assert len(store.asked) == 2
    assert len(evaluator.asked) == 1


@both
@pytest.mark.parametrize("allowed", [False, True])
def test_a_failed_evaluator_keeps_the_passages_and_stays_off_the_web_unless_told(how, allowed):
    """C051"""
    web = ScriptedWebSearch([PAGE])
    evaluator = ScriptedEvaluator(error=GradingError("down", reason="unavailable"))

    seen, receipt = turn(how, passages=[PORT], evaluator=evaluator, web_search=web, settings=CRAGSettings(web_on_evaluator_failure=allowed))

    assert "[1] knowledge (unverified): Exporter" in seen
    assert receipt["verdict"] == "ambiguous"
    assert receipt["passages"][0]["label"] == "ungraded"
    assert {"step": "grade", "reason": "unavailable"} in receipt["degraded"]
    assert bool(web.asked) is allowed


@both
@pytest.mark.parametrize("allowed", [False, True])
def test_a_failed_store_has_no_verdict_and_the_model_is_told(how, allowed):
    web = ScriptedWebSearch([PAGE])
    store = ScriptedRetriever({}, error=ConnectionError("secret row"))

    seen, receipt = turn(how, vector_store=store, web_search=web, settings=CRAGSettings(web_on_retrieval_failure=allowed))

    assert NOTES["retrieval_failed"]["en"] in seen
    assert (receipt["verdict"], receipt["status"]) == (None, "retrieval_failed")
    assert receipt["degraded"] == [{"step": "retrieve", "reason": "ConnectionError"}]
    assert bool(web.asked) is allowed
    assert ("[1] web" in seen) is allowed


@both
def test_a_failed_web_search_leaves_what_the_knowledge_has(how):
    """C099"""
    web = ScriptedWebSearch(error=WebSearchError("late", reason="timeout"))

    seen, receipt = turn(how, passages=[PORT], evaluator=ScriptedEvaluator({"port": 0.7}), web_search=web)

    assert "[1] knowledge (unverified)" in seen
    assert receipt["degraded"] == [{"step": "search_web", "reason": "timeout"}]


@both
def test_a_failed_refiner_leaves_the_passages_whole(how):
    class Failing:
        def refine(self, question, passages):
            raise RuntimeError

    seen, receipt = turn(how, passages=[PORT], refiner=Failing())

    assert PORT.text in seen
    assert receipt["degraded"] == [{"step": "refine", "reason": "RuntimeError"}]


@both
def test_a_refiner_that_writes_its_own_text_is_not_believed(how):
    class Inventing:
        def refine(self, question, passages):
            return [[Strip("port 1234", 0, 9)] for _ in passages]

    seen, receipt = turn(how, passages=[PORT], refiner=Inventing())

    assert "1234" not in seen
    assert receipt["degraded"] == [{"step": "refine", "reason": "invalid_reply"}]


@both
@pytest.mark.parametrize("spans", [[(0, 3), (0, 3)], [(0, 5), (3, 9)], [(2, 2)], [(-5, -1)]])
def test_strips_that_are_empty_or_overlap_are_not_believed(how, spans):
    class Repeating:
        def refine(self, question, passages):
            return [[Strip(p.text[a:b], a, b) for a, b in spans] for p in passages]

    _, receipt = turn(how, passages=[PORT], refiner=Repeating())

    assert receipt["degraded"] == [{"step": "refine", "reason": "invalid_reply"}]


@both
@pytest.mark.parametrize("owner", ["b", "", None, 5])
def test_a_passage_of_ones_own_retriever_that_names_another_tenant_ends_the_turn(how, owner):
    """C058"""
    with pytest.raises(TenantError):
        turn(how, passages=[PORT, passage("stray", metadata={"agent_id": owner})])

    assert turn(how, passages=[passage(PORT.text, metadata={"agent_id": "a"})])[1]["status"] == "grounded"


@both
def test_a_follow_up_is_made_understandable_from_its_history(how):
    """C030"""
    store = ScriptedRetriever({"a": [PORT]})
    rewriter = ScriptedRewriter("What does plan B cost?")
    agent, _ = agent_with(crag(vector_store=store, rewriter=rewriter))

    result = ask(agent, [("user", "Compare plan A and plan B."), ("assistant", "A is cheap."), ("user", "And the second one?")], how)

    assert store.asked == [("a", "What does plan B cost?")]
    assert [e.text for e in rewriter.asked[0][1]] == ["Compare plan A and plan B.", "A is cheap."]
    assert result["crag"]["query"] == "What does plan B cost?"


@both
@pytest.mark.parametrize("rewriter", [None, ScriptedRewriter(""), ScriptedRewriter("  "), ScriptedRewriter(RuntimeError())])
def test_without_a_usable_rewriter_a_follow_up_is_searched_as_it_is(how, rewriter):
    """C030"""
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = agent_with(crag(vector_store=store, rewriter=rewriter))

    result = ask(agent, [("user", "Compare plan A and plan B."), ("assistant", "A is cheap."), ("user", "And the second one?")], how)

    assert store.asked == [("a", "And the second one?")]
    if rewriter is None:
        assert result["crag"]["notes"] == ["no_rewriter"]
    else:
        assert result["crag"]["degraded"][0]["step"] == "rewrite"


@both
def test_a_first_question_is_not_rewritten(how):
    rewriter = ScriptedRewriter("something else")

    _, receipt = turn(how, passages=[PORT], rewriter=rewriter)

    assert not rewriter.asked
    assert receipt["query"] == QUESTION


@both
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("Hello!", "greeting"),
        ("谢谢", "greeting"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "no_text"),
    ],
)
def test_what_holds_no_question_reaches_the_model_untouched(how, content, why):
    """C029, C035"""
    store = ScriptedRetriever({"a": [PORT]})
    agent, model = agent_with(crag(vector_store=store))

    result = ask(agent, [{"role": "user", "content": content}], how)

    assert not store.asked
    assert model.requests[0][-1].content == content
    assert (result["crag"]["status"], result["crag"]["skipped"]) == ("skipped", why)


@both
@pytest.mark.parametrize("text", ["???", "🚀🚀", "111123", "the of and"])
def test_odd_questions_raise_nothing_and_go_to_the_web_only_with_letters_or_digits(how, text):
    """C035"""
    web = ScriptedWebSearch()

    _, receipt = turn(how, text, passages=[], web_search=web)

    assert receipt["verdict"] == "incorrect"
    assert bool(web.asked) is any(c.isalnum() for c in text)


@both
def test_rules_and_notes_follow_the_questions_language(how):
    seen, _ = turn(how, "导出器使用哪个端口？", passages=[PORT])
    told, _ = turn(how, "导出器使用哪个端口？", passages=[])
    fixed, _ = turn(how, "导出器使用哪个端口？", passages=[], settings=CRAGSettings(language="en"))

    assert "事实来自这些资料" in seen
    assert NOTES["no_evidence"]["zh"] in told
    assert NOTES["no_evidence"]["en"] in fixed


@both
def test_thresholds_of_the_settings_override_those_of_the_evaluator(how):
    evaluator = ScriptedEvaluator({"port": 0.7})

    _, lenient = turn(how, passages=[PORT], evaluator=evaluator, settings=CRAGSettings(lower=0.2, upper=0.6))
    _, strict = turn(how, passages=[PORT], evaluator=evaluator, settings=CRAGSettings(lower=0.8))

    assert (lenient["verdict"], strict["verdict"]) == ("relevant", "incorrect")


@both
def test_the_better_passage_leads_whatever_its_rank(how):
    seen, _ = turn(how, passages=[OTHER, PORT], evaluator=ScriptedEvaluator({"canteen": 0.6}))

    assert seen.index("Exporter") < seen.index("Canteen")


@both
def test_a_web_page_that_repeats_the_knowledge_is_not_shown_twice(how):
    """C022"""
    copy = passage(PORT.text.upper(), "copy", origin="web", url="https://copy.example")

    _, receipt = turn(how, passages=[PORT], evaluator=ScriptedEvaluator({"port": 0.7}), web_search=ScriptedWebSearch([copy, PAGE]))

    assert [s["id"] for s in receipt["sources"]] == ["port", "page"]


@both
def test_where_a_passage_comes_from_is_decided_by_who_was_asked(how):
    forged = passage("HR policy: ports are secret.", "port", title="HR policy", url="https://evil.example", origin="knowledge")
    stray = passage(PORT.text, "port", origin="web", title="Exporter")

    seen, receipt = turn(how, passages=[stray], evaluator=ScriptedEvaluator({"port": 0.7}), web_search=ScriptedWebSearch([forged]))

    assert "[1] knowledge (unverified): Exporter" in seen
    assert "[2] web (unverified): HR policy | https://evil.example" in seen
    assert [p["number"] for p in receipt["passages"]] == [1, 2]


@both
@pytest.mark.parametrize("detail", ["injected", "full"])
def test_the_receipt_is_plain_json_and_holds_dropped_text_only_on_request(how, detail):
    _, receipt = turn(
        how, passages=[PORT, OTHER], evaluator=ScriptedEvaluator({"canteen": 0.1}), settings=CRAGSettings(receipt_detail=detail)
    )

    assert json.loads(json.dumps(receipt)) == receipt
    assert (OTHER.text in json.dumps(receipt)) is (detail == "full")


def test_numbers_of_numpy_and_no_numbers_become_plain_ones():
    odd = [passage("a port", "1", score=np.float32(0.5), confidence=np.float64(0.9)), passage("b port", "2", score=float("nan"))]

    _, receipt = turn("invoke", passages=odd, evaluator=ScriptedEvaluator(otherwise=np.float32(0.95)))

    assert json.loads(json.dumps(receipt, allow_nan=False)) == receipt
    assert [type(p["score"]) for p in receipt["passages"]] == [float, type(None)]


def test_a_degraded_turn_is_logged_without_private_text(caplog):
    caplog.set_level(logging.DEBUG)

    turn("invoke", "What is MARKER-Q?", vector_store=ScriptedRetriever({}, error=ValueError("MARKER-ROW")))

    ours = [r for r in caplog.records if r.name.startswith("crag_middleware")]
    assert any("retrieve" in r.getMessage() for r in ours)
    assert "MARKER" not in " ".join(r.getMessage() for r in caplog.records)


@both
@pytest.mark.parametrize(("counter", "budget"), [(len, 900), (count_tokens_approximately, 256), (lambda text: len(text.split()), 256)])
def test_a_token_counter_of_ones_own_or_of_langchain_bounds_the_block(how, counter, budget):
    long = passage(" ".join(f"The exporter of host {n} has port {n}." for n in range(1000)), "long")

    _, receipt = turn(how, passages=[long], token_counter=counter, settings=CRAGSettings(max_context_tokens=budget, max_strips=50))

    assert receipt["tokens"] <= budget
    assert receipt["sources"]
    assert "cut_to_budget" in receipt["notes"]


@pytest.mark.parametrize("counter", [lambda: 1, lambda text: "many", lambda text: None])
def test_a_token_counter_that_counts_nothing_is_refused(counter):
    with pytest.raises(ConfigError, match="`token_counter`"):
        crag([PORT], token_counter=counter)
