"""Shadow mode on a live agent: run it with `.venv/bin/python examples/shadow.py`.

The agent answers from what its model remembers, and is left as it is: with the middleware beside it, its requests, answers and streams stay what they were.
What corrective retrieval would have done is written to a file, one receipt a line, and added up in the end, as `crag shadow report FILE` does it.
"""

import json
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel

from crag_middleware import CRAGMiddleware, EmbeddingEvaluator, LocalEmbeddings, WordClaimChecker, open_knowledge
from crag_middleware.shadow_report import read_receipts, shadow_report

DOCUMENTS = ["Refunds are possible within 30 days of delivery.", "The frame has a warranty of 5 years."]
TURNS = {
    "Within how many days are refunds possible?": "Refunds are possible within 60 days of delivery.",
    "How long is the warranty of the frame?": "The frame has a warranty of 5 years.",
    "Hello!": "Hello! How can I help?",
}


class Receipts:
    """Appends receipts to a file, a line each, from whatever thread they come."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.written = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __call__(self, receipt: dict[str, Any]) -> None:
        """Writes a receipt."""
        with self._lock, self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(receipt, ensure_ascii=False) + "\n")
        self.written.release()


def agent(middleware: Sequence[CRAGMiddleware] = ()) -> Any:
    """The live agent: its model remembers, wrongly in one case."""
    return create_agent(FakeListChatModel(responses=list(TURNS.values())), middleware=middleware)


def answers(live: Any) -> list[str]:
    """What users get."""
    return [live.invoke({"messages": [("user", question)]})["messages"][-1].text for question in TURNS]


def main() -> None:
    """Ask the agent with the middleware in its shadow, and without it; then see what it would have done."""
    embeddings = LocalEmbeddings()
    with tempfile.TemporaryDirectory() as folder:
        knowledge = open_knowledge(str(Path(folder, "knowledge.db")), embeddings)
        knowledge.add_texts(DOCUMENTS, agent_id="support")
        receipts = Receipts(Path(folder, "receipts.jsonl"))
        crag = CRAGMiddleware(
            knowledge,
            agent_id="support",
            evaluator=EmbeddingEvaluator(embeddings),
            claim_checker=WordClaimChecker(),
            mode="shadow",
            receipt_sink=receipts,
        )

        shadowed = answers(agent([crag]))
        for _ in TURNS:  # turns end without waiting for their receipts
            receipts.written.acquire(timeout=60)

        print(f"the same answers as without it: {shadowed == answers(agent())}\n")
        with receipts.file.open(encoding="utf-8") as lines:
            found = shadow_report(read_receipts(lines, where=receipts.file.name))
        print(found.all)
        print(f"\nwould have been flagged: {len(found.flagged)} of {found.all.turns}")


if __name__ == "__main__":
    main()
