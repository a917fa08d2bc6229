"""What others do in place of this middleware, over the same sleeping parts: retrieval before every model call, and a graph that grades one passage a call."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from simulated import QUESTION, SleepingModel, Store, Web

from crag_middleware import Passage

CONTEXT = "Use the following context to answer the user's query. If it does not contain the answer, say that you don't know.\n\n"


def _context(passages: Sequence[Passage]) -> str:
    return CONTEXT + "\n\n".join(passage.text for passage in passages)


class RetrieveAlways(AgentMiddleware[Any, Any, Any]):
    """Searches with the last message before each model call and puts what it finds into the system prompt, as LangChain's sample of a RAG middleware does."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> ModelResponse[Any]:
        """Calls the model with what was found."""
        return handler(_with_context(request, self._store.retrieve(str(request.messages[-1].text), agent_id="a", limit=5)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Calls the model with what was found."""
        return await handler(_with_context(request, await self._store.aretrieve(str(request.messages[-1].text), agent_id="a", limit=5)))


def _with_context(request: ModelRequest[Any], found: Sequence[Passage]) -> ModelRequest[Any]:
    before = f"{request.system_message.text}\n\n" if request.system_message else ""
    return request.override(system_message=SystemMessage(before + _context(found)))


class _State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    question: str
    passages: list[Passage]
    searches_web: bool


GRADER = """You are a grader assessing relevance of a retrieved document to a user question. If the document contains keywords or semantic meaning related \
to the question, grade it as relevant. Give a binary score 'yes' or 'no' to indicate whether the document is relevant to the question."""
TRANSFORMER = """You are a question re-writer that converts an input question to a better version that is optimized for web search. Look at the input and \
try to reason about the underlying semantic intent."""


def says_yes_or_no(messages: Sequence[BaseMessage]) -> AIMessage:
    """What the graph's grader says: yes of a passage that names the exporter."""
    return AIMessage("yes" if "exporter" in str(messages[-1].text).split("User question:")[0] else "no")


def corrective_graph(
    agent_model: SleepingModel, inner: Callable[[Any], SleepingModel], store: Store, web: Web, tools: Sequence[BaseTool]
) -> Any:
    """The corrective graph of the tutorials: retrieve, grade each passage by a call of its own, rewrite and search the web if one is irrelevant, generate.

    Its nodes are plain functions, which LangGraph runs in threads when it runs asynchronously. The last node is the bare agent with its tool loop.
    """
    grader, transformer = inner(says_yes_or_no), inner(lambda messages: AIMessage(QUESTION))

    def retrieve(state: _State) -> dict[str, Any]:
        question = str(state["messages"][-1].text)
        return {"question": question, "passages": store.retrieve(question, agent_id="a", limit=5)}

    def grade(state: _State) -> dict[str, Any]:
        kept = []
        for passage in state["passages"]:
            asked = HumanMessage(f"Retrieved document:\n\n{passage.text}\n\nUser question: {state['question']}")
            if str(grader.invoke([SystemMessage(GRADER), asked]).text) == "yes":
                kept.append(passage)
        return {"passages": kept, "searches_web": len(kept) < len(state["passages"])}

    def transform_query(state: _State) -> dict[str, Any]:
        asked = HumanMessage(f"Here is the initial question:\n\n{state['question']}\n\nFormulate an improved question.")
        return {"question": str(transformer.invoke([SystemMessage(TRANSFORMER), asked]).text)}

    def web_search(state: _State) -> dict[str, Any]:
        return {"passages": [*state["passages"], *web.search(state["question"], limit=3)]}

    def show(state: _State) -> dict[str, Any]:
        last = state["messages"][-1]
        return {"messages": [HumanMessage(f"{_context(state['passages'])}\n\n{last.text}", id=last.id)]}

    graph = StateGraph(_State)
    for node in (retrieve, grade, transform_query, web_search, show):
        graph.add_node(node.__name__, node)
    graph.add_node("generate", create_agent(agent_model, tools=list(tools)))
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "grade")
    graph.add_conditional_edges("grade", lambda state: "transform_query" if state["searches_web"] else "show", ["transform_query", "show"])
    graph.add_edge("transform_query", "web_search")
    graph.add_edge("web_search", "show")
    graph.add_edge("show", "generate")
    graph.add_edge("generate", END)
    return graph.compile()
