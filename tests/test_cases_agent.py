"""Cases of the agent's loop and of its streams (kinds 1 and 2 of CASES.md), each with a model as strict as providers are."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from langchain.agents.middleware import ModelFallbackMiddleware, SummarizationMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import ToolRuntime, tool
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from crag_middleware.adapters.chat_claim_checker import ChatModelClaimChecker
from crag_middleware.adapters.chat_model import ChatModelEvaluator
from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.assemble import approximate_tokens
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter
from crag_middleware.types import Grade, Passage
from tests.support.agents import agent_with, ask, both, crag, passage

PORT = passage("The exporter listens on port 9100.", "port", title="Exporter")
QUESTION = "Which port does the exporter use?"
positions = pytest.mark.parametrize("position", ["human", "system"])


def call(*numbers: int) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": f"c{n}"} for n in numbers])


@tool
def get_stock(x: str) -> str:
    """Stock of an article."""
    return "17"


def strict(*replies: Any) -> list[Callable[[Sequence[BaseMessage]], Any]]:
    """Replies of a provider that refuses what strict ones refuse."""

    def reply_with(reply: Any) -> Callable[[Sequence[BaseMessage]], Any]:
        def reply_to(messages: Sequence[BaseMessage]) -> Any:
            assert [i for i, m in enumerate(messages) if isinstance(m, SystemMessage)] in ([], [0]), (
                "a system message that is not the first"
            )
            assert all(isinstance(m.content, str) for m in messages), "content that is no string"
            open_calls: list[str] = []
            for message in messages:
                if isinstance(message, ToolMessage):
                    assert message.tool_call_id in open_calls, "a tool result without its call right before it"
                    open_calls.remove(message.tool_call_id)
                else:
                    assert not open_calls, "a tool call without its result right after it"
                    open_calls = [str(c["id"]) for c in message.tool_calls] if isinstance(message, AIMessage) else []
            assert not open_calls
            return reply

        return reply_to

    return [reply_with(reply) for reply in replies]


# Kind 1


@both
@positions
@pytest.mark.parametrize("prompt", [None, "Answer in French only."])
def test_a_strict_provider_takes_every_request_of_a_turn_after_a_long_history(how: str, position: Any, prompt: str | None) -> None:
    """C005, C006, C007, C008, C010: one system message, first, all strings, calls next to their results."""
    history = [
        HumanMessage("How many are there?", id="1"),
        call(1, 2),
        ToolMessage("17", tool_call_id="c1"),
        ToolMessage("18", tool_call_id="c2"),
        AIMessage("17 and 18."),
        HumanMessage(QUESTION, id="2"),
        call(3),
        ToolMessage("19", tool_call_id="c3"),
    ]
    middleware = crag([PORT], settings=CRAGSettings(position=position))
    agent, model = agent_with(middleware, replies=strict(call(4, 5), "It is 9100 [1]."), tools=[get_stock], system_prompt=prompt)

    result = ask(agent, history, how)

    assert result["messages"][-1].text == "It is 9100 [1]."
    assert len(model.requests) == 2
    for request in model.requests:
        assert sum("The exporter listens on port 9100." in m.text for m in request) == 1
        assert prompt is None or request[0].text.startswith(prompt)
        assert [m.type for m in request if m.type != "system"][: len(history)] == [m.type for m in history]


@both
def test_a_system_prompt_of_blocks_keeps_its_blocks_and_cache_markers(how: str) -> None:
    """C007"""
    blocks = [{"type": "text", "text": "BASE", "cache_control": {"type": "ephemeral"}}]
    agent, model = agent_with(crag([PORT], settings=CRAGSettings(position="system")), system_prompt=SystemMessage(list(blocks)))

    ask(agent, QUESTION, how)

    content = model.requests[0][0].content
    assert content[0] == blocks[0]
    assert [block["type"] for block in content if isinstance(block, dict)] == ["text", "text"]


@both
@positions
def test_every_field_of_earlier_messages_reaches_the_model_as_it_was(how: str, position: Any) -> None:
    """C012"""
    earlier = [
        HumanMessage("How many?", id="1", name="ana"),
        AIMessage(
            "",
            id="2",
            tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c1"}],
            additional_kwargs={"reasoning_content": "because"},
            response_metadata={"model_name": "m", "logprobs": None},
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        ),
        ToolMessage("17", id="3", tool_call_id="c1", artifact={"raw": 1}, status="error"),
        AIMessage("17.", id="4", additional_kwargs={"reasoning_content": "so"}),
    ]
    agent, model = agent_with(crag([PORT], settings=CRAGSettings(position=position)), replies=strict("It is 9100 [1]."))

    ask(agent, [*earlier, HumanMessage(QUESTION, id="5")], how)

    sent = [m for m in model.requests[0] if m.type != "system"][:4]
    assert [m.model_dump() for m in sent] == [m.model_dump() for m in earlier]


@both
def test_a_rewriter_sees_no_part_of_a_tool_loop(how: str) -> None:
    """C011"""
    rewriter = ScriptedRewriter("Which port does the exporter of the shop use?")
    loop = [message for n in range(8) for message in (call(n), ToolMessage("SECRET", tool_call_id=f"c{n}"))]
    history = [HumanMessage("How many are there?", id="1"), *loop, AIMessage("Eight."), HumanMessage("And its port?", id="2")]
    agent, _ = agent_with(crag([PORT], rewriter=rewriter), tools=[get_stock])

    ask(agent, history, how)

    ((question, exchanges, _),) = rewriter.asked
    assert question == "And its port?"
    assert {exchange.role for exchange in exchanges} <= {"user", "assistant"}
    assert exchanges[-1].text == "Eight."
    assert "SECRET" not in str(exchanges)


class Report(BaseModel):
    """A structured answer."""

    port: int


@both
@pytest.mark.parametrize("checker", [None, WordClaimChecker()])
@pytest.mark.parametrize("text", ["", "The port is 9100 [1]."])
def test_structured_output_is_kept_with_and_without_a_claim_check(how: str, checker: Any, text: str) -> None:
    """C013"""
    structured = AIMessage(text, tool_calls=[{"name": "Report", "args": {"port": 9100}, "id": "s"}])
    middleware = crag([PORT], claim_checker=checker, settings=CRAGSettings(on_unsupported="repair" if checker else "flag"))
    agent, model = agent_with(middleware, replies=[structured], response_format=ToolStrategy(Report))

    result = ask(agent, QUESTION, how)

    assert result["structured_response"] == Report(port=9100)
    assert len(model.requests) == 1


REASONING = {"type": "reasoning", "summary": []}


@both
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("said", "kept", "unknown"),
    [
        ("The port is 9100 [1].", "The port is 9100 [1].", []),
        ("The port is 9100 [1][9].", "The port is 9100 [1].", ["[9]"]),
    ],
)
def test_the_answer_of_a_fallback_model_in_blocks_is_checked_and_keeps_its_shape(
    how: str, order: int, said: str, kept: str, unknown: list[str]
) -> None:
    """C016"""
    fallback = ScriptedChatModel(replies=[AIMessage([{"type": "text", "text": said}, REASONING])])
    stack = [crag([PORT], claim_checker=WordClaimChecker()), ModelFallbackMiddleware(fallback)][::order]
    agent, _ = agent_with(stack, replies=[RuntimeError("down")])

    result = ask(agent, QUESTION, how)

    assert result["messages"][-1].content == [{"type": "text", "text": kept}, REASONING]
    answer = result["crag"]["answer"]
    assert [citation["number"] for citation in answer["citations"]] == [1]
    assert answer["unknown_citations"] == unknown
    assert [claim["label"] for claim in answer["claims"]] == ["supported"]


@both
@positions
def test_what_two_requests_share_reaches_up_to_the_newest_question(how: str, position: Any) -> None:
    """C017: all of the first turn but its block is a prefix of the second; in the system position, the operator's prompt."""
    found = {"q1": [PORT], "q2": [passage("The canteen opens at noon.", "canteen", title="Canteen")]}

    class ByQuestion:
        def retrieve(self, question: str, *, agent_id: str) -> list[Passage]:
            return found[question]

    middleware = crag(vector_store=ByQuestion(), settings=CRAGSettings(position=position, standalone_questions=False))
    agent, model = agent_with(middleware, replies=["one", "two"], system_prompt="BASE " * 50, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}

    ask(agent, "q1", how, config=thread)
    ask(agent, "q2", how, config=thread)

    assert all(request[0].text.startswith("BASE " * 50) for request in model.requests)
    if position == "human":
        assert [m.text for m in model.requests[1][:3]] == ["BASE " * 50, "q1", "one"], "the earlier turn is sent as it was saved"
        assert "canteen" in model.requests[1][3].text


@both
def test_the_same_question_gives_the_same_bytes_in_another_thread_and_at_another_time(how: str) -> None:
    """C017: no time stamp and no random id is injected."""
    requests = []
    for thread in "12":
        agent, model = agent_with(crag([PORT]), checkpointer=InMemorySaver())
        ask(agent, QUESTION, how, config={"configurable": {"thread_id": thread}})
        requests.append([m.text for m in model.requests[0]])

    assert requests[0] == requests[1]


@pytest.mark.parametrize("run", ["ainvoke", "astream"])
async def test_no_blocking_port_is_called_in_the_thread_of_the_loop(run: str) -> None:
    """C020"""
    loop_thread, threads = threading.current_thread(), {}

    class Blocking:
        """Every port, in its sync form only."""

        def retrieve(self, question: str) -> list[Passage]:
            threads["retrieve"] = threading.current_thread()
            return [PORT]

        def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            threads["grade"] = threading.current_thread()
            return ScriptedEvaluator(otherwise=0.7).grade(question, passages)

        def search(self, query: str) -> list[Passage]:
            threads["search"] = threading.current_thread()
            return []

        def rewrite(self, question: str) -> str:
            threads["rewrite"] = threading.current_thread()
            return QUESTION

        def rerank(self, question: str, passages: Sequence[Passage]) -> list[float]:
            threads["rerank"] = threading.current_thread()
            return [1.0] * len(passages)

        def check(self, claims: Sequence[Any], grounds: Sequence[Any]) -> Any:
            threads["check"] = threading.current_thread()
            return WordClaimChecker().check(claims, grounds)

    ports = Blocking()
    middleware = crag(vector_store=ports, evaluator=ports, web_search=ports, rewriter=ports, reranker=ports, claim_checker=ports)
    agent, _ = agent_with(middleware, replies=["The exporter listens on port 9100 [1]."])
    given = {"messages": [("user", "What is an exporter?"), ("assistant", "A program."), ("user", QUESTION)]}

    if run == "ainvoke":
        await agent.ainvoke(given)
    else:
        _ = [chunk async for chunk in agent.astream(given)]

    assert set(threads) == {"retrieve", "grade", "search", "rewrite", "rerank", "check"}
    assert loop_thread not in threads.values()


@both
def test_evidence_stays_in_its_budget_beside_a_summary_and_the_worst_goes_first(how: str) -> None:
    """C021"""
    pages = [
        passage(" ".join(f"Exporter {n} uses port 9{n}{k:02} in hall {k}." for k in range(12)), f"p{n}", title=f"T{n}") for n in range(10)
    ]
    grades = {f"p{n}": 0.99 - n / 100 for n in range(20)}
    summarise = SummarizationMiddleware(ScriptedChatModel(replies=["a summary"]), trigger=("messages", 4), keep=("messages", 1))
    middleware = crag(pages, evaluator=ScriptedEvaluator(grades), settings=CRAGSettings(max_context_tokens=500, top_k=20))
    agent, model = agent_with([summarise, middleware])
    history = [HumanMessage("a", id="1"), AIMessage("b"), HumanMessage("c", id="2"), AIMessage("d"), HumanMessage(QUESTION, id="3")]

    receipt = ask(agent, history, how)["crag"]

    holder = next(m.text for m in model.requests[0] if "<crag_sources>" in m.text)
    assert any("a summary" in m.text for m in model.requests[0])
    assert approximate_tokens(holder.removesuffix(QUESTION)) <= 500
    kept = [int(source["id"][1:]) for source in receipt["sources"]]
    assert 0 < len(kept) < 20
    assert kept == list(range(len(kept))), "the best are there"
    assert all(strip["text"].endswith(".") for source in receipt["sources"] for strip in source["strips"])


@both
def test_a_chunk_that_a_tool_brings_too_stands_once_in_our_block_and_the_tool_s_message_is_left_alone(how: str) -> None:
    """C022"""

    @tool
    def search_docs(x: str) -> str:
        """Searches the documents."""
        return PORT.text

    again = passage(PORT.text, "copy", title="Exporter")
    search = AIMessage("", tool_calls=[{"name": "search_docs", "args": {"x": "port"}, "id": "s"}])
    store = ScriptedRetriever({"a": [PORT, again]})
    agent, model = agent_with(crag(vector_store=store), replies=strict(search, "It is 9100 [1]."), tools=[search_docs])

    result = ask(agent, QUESTION, how)

    for request in model.requests:
        assert request[0].text.count(PORT.text) == 1
    assert model.requests[1][-1].content == PORT.text
    assert len(result["crag"]["sources"]) == 1


# Kind 2


def inner_models() -> dict[str, ScriptedChatModel]:
    return {
        "evaluator": ScriptedChatModel(
            replies=['{"grades": [{"passage": 1, "label": "relevant", "confidence": 0.97, "reason": "GRADERTOKEN"}]}']
        ),
        "rewriter": ScriptedChatModel(replies=["REWRITETOKEN port of the exporter"]),
        "claim_checker": ScriptedChatModel(
            replies=['{"claims": [{"claim": 1, "passage": 1, "label": "supported", "confidence": 0.97, "why": "CHECKERTOKEN"}]}']
        ),
    }


def checked_agent(models: dict[str, ScriptedChatModel]) -> Any:
    middleware = crag(
        [PORT],
        evaluator=ChatModelEvaluator(models["evaluator"]),
        rewriter=models["rewriter"],
        claim_checker=ChatModelClaimChecker(models["claim_checker"]),
    )
    return agent_with(middleware, replies=[call(1), "The exporter listens on port 9100 [1]."], tools=[get_stock])[0]


GIVEN: Any = {"messages": [("user", "What is an exporter?"), ("assistant", "A program."), ("user", QUESTION)]}


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_grading_rewriting_and_the_claim_check_stay_out_of_the_user_s_stream(how: str) -> None:
    """C023, C026: what is shown is what is saved."""
    models = inner_models()
    agent = checked_agent(models)

    async def collect() -> list[Any]:
        return [part async for part in agent.astream(GIVEN, stream_mode=["messages", "values"])]

    parts = list(agent.stream(GIVEN, stream_mode=["messages", "values"])) if how == "stream" else asyncio.run(collect())

    shown = "".join(part[0].text for mode, part in parts if mode == "messages" and part[0].type != "tool")
    saved = [part for mode, part in parts if mode == "values"][-1]["messages"]
    assert shown == saved[-1].text == "The exporter listens on port 9100 [1]."
    assert all(model.requests for model in models.values()), "each of them was asked"


class Seen(BaseCallbackHandler):
    """The names of the chat model calls that a user's callback sees."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **more: Any) -> None:
        self.names.append(str(more.get("name")))


@both
def test_a_user_s_callback_sees_every_inner_call_by_name(how: str) -> None:
    """C025, C028: sync ports run in threads, which keep the run's callbacks."""
    seen = Seen()

    ask(checked_agent(inner_models()), GIVEN["messages"], how, config={"callbacks": [seen]})

    assert {"crag.grade", "crag.rewrite"} < set(seen.names)
    assert len([name for name in seen.names if name.startswith("crag.")]) == 3, seen.names


REQUEST: ContextVar[str] = ContextVar("REQUEST", default="nobody")


@both
def test_parts_in_threads_see_the_caller_s_context_and_are_told_the_tenant(how: str) -> None:
    """C028: the tenant is an argument; what a context variable says of it does not count."""
    told = []

    class Looking:
        def retrieve(self, question: str, *, agent_id: str) -> list[Passage]:
            told.append(("retrieve", agent_id, REQUEST.get()))
            return [PORT]

        def grade(self, question: str, passages: Sequence[Passage], *, agent_id: str) -> Sequence[Grade]:
            told.append(("grade", agent_id, REQUEST.get()))
            return ScriptedEvaluator().grade(question, passages)

    agent, _ = agent_with(crag(vector_store=Looking(), evaluator=Looking(), agent_id=None))
    token = REQUEST.set("request of b")
    try:
        ask(agent, QUESTION, how, context={"agent_id": "a"})
    finally:
        REQUEST.reset(token)

    assert told == [("retrieve", "a", "request of b"), ("grade", "a", "request of b")]


# A subagent's state handed on by a tool


def test_a_receipt_that_a_tool_hands_on_from_a_subagent_of_another_tenant_counts_for_nothing():
    """deepagents' `task` puts the whole state of a subagent into its parent's, under the same keys."""
    inner, _ = agent_with(crag([passage("Coffee is 3 EUR.", "coffee")], agent_id="b", tenant="b"), replies=["3 EUR [1]."])

    @tool
    def task(question: str, runtime: ToolRuntime) -> Command:
        """Ask the other department."""
        state = inner.invoke({"messages": [("user", question)]})
        handed_on = {key: value for key, value in state.items() if key != "messages"}
        return Command(update={**handed_on, "messages": [ToolMessage(state["messages"][-1].text, tool_call_id=runtime.tool_call_id)]})

    call = AIMessage("", tool_calls=[{"name": "task", "args": {"question": "What is coffee?"}, "id": "1"}])
    outer, _ = agent_with(crag([passage("Tea is 2 EUR.", "tea")], agent_id="a"), replies=[call, "Tea is 2 EUR [1]."], tools=[task])

    result = outer.invoke({"messages": [("user", "What is tea?")]})

    assert [source["id"] for source in result["crag"]["sources"]] == ["tea"]
    assert [citation["id"] for citation in result["crag"]["answer"]["citations"]] == ["tea"]
    assert result["messages"][-1].response_metadata["crag"]["citations"][0]["id"] == "tea"


def test_a_receipt_that_was_handed_on_is_put_back_where_answers_are_not_checked():
    unchecked = crag([passage("Tea is 2 EUR.", "tea")], settings=CRAGSettings(verify=False))

    @tool
    def task(runtime: ToolRuntime) -> Command:
        """Ask the other department."""
        return Command(update={"crag": {"sources": []}, "messages": [ToolMessage("ok", tool_call_id=runtime.tool_call_id)]})

    outer, _ = agent_with(unchecked, replies=[AIMessage("", tool_calls=[{"name": "task", "args": {}, "id": "1"}]), "2 EUR"], tools=[task])

    assert [source["id"] for source in outer.invoke({"messages": [("user", "What is tea?")]})["crag"]["sources"]] == ["tea"]
