"""Two knowledge bases on one agent: `python examples/two_knowledge_bases.py`.

Two instances, told apart by `name`, each with a collection, settings and a receipt of its own; citation numbers run on from the first to the second. Where
one verdict over both is wanted, search both as routes of one instance instead (docs/routes.md).
"""

import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from shop import evaluator, fill, say

from crag_middleware import CRAGMiddleware, CRAGSettings, KnowledgeStore
from crag_middleware.testing import QuotingChatModel

LAW = {"aurora": ["By law a seller is liable for 2 years for defects that a bike had when it was delivered. The buyer may ask for repair."]}


def build(handbook: KnowledgeStore, law: KnowledgeStore) -> Any:
    """The agent over the shop's handbook and a book of law."""
    return create_agent(
        QuotingChatModel(),
        middleware=[
            CRAGMiddleware(handbook, agent_id="aurora", evaluator=evaluator(), name="handbook"),
            CRAGMiddleware(law, agent_id="aurora", evaluator=evaluator(), name="law", settings=CRAGSettings(max_context_tokens=800)),
        ],
    )


def main() -> None:
    """Ask what both books have a word on."""
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder, "books.db"))
        agent = build(fill(uri, collection="handbook"), fill(uri, LAW, collection="law"))
        result = agent.invoke({"messages": [("user", "For how many years is a bike covered against defects?")]})
        print(say(result))
        for name in ("handbook", "law"):
            receipt = result[f"crag_{name}"]
            print(f"{name}: {receipt['verdict']}, sources {[source['number'] for source in receipt['sources']]}")


if __name__ == "__main__":
    main()
