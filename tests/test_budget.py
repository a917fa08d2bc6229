"""One deadline and one budget a turn: what is done without when either runs short, and what the receipt says of it."""

import asyncio
import threading
import time
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from crag_middleware import CRAGSettings, WebPolicy
from crag_middleware.adapters.chat_model import ChatModelEvaluator
from crag_middleware.errors import GradingError
from crag_middleware.findings import Spent
from crag_middleware.meter import Meter
from crag_middleware.receipt import explain
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter, ScriptedWebSearch
from crag_middleware.types import Checked, Thresholds
from tests.support.agents import agent_with, ask, both, crag, passage

QUESTION = "Which port does the exporter use?"
PORT = passage("The exporter listens on port 9100.", "port", title="Exporter", source="exporter.md")
PAGE = passage("The exporter's default port is 9100.", "page", origin="web", title="Ports", url="https://ports.example/x")


class Hangs:
    """A port that returns only when the test is over."""

    def __init__(self):
        self.gate = threading.Event()
        self.asked = 0

    def grade(self, question, passages):
        return self._wait()

    def retrieve(self, question):
        return self._wait()

    def search(self, query):
        return self._wait()

    def check(self, claims, grounds):
        return self._wait()

    def rewrite(self, question):
        return self._wait()

    def _wait(self):
        self.asked += 1
        self.gate.wait(20)
        return []


@pytest.fixture
def hangs():
    port = Hangs()
    yield port
    port.gate.set()


def turn(how, question=QUESTION, replies=("It is 9100 [1].",), settings=None, passages=(PORT,), **more):
    """What the model saw, and the receipt, which always can be told."""
    agent, model = agent_with(crag(passages, settings=CRAGSettings(**(settings or {})), **more), replies=replies)
    began = time.monotonic()
    result = ask(agent, question, how)
    assert time.monotonic() - began < 15  # any hanging port alone takes 20 s
    assert result["messages"][-1].text
    assert explain(result["crag"])
    return model.requests[0][-1].text, result["crag"]


# The ladder


@both
def test_a_hanging_claim_checker_leaves_the_answer_unchecked(how, hangs):
    _, receipt = turn(how, claim_checker=hangs, settings={"turn_timeout_s": 0.5})
    assert receipt["rungs"] == ["no_claim_check"]
    assert receipt["answer"]["checked"] == "skipped"
    assert receipt["answer"]["degraded"] == [{"step": "check_claims", "reason": "deadline"}]


@both
def test_a_hanging_evaluator_gives_way_to_the_fallback(how, hangs):
    cheap = ScriptedEvaluator({"port": 0.8})
    cheap.thresholds = Thresholds(lower=0.3, upper=0.7)
    seen, receipt = turn(how, evaluator=hangs, fallback_evaluator=cheap, settings={"turn_timeout_s": 0.5})
    assert "9100" in seen
    assert receipt["rungs"] == ["cheap_evaluator"]
    assert receipt["verdict"] == "relevant"  # by the fallback's own thresholds; by the default ones it were ambiguous
    assert {"step": "grade", "reason": "deadline"} in receipt["degraded"]
    assert receipt["calls"]["fallback_evaluator"] == 1


@both
def test_without_a_fallback_passages_are_used_without_a_grade(how, hangs):
    seen, receipt = turn(how, evaluator=hangs, settings={"turn_timeout_s": 0.5})
    assert "9100" in seen
    assert receipt["rungs"] == ["plain_passages"]
    assert receipt["passages"][0]["label"] == "ungraded"


@both
def test_an_evaluator_that_fails_for_another_reason_gives_way_to_the_fallback_too(how):
    class Broken:
        def grade(self, question, passages):
            raise GradingError("no", reason="quota")

    _, receipt = turn(how, evaluator=Broken(), fallback_evaluator=ScriptedEvaluator())
    assert receipt["rungs"] == ["cheap_evaluator"]
    assert receipt["verdict"] == "relevant"
    assert {"step": "grade", "reason": "quota"} in receipt["degraded"]


@both
def test_a_fallback_that_fails_too_is_told(how):
    class Broken:
        def grade(self, question, passages):
            raise ValueError("no")

    seen, receipt = turn(how, evaluator=Broken(), fallback_evaluator=Broken())
    assert "9100" in seen
    assert [d["step"] for d in receipt["degraded"]] == ["grade", "fallback_grade"]
    assert receipt["rungs"] == []


@both
def test_a_hanging_web_leaves_time_for_what_the_knowledge_has(how, hangs):
    seen, receipt = turn(how, evaluator=ScriptedEvaluator({"port": 0.6}), web_search=hangs, settings={"turn_timeout_s": 0.6})
    assert "9100" in seen
    assert receipt["verdict"] == "ambiguous"
    assert receipt["rungs"] == ["no_web"]


@both
def test_a_hanging_store_leaves_the_request_untouched(how, hangs):
    seen, receipt = turn(how, vector_store=hangs, replies=("I do not know.",), settings={"turn_timeout_s": 0.4})
    assert seen == QUESTION
    assert receipt["rungs"] == ["untouched"]
    assert receipt["status"] == "retrieval_failed"
    assert receipt["tokens"] == 0


@both
def test_a_store_that_is_slow_by_its_own_deadline_is_told_to_the_model(how, hangs):
    seen, receipt = turn(how, vector_store=hangs, replies=("I do not know.",), settings={"retrieve_timeout_s": 0.2})
    assert seen != QUESTION
    assert receipt["rungs"] == []
    assert {"step": "retrieve", "reason": "timeout"} in receipt["degraded"]


@both
def test_a_hanging_rewriter_leaves_half_of_the_time_to_search_and_grade(how, hangs):
    history = [("user", "Tell me of the exporter."), ("assistant", "Gladly."), ("user", QUESTION)]
    seen, receipt = turn(how, question=history, rewriter=hangs, settings={"turn_timeout_s": 0.6})
    assert "9100" in seen
    assert receipt["verdict"] == "relevant"
    assert {"step": "rewrite", "reason": "deadline"} in receipt["degraded"]


# Model calls and tokens


def counted(reply, tokens):
    return AIMessage(reply, usage_metadata={"input_tokens": tokens - 10, "output_tokens": 10, "total_tokens": tokens})


def grader(*, tokens=100, times=5):
    reply = '{"grades": [{"passage": 1, "probability": 0.6, "reason": "so"}]}'
    model = ScriptedChatModel(replies=[counted(reply, tokens)] * times)
    return ChatModelEvaluator(model), model


@both
def test_what_inner_models_cost_is_added_up(how):
    evaluator, _ = grader(tokens=123)
    _, receipt = turn(how, evaluator=evaluator, rewriter=ScriptedRewriter("x"), web_search=ScriptedWebSearch([PAGE]))
    spent = receipt["spent"]
    assert spent["model_calls"] == 2  # the knowledge, and the web
    assert spent["tokens"] == 246
    assert spent["web_requests"] == 1
    assert spent["ms"] > 0


@both
def test_a_retried_model_call_counts_as_often_as_it_is_made(how):
    reply = '{"grades": [{"passage": 1, "probability": 0.95, "reason": "so"}]}'

    def fail(messages):
        raise ConnectionError

    model = ScriptedChatModel(replies=[fail, counted(reply, 50)])
    evaluator = ChatModelEvaluator(model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False))
    _, receipt = turn(how, evaluator=evaluator)
    assert receipt["verdict"] == "relevant"
    assert receipt["spent"]["model_calls"] == 2


@both
def test_without_budget_to_grade_it_the_web_is_left_out(how):
    web = ScriptedWebSearch([PAGE])
    seen, receipt = turn(how, evaluator=ScriptedEvaluator({"port": 0.6}), web_search=web, settings={"max_model_calls": 1})
    assert not web.asked
    assert "9100" in seen
    assert receipt["rungs"] == ["no_web"]
    assert "budget_spent" in receipt["notes"]


@both
def test_tokens_end_further_model_calls(how):
    evaluator, model = grader(tokens=500)
    web = ScriptedWebSearch([PAGE])
    _, receipt = turn(how, evaluator=evaluator, rewriter=ScriptedRewriter("x"), web_search=web, settings={"max_model_tokens": 400})
    assert len(model.requests) == 1
    assert not web.asked
    assert receipt["rungs"] == ["no_web"]


class Doubts:
    """Supports nothing."""

    threshold = 0.5

    def __init__(self):
        self.asked = 0

    def check(self, claims, grounds):
        self.asked += 1
        return [Checked(probability=0.1, label="not_mentioned")] * len(claims)


@both
def test_claims_are_checked_within_the_same_budget(how):
    checker = Doubts()
    _, receipt = turn(how, claim_checker=checker, evaluator=grader(tokens=500)[0], settings={"max_model_tokens": 400})
    assert checker.asked == 0
    assert receipt["rungs"] == ["no_claim_check"]
    assert receipt["answer"]["checked"] == "skipped"


@both
def test_a_repair_counts_as_a_model_call_and_is_not_begun_without_one(how):
    for limit, repairs in ((1, 0), (2, 1)):
        middleware = crag(
            [PORT],
            evaluator=grader(times=1)[0],
            claim_checker=Doubts(),
            rewriter=ScriptedRewriter("x"),
            settings=CRAGSettings(on_unsupported="repair", max_repairs=3, max_model_calls=limit, standalone_questions=False),
        )
        # The checker here is no chat model, so that only the grading and repairs count; at the limit it is not asked either.
        agent, model = agent_with(middleware, replies=["It is 9200."] * 5)
        receipt = ask(agent, QUESTION, how)["crag"]
        assert receipt["answer"]["repairs"] == repairs
        assert receipt["spent"]["model_calls"] == 1 + repairs
        assert len(model.requests) == 1 + repairs


@both
def test_time_of_the_answers_check_adds_to_that_of_the_corrective_pass(how):
    class Slow:
        def grade(self, question, passages):
            time.sleep(0.2)
            return ScriptedEvaluator().grade(question, passages)

    class Checks(Doubts):
        def check(self, claims, grounds):
            time.sleep(0.2)
            return super().check(claims, grounds)

    _, receipt = turn(how, evaluator=Slow(), claim_checker=Checks())
    assert receipt["answer"]["checked"] == "checked"
    assert receipt["spent"]["ms"] >= 400


def test_the_meter_counts_a_run_once_and_estimates_what_nobody_reports():
    meter, run = Meter(Spent(model_calls=2, tokens=7)), uuid4()
    for _ in range(2):
        meter.on_chat_model_start({}, [[HumanMessage("x" * 40)]], run_id=run)
    assert (meter.spent.model_calls, meter.spent.tokens) == (3, 17)
    meter.on_llm_end(LLMResult(generations=[[ChatGeneration(message=AIMessage("y" * 8))]]), run_id=run)
    assert meter.spent.tokens == 19
    meter.on_llm_end(LLMResult(generations=[[ChatGeneration(message=counted("y", 100))]]), run_id=run)
    assert meter.spent.tokens == 107


def test_two_turns_at_once_pay_each_for_itself():
    async def both_at_once():
        reply = '{"grades": [{"passage": 1, "probability": 0.95, "reason": "so"}]}'
        one = crag([PORT], evaluator=ChatModelEvaluator(ScriptedChatModel(replies=[counted(reply, 40)] * 20)))
        agent = create_agent(ScriptedChatModel(replies=["ok"] * 20), middleware=[one])
        results = await asyncio.gather(*(agent.ainvoke({"messages": [("user", QUESTION)]}) for _ in range(20)))
        return [result["crag"]["spent"] for result in results]

    assert {(s["model_calls"], s["tokens"]) for s in asyncio.run(both_at_once())} == {(1, 40)}


# Circuits


@both
def test_a_port_that_failed_three_times_in_a_row_is_left_alone_for_that_tenant_and_tried_again(how):
    now = [0.0]

    class Flaky:
        asked, down = 0, True

        def grade(self, question, passages):
            type(self).asked += 1
            if self.down:
                raise ConnectionError
            return ScriptedEvaluator().grade(question, passages)

    passages = {"a": [PORT], "b": [PORT]}
    middleware = crag(vector_store=ScriptedRetriever(passages), evaluator=Flaky(), agent_id=lambda runtime: runtime.context["agent_id"])
    middleware._parts.breaker._now = lambda: now[0]
    agent, _ = agent_with(middleware, replies=["ok"] * 20)

    def reason(tenant):
        degraded = ask(agent, QUESTION, how, context={"agent_id": tenant})["crag"]["degraded"]
        return next((d["reason"] for d in degraded if d["step"] == "grade"), None)

    assert [reason("a") for _ in range(4)] == ["ConnectionError"] * 3 + ["circuit_open"]
    assert Flaky.asked == 3
    assert reason("b") == "ConnectionError"  # another tenant's circuit
    Flaky.down = False
    assert reason("a") == "circuit_open"
    now[0] = 31.0
    assert reason("a") is None
    assert reason("a") is None


@both
def test_the_turns_own_deadline_opens_no_circuit(how, hangs):
    middleware = crag([PORT], evaluator=hangs, settings=CRAGSettings(turn_timeout_s=0.2))
    agent, _ = agent_with(middleware, replies=["ok"] * 5)
    for _ in range(4):
        degraded = ask(agent, QUESTION, how)["crag"]["degraded"]
        assert {"step": "grade", "reason": "deadline"} in degraded
    assert hangs.asked == 4


@both
def test_blocking_calls_left_behind_are_counted_and_a_tenant_without_threads_is_told_busy(how, hangs):
    middleware = crag([PORT], evaluator=hangs, settings=CRAGSettings(grade_timeout_s=0.1))
    middleware._parts.pools._size = 4
    agent, _ = agent_with(middleware, replies=["ok"] * 5)
    reasons = [next(d["reason"] for d in ask(agent, QUESTION, how)["crag"]["degraded"] if d["step"] == "grade") for _ in range(3)]
    assert reasons == ["timeout", "timeout", "busy"]
    assert middleware.left_behind == {"evaluator": 2}
    hangs.gate.set()
    end = time.monotonic() + 20
    while middleware.left_behind and time.monotonic() < end:
        time.sleep(0.01)
    assert not middleware.left_behind


def test_speculative_searches_still_fit_the_turn():
    _, receipt = turn(
        "invoke", web_search=ScriptedWebSearch([PAGE]), web_policy=WebPolicy(mode="speculative"), settings={"turn_timeout_s": 5}
    )
    assert receipt["rungs"] == []
