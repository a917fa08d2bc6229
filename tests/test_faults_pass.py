"""What is not ours to handle passes unchanged.

That is whatever the agent's own model raises, and of our dependencies tenant errors and the framework's control flow, bare, from every port.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, interrupt
from pydantic import SkipValidation

from crag_middleware import CRAGMiddleware, CRAGSettings, Passage, Route
from crag_middleware.errors import RetrievalError, TenantError
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter, ScriptedWebSearch
from crag_middleware.types import Checked, Claim
from tests.support import milvus as support
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.milvus import TENANT, WordEmbeddings, insert, make_collection, open_store
from tests.support.streaming_models import Streaming, words

lite_uri = support.lite_uri

KNOWN = passage("The Zephyr gateway listens on port 9100.", "known")
ANSWER = "The Zephyr gateway listens on port 9100 [1]."
REQUEST = httpx.Request("POST", "http://model.example")


class OwnError(Exception):
    """A model's own."""


class FlowError(GraphBubbleUp):
    """Control flow of the framework, of a class that is nobody's."""


def model_errors() -> list[Exception]:
    response = httpx.Response(429, request=REQUEST)
    return [
        OwnError("x"),
        ValueError("x"),
        TimeoutError("x"),
        openai.RateLimitError("x", response=response, body=None),  # type: ignore[arg-type]  # httpx2's response, where OpenAI's client has it
        RetrievalError("raised by a model that is a chain of ours"),
        TenantError("raised by a subagent"),
        FlowError(),
    ]


class AnyChecker:
    """Finds every claim supported."""

    threshold = 0.5

    def check(self, claims: Sequence[Claim], grounds: Sequence[Any]) -> list[Checked]:
        return [Checked("supported", 1.0, None) for _ in claims]


# The agent's own model

WATCHED = pytest.mark.parametrize(
    "checks", [{}, {"claim_checker": AnyChecker()}, {"settings": CRAGSettings(verify=False)}], ids=["citations", "claims", "unwatched"]
)


@both
@WATCHED
@pytest.mark.parametrize("error", model_errors(), ids=lambda error: type(error).__name__)
def test_what_the_agents_model_raises_is_what_the_caller_gets(error: Exception, checks: dict[str, Any], how: str) -> None:
    agent = create_agent(ScriptedChatModel(replies=[error]), middleware=[crag([KNOWN], **checks)])

    with pytest.raises(type(error)) as caught:
        ask(agent, "Which port?", how)

    # asyncio makes a `TimeoutError` from a thread, in which a sync model runs under `ainvoke`, anew.
    assert caught.value is error or (type(caught.value) is TimeoutError and str(caught.value) == str(error))


@both
@WATCHED
@pytest.mark.parametrize("order", [1, -1])
def test_a_retry_middleware_sees_the_models_own_error(order: int, checks: dict[str, Any], how: str) -> None:
    seen: list[Exception] = []
    error = OwnError("x")
    model = ScriptedChatModel(replies=[error, error, ANSWER])
    retry: Any = ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False, retry_on=lambda raised: not seen.append(raised))  # type: ignore[func-returns-value]
    agent = create_agent(model, middleware=[crag([KNOWN], **checks), retry][::order])

    result = ask(agent, "Which port?", how)

    assert result["messages"][-1].text == ANSWER
    assert len(model.requests) == 3
    assert [raised is error for raised in seen] == [True, True]


@both
@WATCHED
@pytest.mark.parametrize("order", [1, -1])
def test_a_fallback_middleware_takes_over(order: int, checks: dict[str, Any], how: str) -> None:
    first, second = ScriptedChatModel(replies=[OwnError("x")]), ScriptedChatModel(replies=[ANSWER])
    agent = create_agent(first, middleware=[crag([KNOWN], **checks), ModelFallbackMiddleware(second)][::order])

    result = ask(agent, "Which port?", how)

    assert result["messages"][-1].text == ANSWER
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize("how", ["stream", "astream"])
@WATCHED
@pytest.mark.parametrize("said", [0, 3])
def test_a_stream_that_breaks_off_ends_with_the_models_own_error(said: int, checks: dict[str, Any], how: str) -> None:
    error = OwnError("x")
    model = Streaming(scripts=[[*words(ANSWER)[:said], error]])
    agent = create_agent(model, middleware=[crag([KNOWN], **checks)])
    given: Any = {"messages": [HumanMessage("Which port?")]}

    async def drain() -> None:
        async for _ in agent.astream(given, stream_mode="messages"):
            pass

    with pytest.raises(OwnError) as caught:
        asyncio.run(drain()) if how == "astream" else list(agent.stream(given, stream_mode="messages"))

    assert caught.value is error


# Our dependencies


class Raising:
    """Any port; it raises, sync and async."""

    threshold = 0.5

    def __init__(self, error: Exception, *, method: str) -> None:
        def sync(*arguments: Any, agent_id: str = "", **keywords: Any) -> Any:
            raise error

        async def async_(*arguments: Any, agent_id: str = "", **keywords: Any) -> Any:
            await asyncio.sleep(0)
            raise error

        setattr(self, method, sync)
        setattr(self, f"a{method}", async_)


class RaisingRewriter(ScriptedRewriter):
    """A rewriter that raises in one of its methods."""

    def __init__(self, error: Exception, *, method: str) -> None:
        super().__init__("another query")
        raising = Raising(error, method=method)
        setattr(self, method, getattr(raising, method))
        setattr(self, f"a{method}", getattr(raising, f"a{method}"))


class RaisingDocuments(BaseRetriever):
    """A LangChain retriever that raises, sync and async."""

    error: SkipValidation[Any]

    def _get_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str = "") -> list[Document]:
        raise self.error

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str = "") -> list[Document]:
        raise self.error


class RaisingEmbeddings(WordEmbeddings):
    """Embeddings that raise at a question."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def embed_query(self, text: str) -> list[float]:
        raise self.error

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [super(RaisingEmbeddings, self).embed_query(text) for text in texts]


class Neighbourly(ScriptedRetriever):
    """Has neighbours, which raise."""

    def __init__(self, error: Exception) -> None:
        super().__init__({"a": [KNOWN]})
        raising: Any = Raising(error, method="neighbours")
        self.neighbours, self.aneighbours = raising.neighbours, raising.aneighbours


def with_route(retriever: Any) -> dict[str, Any]:
    """Two routes that are well, and between them one that raises: all three are asked at the same time."""
    return {
        "routes": [
            Route("one", ScriptedRetriever({"a": [KNOWN]})),
            Route("bad", retriever),
            Route("two", ScriptedRetriever({"a": [KNOWN]})),
        ]
    }


def rejecting(error: Exception) -> Callable[[str, str], str]:
    def approve(query: str, agent_id: str) -> str:
        raise error

    return approve


UNSURE = {"evaluator": ScriptedEvaluator(otherwise=0.7), "web_search": ScriptedWebSearch([passage("A page on port 9100.", origin="web")])}
LOST = {"evaluator": ScriptedEvaluator(otherwise=0.1)}
EVERY_PORT: dict[str, Callable[[Exception], dict[str, Any]]] = {
    "retriever": lambda e: {"vector_store": Raising(e, method="retrieve")},
    "langchain retriever": lambda e: {"vector_store": RaisingDocuments(error=e)},
    "route": lambda e: with_route(Raising(e, method="retrieve")),
    "langchain route": lambda e: with_route(RaisingDocuments(error=e)),
    "neighbours": lambda e: {"vector_store": Neighbourly(e), "settings": CRAGSettings(neighbours=1)},
    "reranker": lambda e: {"reranker": Raising(e, method="rerank")},
    "evaluator": lambda e: {"evaluator": Raising(e, method="grade")},
    "rewriter": lambda e: LOST | {"rewriter": RaisingRewriter(e, method="rewrite")},
    "keywords": lambda e: UNSURE | {"vector_store": ScriptedRetriever({}), "rewriter": RaisingRewriter(e, method="keywords")},
    "decompose": lambda e: {"rewriter": RaisingRewriter(e, method="decompose"), "settings": CRAGSettings(decompose=True)},
    "hypothetical": lambda e: {
        "rewriter": RaisingRewriter(e, method="hypothetical"),
        "settings": CRAGSettings(query_variants=("hypothetical",)),
    },
    "web search": lambda e: UNSURE | {"web_search": Raising(e, method="search")},
    "approver": lambda e: UNSURE | {"approve_web_query": rejecting(e)},
    "refiner": lambda e: {"refiner": Raising(e, method="refine")},
    "refiner beside the web": lambda e: UNSURE | {"refiner": Raising(e, method="refine")},
    "claim checker": lambda e: {"claim_checker": Raising(e, method="check")},
    "write-back": lambda e: UNSURE | {"claim_checker": AnyChecker(), "write_back": Raising(e, method="keep")},
}


@both
@pytest.mark.parametrize("error", [TenantError("a row of another"), FlowError()], ids=["TenantError", "GraphBubbleUp"])
@pytest.mark.parametrize("port", EVERY_PORT)
def test_tenant_errors_and_control_flow_pass_bare_from_every_port(port: str, error: Exception, how: str) -> None:
    agent = create_agent(ScriptedChatModel(replies=[ANSWER]), middleware=[crag([KNOWN], **EVERY_PORT[port](error))])

    with pytest.raises(type(error)) as caught:
        ask(agent, "Which port?", how)

    assert caught.value is error


@both
@pytest.mark.parametrize("error", [TenantError("a row of another"), FlowError()], ids=["TenantError", "GraphBubbleUp"])
def test_they_pass_bare_from_the_embeddings_of_a_milvus_store(error: Exception, how: str, lite_uri: str) -> None:
    insert(make_collection(lite_uri, "k", {"agent_id": TENANT}), "k", [{"id": "1", "text": KNOWN.text, "agent_id": "a"}])
    embeddings: Embeddings = RaisingEmbeddings(error)
    store = open_store(lite_uri, "k", embedding_function=[embeddings])
    agent = create_agent(ScriptedChatModel(replies=[ANSWER]), middleware=[CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator())])

    with pytest.raises(type(error)) as caught:
        ask(agent, "Which port?", how)

    assert caught.value is error


@both
@pytest.mark.parametrize("port", EVERY_PORT)
def test_any_other_error_of_a_port_ends_no_turn(port: str, how: str) -> None:
    agent = create_agent(ScriptedChatModel(replies=[ANSWER]), middleware=[crag([KNOWN], **EVERY_PORT[port](OwnError("private")))])

    result = ask(agent, "Which port?", how)

    assert isinstance(result["messages"][-1], AIMessage)
    told = [*result["crag"]["degraded"], *result["crag"]["answer"]["degraded"]]
    assert told
    assert "private" not in str(result["crag"])


@both
def test_a_human_may_be_asked_from_inside_a_port_and_the_turn_goes_on(how: str) -> None:
    class Asking:
        def retrieve(self, question: str) -> list[Passage]:
            return [passage(f"The port is {interrupt('Which port is it?')}.", "told")]

        async def aretrieve(self, question: str) -> list[Passage]:
            return self.retrieve(question)

    agent = create_agent(
        ScriptedChatModel(replies=["It is 9100 [1]."]), middleware=[crag(vector_store=Asking())], checkpointer=InMemorySaver()
    )
    thread: Any = {"configurable": {"thread_id": "1"}}

    asked = ask(agent, "Which port?", how, config=thread)
    result = ask(agent, Command(resume="9100"), how, config=thread)

    assert [question.value for question in asked["__interrupt__"]] == ["Which port is it?"]
    assert result["crag"]["sources"][0]["strips"][0]["text"] == "The port is 9100."
    assert result["messages"][-1].text == "It is 9100 [1]."


# Groups of exceptions


async def in_a_group(error):
    async with asyncio.TaskGroup() as group:
        group.create_task(raising(error))


async def raising(error):
    raise error


class GroupRetriever:
    async def aretrieve(self, question):
        await in_a_group(TenantError("foreign", reason="foreign_row"))


class GroupChain(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return asyncio.run(in_a_group(TenantError("foreign", reason="foreign_row")))

    async def _aget_relevant_documents(self, query, *, run_manager):
        await in_a_group(TenantError("foreign", reason="foreign_row"))


@pytest.mark.parametrize("store", [GroupRetriever(), GroupChain()], ids=["port", "retriever"])
def test_a_tenant_error_inside_a_task_group_of_a_port_comes_out_bare(store):
    agent, _ = agent_with(crag(vector_store=store))
    with pytest.raises(TenantError):
        ask(agent, "Which port?", "ainvoke")
