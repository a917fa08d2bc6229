"""Parts of your own: a retriever, an evaluator and a web search are any objects with the right method.

Each is passed only the keywords that its method accepts, and may be sync, async or both. Run it with `.venv/bin/python examples/own_parts.py`.
"""

import asyncio
from collections.abc import Sequence

from langchain.agents import create_agent

from crag_middleware import CRAGMiddleware, Grade, Passage, explain
from crag_middleware.testing import QuotingChatModel

SHELVES = {"museum": ["Tickets cost 12 euros.", "The museum is closed on Mondays."]}


class Shelf:
    """A retriever over a list: every text of the tenant, in order."""

    def retrieve(self, question: str, *, agent_id: str, limit: int) -> list[Passage]:
        """The tenant's texts."""
        texts = SHELVES.get(agent_id, [])[:limit]
        return [Passage(id=str(place), text=text, source="shelf") for place, text in enumerate(texts)]


class SharedWords:
    """An evaluator that counts the question's words in a passage."""

    def grade(self, question: str, passages: Sequence[Passage]) -> list[Grade]:
        """The share of the question's longer words that stand in the passage."""
        asked = {word.strip("?.,").lower() for word in question.split() if len(word) > 3}
        return [
            Grade(passage_id=p.id, probability=sum(word in p.text.lower() for word in asked) / max(1, len(asked)), label="ungraded")
            for p in passages
        ]


class Noticeboard:
    """A web search with one page, in async form only."""

    async def asearch(self, query: str, *, limit: int) -> list[Passage]:
        """The one page."""
        return [Passage(id="1", text="The tram to the museum runs every 10 minutes.", url="https://example.org/tram", origin="web")]


async def main() -> None:
    """Ask two questions."""
    crag = CRAGMiddleware(Shelf(), agent_id="museum", evaluator=SharedWords(), web_search=Noticeboard())
    agent = create_agent(QuotingChatModel(), middleware=[crag])
    for question in ("Is the museum closed on Mondays?", "How often does the tram run to the museum?"):
        result = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
        print(result["messages"][-1].text)
        print(explain(result["crag"]), end="\n\n")


if __name__ == "__main__":
    asyncio.run(main())
