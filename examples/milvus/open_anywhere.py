"""The same knowledge on Milvus Lite, a Milvus server, a cluster or Zilliz Cloud: the address alone decides.

python examples/milvus/open_anywhere.py                                    # Milvus Lite, in a file of its own
docker compose -f examples/milvus/compose.yaml up -d --wait                # Milvus standalone, then
MILVUS_URI=http://127.0.0.1:19530 python examples/milvus/open_anywhere.py
MILVUS_URI=<public endpoint> MILVUS_TOKEN=<API key> python examples/milvus/open_anywhere.py    # Zilliz Cloud; a cluster: user:password
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from langchain_core.embeddings import Embeddings

from crag_middleware import CorrectiveRetriever, EmbeddingEvaluator, LocalEmbeddings, open_knowledge

TEXT = "You have 30 days to return a bike for a full refund."


def ask(environment: Mapping[str, str], embeddings: Embeddings, question: str) -> list[str]:
    """What the knowledge at the environment's address says to the question, after a text was put there."""
    with tempfile.TemporaryDirectory() as folder:
        uri = environment.get("MILVUS_URI") or str(Path(folder, "knowledge.db"))
        # "Strong" so that the search below sees the text at once, wherever it is answered; docs/knowledge.md weighs the levels.
        knowledge = open_knowledge(
            uri, embeddings, token=environment.get("MILVUS_TOKEN"), collection="open_anywhere", consistency_level="Strong", timeout_s=30
        )
        knowledge.add_texts([TEXT], agent_id="aurora")
        retriever = CorrectiveRetriever(knowledge, agent_id="aurora", evaluator=EmbeddingEvaluator(embeddings))
        return [document.page_content for document in retriever.invoke(question)]


if __name__ == "__main__":
    print(ask(os.environ, LocalEmbeddings(), "How many days do I have to return a bike?"))
