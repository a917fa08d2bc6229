"""A supervisor with subagents of different tenants: `python examples/supervisor.py`.

Each subagent's tenant is given when it is built. A subagent that runs inside a tool has no context of its own, and a tool's arguments are the model's: neither
could be trusted to say whose rows may be seen, and the middleware raises `TenantError` rather than guess.
"""

from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import BaseTool, tool
from shop import ToolCallingModel, evaluator, open_shop, say

from crag_middleware import CRAGMiddleware, KnowledgeStore
from crag_middleware.testing import QuotingChatModel


def specialist(knowledge: KnowledgeStore, agent_id: str, matter: str) -> BaseTool:
    """A subagent as a tool, for one tenant and no other."""
    crag = CRAGMiddleware(knowledge, agent_id=agent_id, evaluator=evaluator())
    agent = create_agent(QuotingChatModel(), middleware=[crag], name=agent_id)

    @tool(f"ask_{agent_id}", description=f"Ask the service desk for {matter}.")
    async def ask(question: str) -> str:
        return say(await agent.ainvoke({"messages": [{"role": "user", "content": question}]}))

    return ask


def build(knowledge: KnowledgeStore) -> Any:
    """The supervisor, whose model chooses among the desks; it has no knowledge of its own."""
    desks = [specialist(knowledge, "aurora", "bikes"), specialist(knowledge, "borealis", "coffee machines")]
    model = ToolCallingModel(
        calls={"bike": ("ask_aurora", {"question": "$question"}), "machine": ("ask_borealis", {"question": "$question"})}
    )
    return create_agent(model, tools=desks)


async def main() -> None:
    """Ask about both shops' goods."""
    with open_shop() as knowledge:
        supervisor = build(knowledge)
        for what in ("bike", "coffee machine"):
            question = f"How many days do I have to return a {what} for a refund?"
            print(f"{question}\n  {say(await supervisor.ainvoke({'messages': [('user', question)]}))}")


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
