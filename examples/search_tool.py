"""A search tool for the model beside the automatic correction: `python examples/search_tool.py`.

The middleware looks the question up before the model is asked; with the tool the model may look up what it finds out that it needs. The tool's tenant comes
from the runtime context, which no model can write, and it leaves out what stands in the turn's evidence already.
"""

from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, tool
from shop import Caller, ToolCallingModel, evaluator, open_shop, say

from crag_middleware import CorrectiveRetriever, CRAGMiddleware, KnowledgeStore


def search_tool(retriever: CorrectiveRetriever) -> BaseTool:
    """The retriever as a tool."""

    @tool
    async def search_handbook(query: str, runtime: ToolRuntime[Caller, Any]) -> str:
        """Search the handbook again, for something that the sources in the user's message do not say."""
        found = await retriever.acorrect(query, agent_id=runtime.context.agent_id)
        shown = {source["id"] for source in runtime.state.get("crag", {}).get("sources", ())}
        return "\n\n".join(d.page_content for d in found.documents if d.id not in shown) or "Nothing new was found."

    return search_handbook


def build(knowledge: KnowledgeStore) -> Any:
    """The agent with both."""
    retriever = CorrectiveRetriever(knowledge, evaluator=evaluator(), k=3)
    crag = CRAGMiddleware(knowledge, evaluator=evaluator())
    model = ToolCallingModel(calls={"battery": ("search_handbook", {"query": "How long is the warranty of a battery?"})})
    return create_agent(model, tools=[search_tool(retriever)], middleware=[crag], context_schema=Caller)


async def main() -> None:
    """Ask two things at once."""
    with open_shop() as knowledge:
        question = "How many days do I have to return a bike for a refund? My battery is dead."
        print(say(await build(knowledge).ainvoke({"messages": [("user", question)]}, context=Caller("aurora"))))


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
