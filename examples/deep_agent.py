"""A deep agent with the middleware, and one of its subagents for another tenant: `pip install deepagents`, then `python examples/deep_agent.py`.

A deep agent's subagents have none of its middleware: each brings its own, with its own tenant. Give that a `name` of its own, too: what a subagent's state
says is written into the agent's, and a receipt under the same key would take the place of the agent's own.
"""

from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from shop import ToolCallingModel, evaluator, open_shop, say

from crag_middleware import CRAGMiddleware, KnowledgeStore

TASK = {"description": "How many days do I have to return a coffee machine?", "subagent_type": "coffee"}


def build(knowledge: KnowledgeStore, model: BaseChatModel | None = None) -> Any:
    """The agent; its task tool hands matters of coffee to the subagent."""
    return create_deep_agent(
        model or ToolCallingModel(calls={"coffee shop": ("task", TASK)}),
        middleware=[CRAGMiddleware(knowledge, agent_id="aurora", evaluator=evaluator())],
        subagents=[
            {
                "name": "coffee",
                "description": "Knows everything about coffee machines.",
                "system_prompt": "You are the service desk of Borealis Coffee.",
                "tools": [],
                "middleware": [CRAGMiddleware(knowledge, agent_id="borealis", evaluator=evaluator(), name="coffee")],
            }
        ],
    )


def main() -> None:
    """Ask the agent itself, then what it has to hand on."""
    with open_shop() as knowledge:
        agent = build(knowledge)
        for question in ("How many days do I have to return a bike for a refund?", "Ask the coffee shop how long I can return a machine."):
            print(f"{question}\n  {say(agent.invoke({'messages': [('user', question)]}))}")


if __name__ == "__main__":
    main()
