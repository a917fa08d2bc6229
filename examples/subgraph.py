"""An agent with the middleware as a subgraph, one node of a graph of one's own: `python examples/subgraph.py`.

The graph's context reaches the agent, and with it the tenant. The agent's receipt is one of its outputs, so a parent whose state has `crag` gets it.
"""

from typing import Any, Literal, NotRequired

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from shop import Caller, evaluator, open_shop, say

from crag_middleware import CRAGMiddleware, KnowledgeStore
from crag_middleware.testing import QuotingChatModel


class State(MessagesState):
    """The parent's state: the messages, and the receipt of the agent inside."""

    crag: NotRequired[dict[str, Any]]


def choose(state: State) -> Literal["desk", "closed"]:
    """Whom a message is for."""
    return "closed" if "phone" in state["messages"][-1].text else "desk"


def closed(state: State) -> State:
    """Says that nobody is there."""
    return {"messages": [AIMessage("Nobody answers the phone today.")]}


def build(knowledge: KnowledgeStore) -> Any:
    """The graph: the agent is its node `desk`."""
    crag = CRAGMiddleware(knowledge, evaluator=evaluator())
    desk = create_agent(QuotingChatModel(), middleware=[crag], context_schema=Caller)
    graph = StateGraph(State, context_schema=Caller).add_node("desk", desk).add_node("closed", closed)
    return graph.add_conditional_edges(START, choose).compile()


def main() -> None:
    """Ask for both shops."""
    with open_shop() as knowledge:
        graph = build(knowledge)
        for agent_id in ("aurora", "borealis"):
            result = graph.invoke({"messages": [("user", "How many days do I have to return it for a refund?")]}, context=Caller(agent_id))
            print(f"{agent_id}: {say(result)} ({result['crag']['verdict']})")


if __name__ == "__main__":
    main()
