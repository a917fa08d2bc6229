"""The middleware inside agents as they are built elsewhere: nothing else changes for them."""

import asyncio
import logging
import random
import re
from dataclasses import dataclass

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from crag_middleware.adapters.chat_model import ChatModelEvaluator
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.calibration import Calibration, PlattMap, SetMap
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.question import LEAD_IN
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter, ScriptedWebSearch
from crag_middleware.types import EvaluatorKey, Thresholds
from tests.support.agents import agent_with, ask, both, crag, passage

PORT = passage("The exporter listens on port 9100.", "port", title="Exporter")
QUESTION = "Which port does the exporter use?"


def call(*names, text=""):
    return AIMessage(text, tool_calls=[{"name": n, "args": {"x": "1"}, "id": f"call-{n}-{i}"} for i, n in enumerate(names)])


@tool
def get_stock(x: str) -> str:
    """Stock of an article."""
    return "17"


@tool
def get_price(x: str) -> str:
    """Price of an article."""
    return "5"


TOOLS = [get_stock, get_price]
LOOP = [call("get_stock", "get_price"), call("get_stock"), "The port is 9100 [1]."]


def shape(messages):
    """Messages as they would be saved, without the random ids of new ones."""
    return [m.model_dump(exclude={"id"}) for m in messages]


@both
@pytest.mark.parametrize("saved", [True, False])
def test_a_tool_loop_retrieves_and_grades_once_and_every_call_sees_the_same_bytes(how, saved):
    """C001, C017"""
    store, evaluator = ScriptedRetriever({"a": [PORT]}), ScriptedEvaluator()
    middleware = crag(vector_store=store, evaluator=evaluator, settings=CRAGSettings(save_evidence=saved))
    agent, model = agent_with(middleware, replies=LOOP, tools=TOOLS, checkpointer=InMemorySaver())

    ask(agent, QUESTION, how, config={"configurable": {"thread_id": "1"}})

    assert len(model.requests) == 3
    assert len(store.asked) == len(evaluator.asked) == 1
    assert len({request[0].text for request in model.requests}) == 1
    assert "[1] knowledge: Exporter" in model.requests[0][0].text


@both
def test_a_new_question_retrieves_again(how):
    """C001"""
    store = ScriptedRetriever({"a": [PORT]})
    agent, model = agent_with(crag(vector_store=store), replies=["one", "two"], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}

    first = ask(agent, QUESTION, how, config=thread)
    second = ask(agent, "And who runs it?", how, config=thread)

    assert len(store.asked) == 2
    assert first["crag"]["message_id"] != second["crag"]["message_id"]
    assert model.requests[1][0].text == QUESTION, "an earlier turn's message carries no block"


@both
@pytest.mark.parametrize("position", ["human", "system"])
def test_saved_history_is_that_of_the_same_agent_without_the_middleware(how, position):
    """C003, C010, C012"""
    histories = []
    for verify in (None, False, True):
        middleware = [] if verify is None else [crag([PORT], settings=CRAGSettings(position=position, verify=verify))]
        agent, _ = agent_with(middleware, replies=LOOP, tools=TOOLS, system_prompt="Be brief.", checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "1"}}
        result = ask(agent, [HumanMessage(QUESTION, id="q")], how, config=thread)
        saved = agent.get_state(thread).values["messages"]
        assert shape(saved) == shape(result["messages"])
        if verify:
            assert saved[-1].response_metadata.pop("crag") == result["crag"]["answer"]
        histories.append(shape(saved))

    assert histories[0] == histories[1] == histories[2]


@both
@pytest.mark.parametrize("position", ["human", "system"])
def test_the_model_gets_one_system_message_first_and_calls_stay_next_to_their_results(how, position):
    """C005, C006, C007, C008, C010, C012"""
    agent, model = agent_with(
        crag([PORT], settings=CRAGSettings(position=position)), replies=LOOP, tools=TOOLS, system_prompt="Answer in French only."
    )
    reasoning = AIMessage("earlier", id="r", additional_kwargs={"reasoning_content": "because"})

    ask(agent, [HumanMessage("first", id="1"), reasoning, HumanMessage(QUESTION, id="2")], how)

    for request in model.requests:
        assert [i for i, m in enumerate(request) if isinstance(m, SystemMessage)] == [0]
        assert request[0].text.startswith("Answer in French only.")
        assert all(isinstance(m.content, str) for m in request)
        assert request[2] == reasoning
        kinds = [m.type for m in request[3:]]
        assert kinds == ["human", "ai", "tool", "tool", "ai", "tool"][: len(kinds)]
    holder = model.requests[-1][0 if position == "system" else 3]
    assert "[1] knowledge: Exporter" in holder.text


@both
def test_with_the_two_ends_order_every_number_means_the_source_it_means_by_rank(how):
    """C109"""
    pages = [passage(f"The exporter listens on port {n}.", str(n)) for n in range(9101, 9106)]
    seen, meant = {}, {}

    for order in ("rank", "ends"):
        agent, model = agent_with(crag(pages, settings=CRAGSettings(order=order)))
        receipt = ask(agent, QUESTION, how)["crag"]
        seen[order] = re.findall(r"^\[(\d)\] knowledge.*\nThe exporter listens on port (\d+)", model.requests[-1][-1].text, re.MULTILINE)
        meant[order] = [(str(source["number"]), source["id"]) for source in receipt["sources"]]

    assert seen["rank"] == meant["rank"] == meant["ends"]
    assert seen["ends"] == [meant["rank"][i] for i in (0, 2, 4, 3, 1)]


@both
def test_without_a_system_prompt_the_system_position_makes_one(how):
    """C006"""
    agent, model = agent_with(crag([PORT], settings=CRAGSettings(position="system")))

    ask(agent, QUESTION, how)

    assert [m.type for m in model.requests[0]] == ["system", "human"]
    assert model.requests[0][1].text == QUESTION


class Prompting(AgentMiddleware):
    """Another middleware that adds to the system prompt."""

    def wrap_model_call(self, request, handler):
        return handler(request.override(system_message=SystemMessage(f"{request.system_message.text}\nOTHER")))

    async def awrap_model_call(self, request, handler):
        return await handler(request.override(system_message=SystemMessage(f"{request.system_message.text}\nOTHER")))


@both
@pytest.mark.parametrize("order", [1, -1])
def test_other_middlewares_additions_survive_in_either_order(how, order):
    """C006"""
    stack = [crag([PORT], settings=CRAGSettings(position="system")), Prompting()][::order]
    agent, model = agent_with(stack, system_prompt="BASE")

    ask(agent, QUESTION, how)

    assert all(part in model.requests[0][0].text for part in ("BASE", "OTHER", "[1] knowledge"))


class Report(BaseModel):
    """A structured answer."""

    port: int


@both
def test_structured_output_is_kept(how):
    """C013"""
    structured = AIMessage("", tool_calls=[{"name": "Report", "args": {"port": 9100}, "id": "s"}])
    agent, model = agent_with(crag([PORT]), replies=[structured], response_format=ToolStrategy(Report))

    result = ask(agent, QUESTION, how)

    assert result["structured_response"] == Report(port=9100)
    assert len(model.requests) == 1


@both
@pytest.mark.parametrize("order", [1, -1])
def test_retries_of_the_model_do_not_retrieve_again(how, order):
    store = ScriptedRetriever({"a": [PORT]})
    stack = [crag(vector_store=store), ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)][::order]
    agent, model = agent_with(stack, replies=[RuntimeError("busy"), RuntimeError("busy"), "fine"])

    result = ask(agent, QUESTION, how)

    assert result["messages"][-1].text == "fine"
    assert len(store.asked) == 1
    assert all("[1] knowledge" in request[-1].text for request in model.requests)


@both
@pytest.mark.parametrize("order", [1, -1])
def test_a_fallback_model_gets_the_same_evidence(how, order):
    fallback = ScriptedChatModel(replies=[AIMessage([{"type": "text", "text": "Paris [1]"}, {"type": "reasoning", "summary": []}])])
    store = ScriptedRetriever({"a": [PORT]})
    stack = [crag(vector_store=store), ModelFallbackMiddleware(fallback)][::order]
    agent, model = agent_with(stack, replies=[RuntimeError("down")])

    result = ask(agent, QUESTION, how)

    assert result["messages"][-1].content == [{"type": "text", "text": "Paris [1]"}, {"type": "reasoning", "summary": []}]
    assert model.requests[0][-1].text == fallback.requests[0][-1].text
    assert len(store.asked) == 1


@both
@pytest.mark.parametrize("saved", [True, False])
def test_an_interrupt_and_its_resume_retrieve_once_or_once_per_resume(how, saved):
    store = ScriptedRetriever({"a": [PORT]})
    agent, model = agent_with(
        [crag(vector_store=store, settings=CRAGSettings(save_evidence=saved)), HumanInTheLoopMiddleware(interrupt_on={"get_stock": True})],
        replies=[call("get_stock"), "done [1]"],
        tools=TOOLS,
        checkpointer=InMemorySaver(),
    )
    thread = {"configurable": {"thread_id": "1"}}

    ask(agent, QUESTION, how, config=thread)
    result = ask(agent, Command(resume={"decisions": [{"type": "approve"}]}), how, config=thread)

    assert result["messages"][-1].text == "done [1]"
    assert len(store.asked) == (1 if saved else 2)
    assert "[1] knowledge" in model.requests[1][0].text
    assert result["crag"]["verdict"] == "relevant"
    assert any("crag" in key for key in agent.get_state(thread).values) is saved


@both
def test_redaction_by_an_earlier_middleware_is_seen_by_the_retriever(how):
    store, web = ScriptedRetriever({"a": [PORT]}), ScriptedWebSearch()
    stack = [
        PIIMiddleware("email", strategy="redact"),
        crag(vector_store=store, evaluator=ScriptedEvaluator(otherwise=0.1), web_search=web),
    ]
    agent, model = agent_with(stack, replies=LOOP, tools=TOOLS)

    ask(agent, "Which port does ana@acme.test use for the exporter?", how)

    assert len(store.asked) == 1
    assert "ana@acme.test" not in str(store.asked) + str(web.asked) + str(model.requests)


@both
def test_redaction_after_ours_does_not_retrieve_again_in_the_tool_loop(how):
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = agent_with([crag(vector_store=store), PIIMiddleware("email", strategy="redact")], replies=LOOP, tools=TOOLS)

    ask(agent, "Which port does ana@acme.test use?", how)

    assert len(store.asked) == 1


@both
@pytest.mark.parametrize("order", [1, -1])
def test_a_summary_in_mid_turn_is_no_question_and_the_evidence_stays(how, order):
    store = ScriptedRetriever({"a": [PORT]})
    summarise = SummarizationMiddleware(ScriptedChatModel(replies=["a summary of it"]), trigger=("messages", 3), keep=("messages", 1))
    stack = [crag(vector_store=store), summarise][::order]
    agent, model = agent_with(stack, replies=[call("get_stock"), call("get_stock"), "done [1]"], tools=TOOLS)

    ask(agent, QUESTION, how)

    assert [q for _, q in store.asked] == [QUESTION]
    last = model.requests[-1]
    assert not any(m.text.endswith(QUESTION) for m in last if m.type == "human" and "summary" not in m.text)
    holders = [m for m in last if "[1] knowledge: Exporter" in m.text]
    assert [m.type for m in holders] == ["human"]
    assert "a summary of it" in holders[0].text


@both
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_subagent_without_context_fails_closed_and_no_middleware_turns_it_into_text(how, wrapped):
    """C018"""
    store = ScriptedRetriever({"a": [PORT]})
    subagent, inner = agent_with(crag(vector_store=store, agent_id=None))

    @tool
    def delegate(x: str) -> str:
        """Ask the other agent."""
        return subagent.invoke({"messages": [("user", QUESTION)]})["messages"][-1].text

    guards = [ToolRetryMiddleware(max_retries=1, initial_delay=0), ModelRetryMiddleware(max_retries=1, initial_delay=0)] if wrapped else []
    agent, _ = agent_with(guards, replies=[call("delegate"), "done"], tools=[delegate])

    with pytest.raises(TenantError):
        ask(agent, "go", how)

    assert not store.asked
    assert not inner.requests


@dataclass
class Context:
    """A typed runtime context."""

    agent_id: str | None = None


@both
@pytest.mark.parametrize("context", [Context("b"), {"agent_id": "b"}])
def test_the_tenant_may_come_from_the_runtime_context(how, context):
    store = ScriptedRetriever({"a": [PORT], "b": []})
    agent, _ = agent_with(crag(vector_store=store, agent_id=None), context_schema=Context)

    ask(agent, QUESTION, how, context=context)

    assert store.asked[0][0] == "b"


@both
def test_the_tenant_may_be_a_function_of_the_runtime(how):
    store = ScriptedRetriever({})
    agent, _ = agent_with(crag(vector_store=store, agent_id=lambda runtime: runtime.context["user"]["team"]))

    ask(agent, QUESTION, how, context={"user": {"team": "b"}})

    assert store.asked[0][0] == "b"


@both
def test_constructor_and_context_must_agree(how):
    """C121"""
    store = ScriptedRetriever({"a": [PORT]})
    agent, model = agent_with(crag(vector_store=store, agent_id="a"), context_schema=Context)

    ask(agent, QUESTION, how, context=Context("a"))
    with pytest.raises(TenantError):
        ask(agent, QUESTION, how, context=Context("victim"))

    assert [t for t, _ in store.asked] == ["a"]
    assert len(model.requests) == 1


@both
def test_config_messages_and_state_are_no_source_of_a_tenant(how):
    """C121"""
    store = ScriptedRetriever({"victim": [PORT]})
    agent, _ = agent_with(crag(vector_store=store, agent_id=None))
    forged = {"messages": [HumanMessage(QUESTION, additional_kwargs={"agent_id": "victim"}, name="victim")], "agent_id": "victim"}

    with pytest.raises(TenantError):
        ask(agent, forged, how, config={"configurable": {"agent_id": "victim"}, "metadata": {"agent_id": "victim"}})

    assert not store.asked


@both
@pytest.mark.parametrize("bad", [None, "", "  ", [], 0, False, "x" * 257, "\ud800"])
def test_an_empty_or_malformed_scope_searches_nothing(how, bad):
    """C119"""
    store = ScriptedRetriever({"a": [PORT]})
    agent, model = agent_with(crag(vector_store=store, agent_id=None))

    with pytest.raises(TenantError) as caught:
        ask(agent, QUESTION, how, context={"agent_id": bad})

    assert not store.asked
    assert not model.requests
    assert "xxx" not in str(caught.value)


@both
def test_the_same_thread_under_another_tenant_does_not_get_the_first_ones_evidence(how):
    """C117"""
    store = ScriptedRetriever({"a": [PORT], "b": []})
    agent, model = agent_with(crag(vector_store=store, agent_id=None), checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    message = [HumanMessage(QUESTION, id="same")]

    ask(agent, message, how, config=thread, context={"agent_id": "a"})
    ask(agent, message, how, config=thread, context={"agent_id": "b"})

    assert [t for t, _ in store.asked] == ["a", "b"]
    assert "9100" not in str(model.requests[1])


@both
@pytest.mark.parametrize("context", [{"agent_id": "b"}, None])
def test_a_run_stopped_before_its_model_call_is_not_resumed_for_another_tenant(how, context):
    """C117"""
    store = ScriptedRetriever({"a": [PORT], "b": []})
    model = ScriptedChatModel(replies=["ok"])
    agent = create_agent(
        model, middleware=[crag(vector_store=store, agent_id=None)], checkpointer=InMemorySaver(), interrupt_before=["model"]
    )
    thread = {"configurable": {"thread_id": "1"}}

    ask(agent, QUESTION, how, config=thread, context={"agent_id": "a"})
    with pytest.raises(TenantError):
        ask(agent, None, how, config=thread, context=context)

    assert not model.requests
    ask(agent, None, how, config=thread, context={"agent_id": "a"})
    assert "9100" in model.requests[0][0].text


@both
def test_unsaved_evidence_is_found_again_when_a_run_is_resumed_at_its_model_call(how):
    store = ScriptedRetriever({"a": [PORT]})
    model = ScriptedChatModel(replies=LOOP)
    middleware = crag(vector_store=store, settings=CRAGSettings(save_evidence=False))
    agent = create_agent(model, tools=TOOLS, middleware=[middleware], checkpointer=InMemorySaver(), interrupt_before=["model"])
    thread = {"configurable": {"thread_id": "1"}}

    ask(agent, QUESTION, how, config=thread)
    for _ in range(3):
        result = ask(agent, None, how, config=thread)

    assert result["messages"][-1].text == LOOP[-1]
    assert len(model.requests) == 3
    assert all("[1] knowledge: Exporter" in request[0].text for request in model.requests)
    assert result["crag"]["verdict"] == "relevant"
    assert not any("crag" in key for key in agent.get_state(thread).values)


class Ending(AgentMiddleware):
    """Ends a turn that says stop before the model is called."""

    @hook_config(can_jump_to=["end"])
    def before_model(self, state, runtime):
        return {"jump_to": "end"} if state["messages"][-1].text == "stop" else None


@both
def test_a_turn_that_ends_before_its_model_call_does_not_return_an_earlier_receipt(how):
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = agent_with([Ending(), crag(vector_store=store)], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}

    first = ask(agent, QUESTION, how, config=thread)
    second = ask(agent, "stop", how, config=thread)

    assert first["crag"]["status"] == "grounded"
    assert (second["crag"]["status"], second["crag"]["skipped"], second["crag"]["sources"]) == ("skipped", "not_reached", [])
    assert ask(agent, "And now?", how, config=thread)["crag"]["status"] == "grounded"


@both
def test_a_tool_result_that_a_client_sends_later_belongs_to_the_same_turn(how):
    """C001"""
    store = ScriptedRetriever({"a": [PORT]})
    agent, model = agent_with(
        crag(vector_store=store),
        replies=[call("get_stock"), "done"],
        tools=TOOLS,
        checkpointer=InMemorySaver(),
        interrupt_before=["tools"],
    )
    thread = {"configurable": {"thread_id": "1"}}

    ask(agent, QUESTION, how, config=thread)
    agent.update_state(thread, {"messages": [ToolMessage("17", tool_call_id="call-get_stock-0")]}, as_node="tools")
    ask(agent, None, how, config=thread)

    assert len(store.asked) == 1
    assert "[1] knowledge" in model.requests[1][0].text


@both
def test_a_message_edited_under_its_id_is_a_new_question(how):
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = agent_with(crag(vector_store=store), replies=[RuntimeError("stop"), "fine"], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}

    with pytest.raises(RuntimeError):
        ask(agent, [HumanMessage("old words", id="m")], how, config=thread)
    ask(agent, [HumanMessage("new words", id="m")], how, config=thread)

    assert [q for _, q in store.asked] == ["old words", "new words"]


@both
def test_a_message_edited_under_its_id_after_its_answer_is_a_new_question(how):
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = agent_with(crag(vector_store=store), replies=["one", "two"], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}

    ask(agent, [HumanMessage("old words", id="m")], how, config=thread)
    result = ask(agent, [HumanMessage("new words", id="m")], how, config=thread)

    assert [q for _, q in store.asked] == ["old words", "new words"]
    assert result["crag"]["query"] == "new words"


@both
def test_an_agent_without_any_message_works_as_without_us(how):
    agent, model = agent_with(crag([PORT]))

    result = ask(agent, [], how)

    assert model.requests == [[]]
    assert result["crag"]["skipped"] == "empty"


@both
def test_input_cannot_forge_receipt_or_evidence(how):
    agent, model = agent_with(crag([PORT]))
    forged = {"messages": [("user", "Hello")], "crag": {"verdict": "relevant"}, "_crag": {"block": "FORGED"}}

    result = ask(agent, forged, how)

    assert result["crag"]["status"] == "skipped"
    assert "FORGED" not in str(model.requests)
    assert "_crag" not in result


@both
def test_two_instances_number_on_and_have_a_receipt_each(how):
    """L05"""
    rules = crag([passage("Rule: ports below 1024 need root.", "rule", title="Rules")], name="rules")
    agent, model = agent_with([crag([PORT]), rules], replies=[*LOOP, "second"], tools=TOOLS, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}

    for question in (QUESTION, "Which ports need root?"):
        result = ask(agent, question, how, config=thread)

        assert [s["number"] for s in result["crag"]["sources"]] == [1]
        assert [s["number"] for s in result["crag_rules"]["sources"]] == [2]
        seen = next(m.text for m in reversed(model.requests[-1]) if m.type == "human")
        assert "[1] knowledge: Exporter" in seen
        assert "[2] knowledge: Rules" in seen
        assert seen.count(LEAD_IN["en"]) == 1
        assert seen.endswith(f"</crag_sources>\n\n{LEAD_IN['en']}\n\n{question}")


def test_two_instances_without_names_are_refused_by_the_framework():
    """L05"""
    with pytest.raises(AssertionError, match="duplicate"):
        agent_with([crag([PORT]), crag([PORT])])


@pytest.mark.parametrize("name", ["", "a:b", "a|b", "ü", "x" * 65, "1a"])
def test_a_name_that_cannot_be_a_key_is_refused(name):
    with pytest.raises(ConfigError, match="`name`"):
        crag([PORT], name=name)


def inner_models():
    grader = ScriptedChatModel(replies=['{"grades": [{"passage": 1, "label": "relevant", "confidence": 0.97, "reason": "GRADERTOKEN"}]}'])
    return grader, ScriptedChatModel(replies=["REWRITETOKEN port of the exporter"])


def streaming_agent():
    grader, rewriter = inner_models()
    middleware = crag([PORT], evaluator=ChatModelEvaluator(grader), rewriter=rewriter)
    agent, _ = agent_with(middleware, replies=[call("get_stock"), "The port is 9100 [1]."], tools=TOOLS)
    given = {"messages": [("user", "What is an exporter?"), ("assistant", "A program."), ("user", QUESTION)]}
    return agent, given, grader, rewriter


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_only_the_agents_own_tokens_reach_a_messages_stream(how):
    """C023"""
    agent, given, grader, rewriter = streaming_agent()

    async def collect():
        return [chunk async for chunk in agent.astream(given, stream_mode="messages")]

    chunks = list(agent.stream(given, stream_mode="messages")) if how == "stream" else asyncio.run(collect())

    text = "".join(message.text for message, _ in chunks if message.type != "tool")
    assert text == "The port is 9100 [1]."
    assert grader.requests
    assert rewriter.requests


def test_only_the_agents_own_messages_reach_v3_events():
    """C023"""
    agent, given, grader, rewriter = streaming_agent()

    run = agent.stream_events(given, version="v3")
    texts = [str(message.text) for message in run.messages]

    assert "".join(texts) == "The port is 9100 [1]."
    assert "GRADERTOKEN" not in str(texts)
    assert grader.requests
    assert rewriter.requests


class OwnGrader:
    """An evaluator of a user's own that calls a chat model and knows nothing of tags."""

    def __init__(self):
        self.model = ScriptedChatModel(replies=["GRADERTOKEN"])

    def grade(self, question, passages):
        assert self.model.invoke("grade it").text == "GRADERTOKEN"
        return ScriptedEvaluator().grade(question, passages)

    async def agrade(self, question, passages):
        assert (await self.model.ainvoke("grade it")).text == "GRADERTOKEN"
        return ScriptedEvaluator().grade(question, passages)


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_models_that_a_users_own_port_calls_are_hidden_too(how):
    """C023"""
    agent, _ = agent_with(crag([PORT], evaluator=OwnGrader()), replies=["The port is 9100 [1]."])
    given = {"messages": [("user", QUESTION)]}

    async def collect():
        return [chunk async for chunk in agent.astream(given, stream_mode="messages")]

    chunks = list(agent.stream(given, stream_mode="messages")) if how == "stream" else asyncio.run(collect())

    assert "".join(message.text for message, _ in chunks) == "The port is 9100 [1]."


async def test_inner_calls_are_told_apart_in_v2_events_and_seen_by_callbacks():
    """C025"""
    agent, given, _, _ = streaming_agent()

    events = [event async for event in agent.astream_events(given, version="v2")]

    tokens = [e for e in events if e["event"] == "on_chat_model_stream" and "nostream" not in e["tags"]]
    assert "".join(e["data"]["chunk"].text for e in tokens) == "The port is 9100 [1]."
    names = {e["name"] for e in events if e["event"] == "on_chat_model_start"}
    assert {"crag.grade", "crag.rewrite"} <= names


@both
def test_a_usage_callback_counts_the_inner_calls(how):
    """C025"""
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    reply = AIMessage(
        '{"grades": [{"passage": 1, "label": "relevant", "confidence": 0.97}]}',
        usage_metadata=usage,
        response_metadata={"model_name": "inner"},
    )
    callback = UsageMetadataCallbackHandler()
    agent, _ = agent_with(crag([PORT], evaluator=ChatModelEvaluator(ScriptedChatModel(replies=[reply]))))

    ask(agent, QUESTION, how, config={"callbacks": [callback]})

    assert callback.usage_metadata["inner"]["total_tokens"] == 15


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_progress_is_told_in_custom_events_without_private_text(how):
    agent, _ = agent_with(crag([PORT], evaluator=ScriptedEvaluator({"port": 0.7}), web_search=ScriptedWebSearch()))
    given = {"messages": [("user", QUESTION)]}

    async def collect():
        return [event async for event in agent.astream(given, stream_mode="custom")]

    events = list(agent.stream(given, stream_mode="custom")) if how == "stream" else asyncio.run(collect())

    assert [e["stage"] for e in events] == ["retrieving", "grading", "searching the web", "assembling", "done"]
    assert events[-1] == {"type": "crag", "name": "CRAGMiddleware", "stage": "done", "status": "grounded", "verdict": "ambiguous"}
    assert "9100" not in str(events)


async def test_fifty_turns_of_two_tenants_on_one_instance_never_mix(caplog):
    """C126"""
    caplog.set_level(logging.DEBUG)
    chance = random.Random(7)

    async def pause():
        await asyncio.sleep(chance.random() / 100)

    class Slow:
        async def aretrieve(self, question, *, agent_id):
            await pause()
            return [passage(f"MARKER-{agent_id} answers {question}", f"{agent_id}-1")]

        async def agrade(self, question, passages, *, agent_id):
            await pause()
            return ScriptedEvaluator(otherwise=0.7).grade(question, passages)

        async def asearch(self, query, *, agent_id):
            await pause()
            return [passage(f"WEB-{agent_id} {query}", f"web-{agent_id}", origin="web", url=f"https://{agent_id}.example/")]

    ports = Slow()
    middleware = crag(vector_store=ports, evaluator=ports, web_search=ports, agent_id=None)
    model = ScriptedChatModel(replies=[lambda messages: messages[-1].text])
    agent = create_agent(model, middleware=[middleware])

    async def one(number):
        tenant, other = ("ta", "tb") if number % 2 else ("tb", "ta")
        events = []
        result = {}
        async for mode, data in agent.astream(
            {"messages": [("user", f"question {number}?")]}, context={"agent_id": tenant}, stream_mode=["custom", "values"]
        ):
            if mode == "values":
                result = data
            else:
                events.append(data)
        said = str(result["messages"][-1].text) + str(result["crag"]) + str(events)
        assert f"MARKER-{tenant} answers question {number}?" in said
        assert f"WEB-{tenant} question {number}?" in said
        assert f"-{other}" not in said

    await asyncio.gather(*(one(n) for n in range(50)))

    assert len(model.requests) == 50
    assert "MARKER" not in caplog.text.replace("langchain", "")


def test_two_event_loops_in_a_row_and_then_sync():
    """C020"""
    store = ScriptedRetriever({"a": [PORT]})
    agent, model = agent_with(crag(vector_store=store))

    for how in ("ainvoke", "ainvoke", "invoke"):
        ask(agent, QUESTION, how)

    assert len(store.asked) == 3
    assert len({request[0].text for request in model.requests}) == 1


async def test_a_sync_call_inside_a_running_loop_works_as_in_a_notebook():
    agent, _ = agent_with(crag([PORT]))

    assert ask(agent, QUESTION)["crag"]["status"] == "grounded"


def test_an_async_only_port_is_named_when_built_and_when_used_sync(caplog):
    class OnlyAsync:
        async def aretrieve(self, question):
            return [PORT]

    agent, _ = agent_with(crag(vector_store=OnlyAsync()))

    assert "OnlyAsync.retrieve has only an async form" in caplog.text
    assert ask(agent, QUESTION, "ainvoke")["crag"]["status"] == "grounded"
    with pytest.raises(ConfigError, match="ainvoke"):
        ask(agent, QUESTION, "invoke")


@both
def test_an_agent_that_is_told_only_tool_messages_after_the_question_does_not_take_them_as_question(how):
    store = ScriptedRetriever({"a": [PORT]})
    agent, _ = agent_with(crag(vector_store=store), tools=TOOLS)
    history = [
        HumanMessage(QUESTION, id="q"),
        call("get_stock"),
        ToolMessage("17", tool_call_id="call-get_stock-0"),
    ]

    ask(agent, history, how)

    assert store.asked == [("a", QUESTION)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"evaluator": 3}, "`evaluator` must be"),
        ({"rewriter": 3}, "`rewriter` must be"),
        ({"web_search": 3}, "`search` or `asearch`"),
        ({"refiner": 3}, "`refine` or `arefine`"),
        ({"vector_store": 3}, "`vector_store` must be"),
        ({"evaluator": ScriptedEvaluator}, r"got the class ScriptedEvaluator; write ScriptedEvaluator\(\.\.\.\)"),
        ({"web_search": ScriptedWebSearch}, "got the class ScriptedWebSearch"),
        ({"name": 5}, "`name`"),
        ({"settings": {"top_k": 3}}, r"`settings` must be `CRAGSettings\(...\)`, got dict"),
    ],
)
def test_wrong_ports_are_refused_when_built(arguments, message):
    with pytest.raises(ConfigError, match=message):
        crag(**arguments)


def test_wrong_web_options_are_refused_when_built():
    web = TavilyWebSearch(api_key="k", api_base_url="http://127.0.0.1:1")

    with pytest.raises(ConfigError, match="tme_range"):
        crag(web_search=web, settings=CRAGSettings(web_options={"tme_range": "day"}))


def test_an_evaluator_with_odd_thresholds_is_refused():
    for odd in ((0.9, 0.5), (0.5,), "high", Thresholds(0.1, 1.1), None):
        evaluator = ScriptedEvaluator()
        evaluator.thresholds = odd
        with pytest.raises(ConfigError, match="thresholds"):
            crag(evaluator=evaluator)


def test_an_evaluator_needs_nothing_but_its_method():
    class Plain:
        def grade(self, question, passages):
            return ScriptedEvaluator().grade(question, passages)

    agent, _ = agent_with(crag([PORT], evaluator=Plain()))

    assert ask(agent, QUESTION)["crag"]["verdict"] == "relevant"


def test_a_rewriter_may_be_a_chat_model():
    model = ScriptedChatModel(replies=["stand-alone"])
    agent, _ = agent_with(crag([PORT], rewriter=model))

    result = ask(agent, [("user", "x y"), ("assistant", "z"), ("user", "and it?")])

    assert result["crag"]["query"] == "stand-alone"
    assert isinstance(ScriptedRewriter("x").texts, tuple)


SETS = SetMap(offset=0, weights=(0.5, 0.3, 0.2), thresholds=(0.3, 0.7))


def calibration(offset=0.0, **more):
    """For `ScriptedEvaluator`: moves the log odds of its probabilities by `offset`."""
    facts = {"evaluator": "ScriptedEvaluator", "thresholds": (0.2, 0.8), "fitted_on": "nothing", "pairs": 0, "questions": 0}
    return Calibration(map=PlattMap(slope=1, offset=offset), **facts | more)


class Stored(ScriptedRetriever):
    """A retriever over a collection with a name."""

    collection_name = "docs"


@both
def test_a_calibration_changes_what_a_passage_s_number_means(how):
    web = ScriptedWebSearch([passage("The default port is 9100.", "page")])
    given = {"evaluator": ScriptedEvaluator({"port": 0.7}, otherwise=0.7), "web_search": web}

    plain = ask(agent_with(crag([PORT], **given))[0], QUESTION, how)["crag"]
    raised = ask(agent_with(crag([PORT], calibration=calibration(2), **given))[0], QUESTION, how)["crag"]
    lowered = ask(agent_with(crag([PORT], calibration=calibration(-3), **given))[0], QUESTION, how)["crag"]

    assert [r["verdict"] for r in (plain, raised, lowered)] == ["ambiguous", "relevant", "incorrect"]
    assert [p["raw"] for r in (plain, raised, lowered) for p in r["passages"]] == [0.7] * 5
    assert raised["passages"][0]["probability"] == pytest.approx(0.945, abs=1e-3)
    assert plain["passages"][0]["probability"] == 0.7
    assert lowered["passages"][1]["label"] == "incorrect", "pages of the web go through the same map"
    assert (plain["calibration"], raised["calibration"]) == (None, "ScriptedEvaluator, 0 passages of 0 questions")


@both
def test_a_calibration_may_be_a_file_and_settings_cut_on_its_scale(how, tmp_path):
    calibration(2).save(tmp_path / "c.json")
    given = {"evaluator": ScriptedEvaluator({"port": 0.7}), "settings": CRAGSettings(upper=0.95)}

    for path in (tmp_path / "c.json", str(tmp_path / "c.json"), [tmp_path / "c.json"]):
        agent, _ = agent_with(crag([PORT], calibration=path, **given))
        assert ask(agent, QUESTION, how)["crag"]["passages"][0]["label"] == "ambiguous"


@both
def test_the_evaluators_own_calibration_serves_unless_another_is_given(how):
    evaluator = ScriptedEvaluator({"port": 0.7})
    evaluator.calibration = calibration(2, thresholds=(0.5, 0.9))

    own, _ = agent_with(crag([PORT], evaluator=evaluator))
    given, _ = agent_with(crag([PORT], evaluator=evaluator, calibration=calibration(-3)))
    other_tenants, _ = agent_with(crag([PORT], evaluator=evaluator, calibration=calibration(-3, tenant="b")))

    assert [ask(a, QUESTION, how)["crag"]["verdict"] for a in (own, given, other_tenants)] == ["relevant", "incorrect", "relevant"]


@both
def test_each_tenants_turn_is_graded_by_the_most_specific_calibration(how):
    store = Stored({tenant: [PORT] for tenant in "abc"})
    several = [
        calibration(-3),
        calibration(0, collection="docs", pairs=1),
        calibration(1, tenant="a", pairs=2),
        calibration(1, tenant="b", pairs=3),
        calibration(2, tenant="b", collection="docs", pairs=4),
    ]
    evaluator = ScriptedEvaluator({"port": 0.7})

    for order in (several, several[::-1]):
        agent, _ = agent_with(crag(vector_store=store, agent_id=None, evaluator=evaluator, calibration=order), context_schema=Context)
        receipts = [ask(agent, QUESTION, how, context=Context(tenant))["crag"] for tenant in "abc"]
        assert [r["passages"][0]["probability"] for r in receipts] == pytest.approx([0.864, 0.945, 0.7], abs=1e-3)
        assert "one tenant, 2 passages" in receipts[0]["calibration"]
        assert "collection 'docs', 1 passages" in receipts[2]["calibration"]


def test_a_calibration_of_one_tenant_never_serves_another_at_the_same_time():
    store = ScriptedRetriever({tenant: [PORT] for tenant in "ab"})
    several = [calibration(2, tenant="a"), calibration(-3, tenant="b")]
    agent, _ = agent_with(
        crag(vector_store=store, agent_id=None, evaluator=ScriptedEvaluator({"port": 0.7}), calibration=several), context_schema=Context
    )

    async def turns():
        asked = [agent.ainvoke({"messages": [("user", QUESTION)]}, context=Context("ab"[i % 2])) for i in range(20)]
        return await asyncio.gather(*asked)

    assert [r["crag"]["verdict"] for r in asyncio.run(turns())] == ["relevant", "incorrect"] * 10


@both
def test_the_rule_set_lets_fair_passages_that_agree_be_relevant_together(how):
    fair = [passage(f"The exporter listens on port 9100, says page {i}.", str(i)) for i in range(3)]
    given = {"evaluator": ScriptedEvaluator(otherwise=0.75), "calibration": calibration(sets=SETS)}

    paper = ask(agent_with(crag(fair, **given))[0], QUESTION, how)["crag"]
    together = ask(agent_with(crag(fair, settings=CRAGSettings(verdict_rule="set"), **given))[0], QUESTION, how)["crag"]

    assert (paper["verdict"], paper["verdict_rule"]) == ("ambiguous", "paper")
    assert (together["verdict"], together["verdict_rule"]) == ("relevant", "set")
    assert paper["sufficiency"] == together["sufficiency"] == pytest.approx(0.75)
    assert together["status"] == "grounded"


@both
def test_knowledge_that_does_not_answer_together_is_not_injected_though_a_passage_is_fair(how):
    """C053"""
    pages = [PORT, passage("The canteen opens at noon.", "canteen"), passage("The garden is closed.", "garden")]
    evaluator = ScriptedEvaluator({"port": 0.5}, otherwise=0.01)
    settings = CRAGSettings(verdict_rule="set")
    agent, model = agent_with(crag(pages, evaluator=evaluator, calibration=calibration(sets=SETS), settings=settings))

    receipt = ask(agent, QUESTION, how)["crag"]

    assert (receipt["verdict"], receipt["status"]) == ("incorrect", "no_evidence")
    assert receipt["passages"][0]["label"] == "ambiguous"
    assert "9100" not in model.requests[0][-1].text


@both
@pytest.mark.parametrize("ungraded", [("port",), ("port", "canteen")])
def test_under_the_rule_set_ungraded_passages_leave_the_turn_ambiguous(how, ungraded):
    """C051"""
    evaluator = ScriptedEvaluator(dict.fromkeys(ungraded), otherwise=0.01)
    pages = [PORT, passage("The canteen opens at noon.", "canteen")]
    agent, _ = agent_with(crag(pages, evaluator=evaluator, calibration=calibration(sets=SETS), settings=CRAGSettings(verdict_rule="set")))

    receipt = ask(agent, QUESTION, how)["crag"]

    assert receipt["verdict"] == "ambiguous"
    assert (receipt["sufficiency"] is None) == (len(ungraded) == 2)


@both
def test_an_answer_that_was_begun_under_one_calibration_is_worked_out_anew_under_another(how):
    saver, store, thread = InMemorySaver(), ScriptedRetriever({"a": [PORT]}), {"configurable": {"thread_id": "1"}}
    for number in (0, 0, 2):
        agent, _ = agent_with(crag(vector_store=store, calibration=calibration(number)), checkpointer=saver)
        ask(agent, [HumanMessage(QUESTION, id="q")], how, config=thread)

    assert len(store.asked) == 2


OF_ANOTHER = "this evaluator is ScriptedEvaluator; fit one to it with `crag calibrate`"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"calibration": calibration(evaluator="Other")}, OF_ANOTHER),
        ({"calibration": calibration(model="large")}, OF_ANOTHER),
        ({"calibration": calibration(prompt="2")}, OF_ANOTHER),
        ({"calibration": [calibration(), calibration(collection="mail")]}, "'mail', and this knowledge has no collection"),
        ({"calibration": calibration(collection="mail"), "vector_store": Stored({})}, "'mail', and this one is 'docs'"),
        ({"calibration": [calibration(1), calibration(2)]}, "two of the calibrations are for the same tenant and collection"),
        ({"calibration": [calibration(1, tenant="t"), calibration(2, tenant="t")]}, "two of the calibrations"),
        ({"calibration": 5}, "`calibration` must be a Calibration, the path of its file, or a list of those, got int"),
        ({"calibration": [[calibration()]]}, "a list of those, got list"),
        ({"calibration": {"map": 1}}, "a list of those, got dict"),
        ({"calibration": "nowhere.json"}, "'nowhere.json' can't be read"),
        ({"calibration": calibration(), "settings": CRAGSettings(lower=0.9)}, "lower 0.9 above upper 0.8"),
        ({"settings": CRAGSettings(verdict_rule="set")}, "there is no calibration; fit one with `crag calibrate`"),
        ({"settings": CRAGSettings(verdict_rule="set"), "calibration": calibration()}, "does not tell it; fit one"),
        (
            {"settings": CRAGSettings(verdict_rule="set"), "calibration": calibration(tenant="t", sets=SETS), "agent_id": None},
            "there is no calibration; fit one",
        ),
    ],
)
def test_a_calibration_that_can_not_serve_is_refused_when_built(arguments, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        crag(**arguments)


def test_a_calibration_for_no_tenant_id_is_refused_when_built():
    with pytest.raises(TenantError):
        crag(calibration=calibration(tenant="  "))


def test_the_only_tenants_own_calibration_is_enough_for_the_rule_set():
    assert crag(agent_id="t", settings=CRAGSettings(verdict_rule="set"), calibration=calibration(tenant="t", sets=SETS))


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("key", "sk-123", r"`key` must be an EvaluatorKey\(evaluator, model, prompt\), got str"),
        ("calibration", 0.5, "`calibration` must be a Calibration for any collection and tenant, or None, got float"),
        ("calibration", calibration(tenant="t"), "got one for a collection or a tenant; pass that to CRAGMiddleware"),
        ("calibration", calibration(model="large"), "this evaluator is ScriptedEvaluator"),
    ],
)
def test_an_evaluator_with_an_odd_key_or_calibration_is_refused(attribute, value, message):
    evaluator = ScriptedEvaluator()
    setattr(evaluator, attribute, value)

    with pytest.raises(ConfigError, match=message) as caught:
        crag(evaluator=evaluator, calibration=calibration())
    assert "sk-123" not in str(caught.value)


def test_an_evaluator_may_name_itself():
    evaluator = ScriptedEvaluator()
    evaluator.key = EvaluatorKey("ScriptedEvaluator", "large")

    assert crag(evaluator=evaluator, calibration=calibration(model="large"))
    with pytest.raises(ConfigError, match="fit one to it"):
        crag(evaluator=evaluator, calibration=calibration())
