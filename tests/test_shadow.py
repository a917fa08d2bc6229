"""Shadow mode: everything runs, and nothing of it reaches the model or the user. And the switch that keeps it from running at all."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, hook_config
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from crag_middleware.adapters.chat_model import ChatModelEvaluator
from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.receipt import explain
from crag_middleware.settings import CRAGSettings
from crag_middleware.shadow import MOST
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedWebSearch
from tests.support.agents import agent_with, ask, both, crag, passage

PORT = passage("The exporter listens on port 9100.", "port", title="Exporter")
OTHER = passage("The canteen opens at noon.", "canteen")
QUESTION = "Which port does the exporter use?"
WRONG = "The exporter listens on port 4711."
GIVEN = {"messages": [HumanMessage(QUESTION, id="q")]}
THREAD: Any = {"configurable": {"thread_id": "1"}}


@tool
def get_stock(x: str) -> str:
    """Stock of an article."""
    return "17"


LOOP = [AIMessage("", tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c1"}]), WRONG]


def shadow(passages: Any = (PORT,), **more: Any) -> Any:
    more.setdefault("claim_checker", WordClaimChecker())
    return crag(passages, mode="shadow", **more)


def loop_agent(*middleware: Any) -> tuple[Any, ScriptedChatModel]:
    return agent_with(list(middleware), replies=LOOP, tools=[get_stock], system_prompt="Be brief.", checkpointer=InMemorySaver())


def plain(thing: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(thing, dict):
        return {key: plain(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain(value) for value in thing]
    return plain(thing.model_dump(exclude={"id"})) if hasattr(thing, "model_dump") else thing


async def collected(stream: Any) -> list[Any]:
    return [part async for part in stream]


async def model_events(agent: Any) -> list[Any]:
    """What v2 tells of models and of the agent as a whole."""
    events = await collected(agent.astream_events(GIVEN, THREAD, version="v2"))
    return [
        (e["event"], e["name"], e["tags"], plain(e["data"])) for e in events if "model" in e["event"] or e["event"].startswith("on_tool")
    ]


STREAMS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda agent: agent.invoke(GIVEN, THREAD),
    "ainvoke": lambda agent: asyncio.run(agent.ainvoke(GIVEN, THREAD)),
    "messages": lambda agent: [chunk for chunk, _ in agent.stream(GIVEN, THREAD, stream_mode="messages")],
    "amessages": lambda agent: [chunk for chunk, _ in asyncio.run(collected(agent.astream(GIVEN, THREAD, stream_mode="messages")))],
    "custom": lambda agent: list(agent.stream(GIVEN, THREAD, stream_mode="custom")),
    "acustom": lambda agent: asyncio.run(collected(agent.astream(GIVEN, THREAD, stream_mode="custom"))),
    "values": lambda agent: [part["messages"] for part in agent.stream(GIVEN, THREAD, stream_mode="values")][-1],
    "v2": lambda agent: asyncio.run(model_events(agent)),
    "v3": lambda agent: ["".join(message.text) for message in agent.stream_events(GIVEN, THREAD, version="v3").messages],
}


class Receipts:
    """Keeps the receipts it is given, and waits for them."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self._come = threading.Condition()

    def __call__(self, receipt: dict[str, Any]) -> None:
        with self._come:
            self.all.append(receipt)
            self._come.notify_all()

    def first(self, count: int = 1) -> list[dict[str, Any]]:
        with self._come:
            assert self._come.wait_for(lambda: len(self.all) >= count, 10)
            return self.all


@pytest.mark.parametrize(
    "settings", [{}, {"on_unsupported": "drop", "position": "system", "max_temperature": 0.0, "when_no_evidence": "refuse"}]
)
@pytest.mark.parametrize("how", STREAMS)
def test_requests_answers_streams_and_results_are_those_of_the_bare_agent(how: str, settings: dict[str, Any]) -> None:
    graded = '{"grades": [{"passage": 1, "label": "relevant", "confidence": 0.97}]}'
    evaluator = ChatModelEvaluator(ScriptedChatModel(replies=[graded]))
    receipts = Receipts()
    bare, bare_model = loop_agent()
    shadowed, model = loop_agent(shadow(evaluator=evaluator, settings=CRAGSettings(**settings), receipt_sink=receipts))

    assert plain(STREAMS[how](shadowed)) == plain(STREAMS[how](bare))

    assert plain(model.requests) == plain(bare_model.requests)
    assert plain(shadowed.get_state(THREAD).values["messages"]) == plain(bare.get_state(THREAD).values["messages"])
    (receipt,) = receipts.first()
    assert (receipt["verdict"], receipt["shadow"]) == ("relevant", True)


@both
def test_the_receipt_says_what_would_have_been_done(how: str) -> None:
    agent, model = loop_agent(shadow())

    receipt = ask(agent, GIVEN, how, config=THREAD)["crag"]

    assert (receipt["shadow"], receipt["status"], receipt["verdict"]) == (True, "grounded", "relevant")
    assert receipt["tokens"] > 0
    assert receipt["answer"]["action"] == "flagged", "4711 is not what the knowledge says"
    assert [claim["label"] for claim in receipt["answer"]["claims"]] != ["supported"]
    assert len(receipt["tenant"]) == 64
    assert json.loads(json.dumps(receipt, allow_nan=False)) == receipt
    assert explain(receipt).startswith("shadow     nothing of this reached")
    assert not any(isinstance(message, SystemMessage) and "crag_sources" in message.text for message in model.requests[0])


@both
@pytest.mark.parametrize(("on_unsupported", "action"), [("drop", "refused"), ("refuse", "refused"), ("repair", "flagged")])
def test_what_would_have_become_of_the_answer_is_told_and_not_done(how: str, on_unsupported: str, action: str) -> None:
    settings = CRAGSettings(on_unsupported=on_unsupported, after_repair="flag")
    agent, model = agent_with(shadow(settings=settings), replies=[WRONG])

    result = ask(agent, GIVEN, how)

    assert result["messages"][-1].content == WRONG
    assert "crag" not in result["messages"][-1].response_metadata
    assert result["crag"]["answer"]["action"] in (action, "dropped")
    assert len(model.requests) == 1, "no other draft is asked for"


@both
def test_the_pass_runs_beside_the_model_and_not_before_it(how: str) -> None:
    asked = threading.Event()

    class Waiting(ScriptedRetriever):
        """Finds nothing before the model was asked."""

        def retrieve(self, question: str, *, agent_id: str, limit: int) -> Any:
            assert asked.wait(10)
            return super().retrieve(question, agent_id=agent_id, limit=limit)

        async def aretrieve(self, question: str, *, agent_id: str, limit: int) -> Any:
            return await asyncio.to_thread(self.retrieve, question, agent_id=agent_id, limit=limit)

    def reply(_: Any) -> str:
        asked.set()
        return "ok"

    agent, _ = agent_with(shadow(vector_store=Waiting({"a": [PORT]})), replies=[reply])

    assert ask(agent, QUESTION, how)["crag"]["verdict"] == "relevant"


class Blocked(ScriptedEvaluator):
    """Grades when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def grade(self, question: str, passages: Any) -> Any:
        assert self.let.wait(10)
        return super().grade(question, passages)

    async def agrade(self, question: str, passages: Any) -> Any:
        return await asyncio.to_thread(self.grade, question, passages)


def test_with_a_sink_the_turn_ends_without_waiting_for_the_pass() -> None:
    evaluator, receipts = Blocked(), Receipts()
    agent, _ = agent_with(shadow(evaluator=evaluator, receipt_sink=receipts), replies=[WRONG])

    result = agent.invoke(GIVEN)

    assert (result["messages"][-1].text, receipts.all, "crag" in result) == (WRONG, [], False)
    evaluator.let.set()
    (receipt,) = receipts.first()
    assert (receipt["verdict"], receipt["answer"]["action"]) == ("relevant", "flagged")


async def test_with_a_sink_an_async_turn_ends_without_waiting_for_the_pass() -> None:
    evaluator, receipts = Blocked(), Receipts()
    agent, _ = agent_with(shadow(evaluator=evaluator, receipt_sink=receipts), replies=[WRONG])

    result = await agent.ainvoke(GIVEN)

    assert (result["messages"][-1].text, receipts.all, "crag" in result) == (WRONG, [], False)
    evaluator.let.set()
    (receipt,) = await asyncio.to_thread(receipts.first)
    assert (receipt["verdict"], receipt["answer"]["action"]) == ("relevant", "flagged")


def test_an_event_loop_that_ends_first_cancels_what_runs_and_the_receipt_says_so() -> None:
    class Endless(ScriptedRetriever):
        ended = ""

        async def aretrieve(self, question: str, *, agent_id: str, limit: int) -> Any:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.ended = "cancelled"
                raise

    store, receipts = Endless({}), Receipts()
    agent, _ = agent_with(shadow(vector_store=store, receipt_sink=receipts))

    asyncio.run(agent.ainvoke(GIVEN))

    assert store.ended == "cancelled"
    assert [r["degraded"] for r in receipts.all] == [[{"step": "shadow", "reason": "cancelled"}]]


@pytest.mark.parametrize("when", ["in the model call", "between two steps"])
async def test_a_turn_that_is_cancelled_leaves_nothing_running(when: str) -> None:
    """In a model call the pass is cancelled with it; elsewhere it ends by its own deadline."""
    searching, asked = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    class Endless(ScriptedRetriever):
        async def aretrieve(self, question: str, *, agent_id: str, limit: int) -> Any:
            searching.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("retriever")

    class Slow(ScriptedChatModel):
        async def _agenerate(self, *arguments: Any, **keywords: Any) -> Any:
            asked.set()
            await asyncio.sleep(60)

    settings = CRAGSettings(turn_timeout_s=60 if when == "in the model call" else 0.5)
    agent: Any = create_agent(Slow(replies=["ok"]), middleware=[shadow(vector_store=Endless({}), settings=settings)])
    before = asyncio.all_tasks()
    turn = asyncio.ensure_future(agent.ainvoke(GIVEN))
    await searching.wait()
    if when == "in the model call":
        await asked.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    for _ in range(500):
        await asyncio.sleep(0.01)
        if asyncio.all_tasks() == before:
            break

    assert ended == ["retriever"]
    assert asyncio.all_tasks() == before


@both
def test_the_turns_end_waits_no_longer_than_its_own_deadline(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(ScriptedEvaluator):
        """Says that it never waits, and blocks all the same, where no deadline of a call reaches it."""

        instant = True
        let = threading.Event()

        def grade(self, question: str, passages: Any) -> Any:
            self.let.wait(20)
            return super().grade(question, passages)

        async def agrade(self, question: str, passages: Any) -> Any:
            await asyncio.sleep(20)

    evaluator = Stuck()
    middleware = shadow(evaluator=evaluator, settings=CRAGSettings(turn_timeout_s=0.2, grade_timeout_s=15))
    agent, _ = agent_with(middleware, replies=["ok"])

    began = time.monotonic()
    receipt = ask(agent, GIVEN, how)["crag"]
    took = time.monotonic() - began
    left_behind = middleware.left_behind
    evaluator.let.set()

    assert took < 10
    assert left_behind == ({"shadow": 1} if how == "invoke" else {})
    reasons = [d["reason"] for d in receipt["degraded"]]
    assert "deadline" in reasons, reasons


def no_tenant(_: Any) -> str:
    msg = "SECRET"
    raise RuntimeError(msg)


class FailsLater:
    """Counts when it is tried out, and not in a turn."""

    def __call__(self, text: Any) -> int:
        if isinstance(text, str) and text.startswith("word"):
            return 100
        msg = "SECRET"
        raise OSError(msg)


BROKEN: dict[str, dict[str, Any]] = {
    "no tenant": {"agent_id": None},
    "a function for the tenant that fails": {"agent_id": no_tenant},
    "a row of another tenant": {"vector_store": ScriptedRetriever({"a": [passage("x", metadata={"agent_id": "SECRET-b"})]})},
    "an error in the evaluator": {"evaluator": ScriptedEvaluator(error=RuntimeError("SECRET"))},
    "an error in the store": {"vector_store": ScriptedRetriever({}, error=RuntimeError("SECRET"))},
    "a token counter that fails in the turn": {"token_counter": FailsLater()},
    "an approver that interrupts": {
        "approve_web_query": lambda query, agent_id: interrupt("may I?"),
        "web_search": ScriptedWebSearch([PORT]),
        "evaluator": ScriptedEvaluator(otherwise=0.0),
    },
}


@both
@pytest.mark.parametrize("broken", BROKEN)
def test_whatever_goes_wrong_the_user_gets_the_bare_agents_answer_and_the_receipt_says_why(
    how: str, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "crag_middleware")
    agent, _ = agent_with(shadow(**BROKEN[broken]), replies=[WRONG], checkpointer=InMemorySaver())

    result = ask(agent, GIVEN, how, config=THREAD)

    assert [m.content for m in result["messages"]] == [QUESTION, WRONG]
    assert "__interrupt__" not in result
    assert result["crag"]["degraded"], explain(result["crag"])
    assert "SECRET" not in caplog.text + json.dumps(result["crag"])


@both
def test_a_tenant_error_is_told_with_its_reason(how: str) -> None:
    agent, _ = agent_with(shadow(agent_id=None), replies=[WRONG])

    receipt = ask(agent, GIVEN, how)["crag"]

    assert (receipt["status"], receipt["skipped"], receipt["tenant"]) == ("skipped", "failed", "")
    assert receipt["degraded"] == [{"step": "shadow", "reason": "no_tenant"}]
    assert explain(receipt) == "skipped    could not run (failed)\nwithout    shadow failed: no_tenant"


@both
def test_a_switch_that_breaks_the_tenant_boundary_is_told_too(how: str) -> None:
    def breaks(_: Any) -> bool:
        msg = "no such tenant"
        raise TenantError(msg, reason="no_tenant")

    agent, model = loop_agent(shadow(enabled=breaks))

    result = ask(agent, GIVEN, how, config=THREAD)

    assert (result["messages"][-1].text, len(model.requests)) == (WRONG, 2)
    assert result["crag"]["degraded"] == [{"step": "shadow", "reason": "no_tenant"}]


@both
@pytest.mark.parametrize("mode", ["live", "shadow"])
def test_a_turn_that_ends_before_its_first_model_call_is_told_under_its_own_question(how: str, mode: str, caplog: Any) -> None:
    class Closed(AgentMiddleware[Any, Any, Any]):
        @hook_config(can_jump_to=["end"])
        def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            return {"jump_to": "end"} if "closed" in state["messages"][-1].text else None

    caplog.set_level(logging.INFO, "crag_middleware.turn")
    agent, _ = loop_agent(Closed(), crag([PORT], mode=mode))

    receipts = [ask(agent, [HumanMessage(text, id=text)], how, config=THREAD)["crag"] for text in ("Which port?", "closed 1", "closed 2")]

    assert [(r["message_id"], r["skipped"]) for r in receipts] == [
        ("Which port?", None),
        ("closed 1", "not_reached"),
        ("closed 2", "not_reached"),
    ]
    assert [r.crag["skipped"] for r in caplog.records if r.name == "crag_middleware.turn"] == [None, "not_reached", "not_reached"]


@both
def test_a_model_that_fails_fails_as_without_us(how: str) -> None:
    agent, _ = agent_with(shadow(), replies=[ValueError("from the model")])

    with pytest.raises(ValueError, match="from the model"):
        ask(agent, GIVEN, how)


@both
def test_a_sink_that_fails_is_told_in_the_log_alone(how: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Any) -> None:
        msg = "SECRET"
        raise OSError(msg)

    for mode in ("live", "shadow"):
        agent, _ = agent_with(crag([PORT], mode=mode, receipt_sink=broken), replies=[WRONG])
        assert ask(agent, GIVEN, how)["messages"][-1].text == WRONG
    for _ in range(200):
        if caplog.text.count("receipt_sink` failed with OSError") == 2:
            break
        time.sleep(0.01)

    assert ("SECRET" in caplog.text, caplog.text.count("receipt_sink` failed with OSError")) == (False, 2)


@both
def test_a_live_turn_gives_its_receipt_to_the_sink_too_once_and_as_a_copy(how: str) -> None:
    receipts = Receipts()
    agent, _ = agent_with(crag([PORT], claim_checker=WordClaimChecker(), receipt_sink=receipts), replies=LOOP, tools=[get_stock])

    result = ask(agent, GIVEN, how)

    assert receipts.all == [result["crag"]]
    assert (receipts.all[0]["shadow"], receipts.all[0]["tenant"]) == (False, "")
    receipts.all[0]["sources"].clear()
    assert result["crag"]["sources"]


@both
def test_one_pass_a_turn_and_a_new_one_for_the_next_question(how: str) -> None:
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = loop_agent(shadow(vector_store=store))

    first = ask(agent, GIVEN, how, config=THREAD)
    second = ask(agent, "And what of the exporter's port today?", how, config=THREAD)

    assert len(store.asked) == 2
    assert first["crag"]["message_id"] == "q" != second["crag"]["message_id"]


@both
def test_a_turn_that_waits_for_a_person_keeps_its_pass(how: str) -> None:
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = loop_agent(shadow(vector_store=store), HumanInTheLoopMiddleware(interrupt_on={"get_stock": True}))

    ask(agent, GIVEN, how, config=THREAD)
    result = ask(agent, Command(resume={"decisions": [{"type": "approve"}]}), how, config=THREAD)

    assert result["crag"]["verdict"] == "relevant"
    assert result["crag"]["answer"]["action"] == "flagged"
    assert how == "ainvoke" or len(store.asked) == 1, "another event loop begins anew"


@both
def test_nothing_is_written_back_in_shadow_mode(how: str) -> None:
    class Keeper:
        kept = 0

        def keep(self, receipt: Any, *, agent_id: str) -> list[str]:
            self.kept += 1
            return ["x"]

    keeper = Keeper()
    page = passage("The exporter's port is 9100.", "page", origin="web", url="https://x.example/1")
    more = {"evaluator": ScriptedEvaluator({"page": 0.9}, otherwise=0.0), "web_search": ScriptedWebSearch([page]), "write_back": keeper}
    replies = ["The exporter's port is 9100 [1]."]
    live, _ = agent_with(crag([OTHER], claim_checker=WordClaimChecker(), **more), replies=replies)
    agent, _ = agent_with(shadow([OTHER], **more), replies=replies)

    assert (ask(live, GIVEN, how)["crag"]["written_back"], keeper.kept) == (["x"], 1)
    receipt = ask(agent, GIVEN, how)["crag"]

    assert (receipt["written_back"], keeper.kept, len(receipt["web_queries"])) == ([], 1, 1)


@both
def test_an_instance_in_shadow_mode_changes_nothing_for_a_live_one_beside_it(how: str) -> None:
    alone, model = agent_with(crag([PORT]), replies=["It is 9100 [1]."])
    pair, pair_model = agent_with([crag([PORT]), shadow([OTHER], name="other")], replies=["It is 9100 [1]."])
    turned, turned_model = agent_with([shadow([OTHER], name="other"), crag([PORT])], replies=["It is 9100 [1]."])

    results = [ask(agent, GIVEN, how) for agent in (alone, pair, turned)]

    assert plain(model.requests) == plain(pair_model.requests) == plain(turned_model.requests)
    assert len({str(result["messages"][-1].content) for result in results}) == 1
    assert [result["crag"]["sources"][0]["number"] for result in results] == [1, 1, 1]
    assert results[1]["crag_other"]["shadow"] is True


@both
def test_callbacks_of_the_user_hear_nothing_of_what_runs_beside(how: str) -> None:
    class Heard(BaseCallbackHandler):
        def __init__(self) -> None:
            self.names: list[str] = []

        def on_chain_start(self, serialized: Any, inputs: Any, **more: Any) -> None:
            self.names.append(str(more.get("name")))

        def on_chat_model_start(self, serialized: Any, messages: Any, **more: Any) -> None:
            self.names.append(str(more.get("name")))

    heard = Heard()
    evaluator = ChatModelEvaluator(ScriptedChatModel(replies=["{}"]))
    agent, _ = agent_with(shadow(evaluator=evaluator), replies=["ok"])

    receipt = ask(agent, GIVEN, how, config={"callbacks": [heard]})["crag"]

    assert receipt["spent"]["model_calls"] >= 1
    assert not [name for name in heard.names if name.startswith("crag.")]


@both
@pytest.mark.parametrize("sink", [True, False])
def test_many_turns_of_several_tenants_at_once_keep_to_themselves(how: str, sink: bool) -> None:
    tenants = ["甲公司", "b", "c"]
    store = ScriptedRetriever({t: [passage(f"{t} 的导出器监听 9100 端口。", f"{t}-port")] for t in tenants})
    receipts = Receipts()
    middleware = shadow(vector_store=store, agent_id=None, receipt_sink=receipts if sink else None)
    agent, _ = agent_with(middleware, replies=["导出器监听 4711 端口。"])
    asked = [(f"{n}", tenants[n % 3]) for n in range(30)]

    def given(number: str) -> Any:
        return {"messages": [HumanMessage(f"导出器用哪个端口？第 {number} 次", id=number)]}

    async def all_at_once() -> list[Any]:
        turns = [agent.ainvoke(given(number), context={"agent_id": tenant}) for number, tenant in asked]
        results = await asyncio.gather(*turns)
        if sink:
            await asyncio.to_thread(receipts.first, len(asked))
        return results

    if how == "ainvoke":
        results = asyncio.run(all_at_once())
    else:
        with ThreadPoolExecutor(10) as pool:
            results = list(pool.map(lambda one: agent.invoke(given(one[0]), context={"agent_id": one[1]}), asked))
    found = receipts.first(len(asked)) if sink else [result["crag"] for result in results]

    by_number = {receipt["message_id"]: receipt for receipt in found}
    assert len(found) == len(by_number) == len(asked)
    for number, tenant in asked:
        assert [source["id"] for source in by_number[number]["sources"]] == [f"{tenant}-port"]
        assert by_number[number]["answer"]["action"] == "flagged"
    assert len({receipt["tenant"] for receipt in found}) == 3


def test_too_many_turns_at_once_stop_the_oldest_whose_receipt_says_busy() -> None:
    class Failing(ScriptedChatModel):
        """Ends each turn before its receipt is told, but for the first, which waits."""

        def _next(self, messages: Any) -> AIMessage:
            if messages[-1].text == "first":
                assert let.wait(60)
                return AIMessage("ok")
            msg = "down"
            raise ValueError(msg)

    let, receipts = threading.Event(), Receipts()
    agent: Any = create_agent(Failing(replies=[]), middleware=[shadow(receipt_sink=receipts)])
    first = threading.Thread(target=lambda: agent.invoke({"messages": [("user", "first")]}))
    first.start()
    time.sleep(0.05)
    for number in range(MOST):
        with pytest.raises(ValueError, match="down"):
            agent.invoke({"messages": [("user", f"question {number}")]})
    let.set()
    first.join(10)

    (receipt,) = receipts.first()
    assert receipt["degraded"] == [{"step": "shadow", "reason": "busy"}]


def test_arguments_that_can_not_work_are_refused() -> None:
    async def sink(receipt: Any) -> None: ...

    for wrong, said in (
        ({"mode": "dark"}, "'dark'"),
        ({"enabled": "yes"}, "str"),
        ({"receipt_sink": sink}, "queue"),
        ({"telemetry": True}, "bool"),
    ):
        with pytest.raises(ConfigError, match=said):
            crag([PORT], **wrong)


class TestEnabled:
    """The switch for canaries."""

    @both
    @pytest.mark.parametrize("mode", ["live", "shadow"])
    @pytest.mark.parametrize("enabled", [False, lambda runtime: False])
    def test_switched_off_nothing_runs(self, how: str, mode: str, enabled: Any) -> None:
        store = ScriptedRetriever({"a": [PORT]})
        bare, bare_model = loop_agent()
        agent, model = loop_agent(crag(vector_store=store, agent_id=None, mode=mode, enabled=enabled))

        expected, result = ask(bare, GIVEN, how, config=THREAD), ask(agent, GIVEN, how, config=THREAD)

        assert plain(result["messages"]) == plain(expected["messages"])
        assert (plain(model.requests), store.asked) == (plain(bare_model.requests), [])
        assert (result["crag"]["status"], result["crag"]["skipped"]) == ("skipped", "disabled")
        assert explain(result["crag"]) == "skipped    switched off for this turn (disabled)"

    @both
    def test_it_is_asked_once_a_turn_and_may_differ_from_turn_to_turn(self, how: str) -> None:
        answers: Iterator[bool] = iter([True, False, True])
        seen: list[Any] = []

        def canary(runtime: Any) -> bool:
            seen.append(runtime.context)
            return next(answers)

        store = ScriptedRetriever({"a": [PORT]})
        agent, _ = loop_agent(crag(vector_store=store, enabled=canary, agent_id=None))
        context = {"agent_id": "a"}
        statuses = [ask(agent, f"Which port, {n}?", how, config=THREAD, context=context)["crag"]["status"] for n in range(3)]

        assert statuses == ["grounded", "skipped", "grounded"]
        assert (len(store.asked), seen) == (2, [context] * 3)

    @both
    @pytest.mark.parametrize("mode", ["live", "shadow"])
    @pytest.mark.parametrize(("broken", "reason"), [(no_tenant, "RuntimeError"), (lambda runtime: 1, "invalid_reply")])
    def test_one_that_fails_is_off_and_told(self, how: str, mode: str, broken: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
        agent, _ = agent_with(crag([PORT], mode=mode, enabled=broken), replies=[WRONG])

        result = ask(agent, GIVEN, how)

        assert result["messages"][-1].text == WRONG
        assert (result["crag"]["skipped"], result["crag"]["degraded"]) == ("disabled", [{"step": "enabled", "reason": reason}])
        assert "`enabled`" in caplog.text
        assert "SECRET" not in caplog.text

    @both
    def test_a_coroutine_function_is_no_answer(self, how: str) -> None:
        async def later(runtime: Any) -> bool:
            return True

        agent, _ = agent_with(crag([PORT], enabled=later), replies=[WRONG])

        assert ask(agent, GIVEN, how)["crag"]["degraded"] == [{"step": "enabled", "reason": "invalid_reply"}]

    @both
    def test_a_switched_off_turn_in_shadow_mode_is_told_to_the_sink(self, how: str) -> None:
        receipts = Receipts()
        agent, _ = agent_with(shadow(enabled=False, receipt_sink=receipts), replies=[WRONG])

        assert "crag" not in ask(agent, GIVEN, how)
        assert [(r["skipped"], r["shadow"]) for r in receipts.first()] == [("disabled", True)]
