"""An agent that exists today, and the same with one line more: `python examples/one_line.py`."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from shop import ToolCallingModel, evaluator, open_shop, say

from crag_middleware import CRAGMiddleware, KnowledgeStore

QUESTION = {"messages": [{"role": "user", "content": "Where is order 17, and how many days do I have to return the bike for a refund?"}]}
MODEL = ToolCallingModel(calls={"order": ("order_state", {"number": 17})})


@tool
def order_state(number: int) -> str:
    """Where an order is."""
    return f"Order {number} arrived yesterday."


def before() -> Any:
    """The agent as it is."""
    return create_agent(
        MODEL,
        tools=[order_state],
        system_prompt="You are the service desk of Aurora Bikes.",
    )


def after(knowledge: KnowledgeStore) -> Any:
    """The agent with the line."""
    return create_agent(
        MODEL,
        tools=[order_state],
        system_prompt="You are the service desk of Aurora Bikes.",
        middleware=[CRAGMiddleware(knowledge, agent_id="aurora", evaluator=evaluator())],
    )


def main() -> None:
    """Ask both."""
    with open_shop() as knowledge:
        print("before:", say(before().invoke(QUESTION)))
        print("after: ", say(after(knowledge).invoke(QUESTION)))


if __name__ == "__main__":
    main()
