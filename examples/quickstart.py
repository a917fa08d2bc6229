"""The README's example without keys: run it with `.venv/bin/python examples/quickstart.py`."""

import tempfile
from pathlib import Path

from langchain.agents import create_agent

from crag_middleware import CRAGMiddleware, EmbeddingEvaluator, LocalEmbeddings, explain, open_knowledge
from crag_middleware.testing import QuotingChatModel

embeddings = LocalEmbeddings()

with tempfile.TemporaryDirectory() as folder:
    knowledge = open_knowledge(str(Path(folder, "knowledge.db")), embeddings)
    knowledge.add_texts(["Refunds are possible within 30 days of delivery.", "The frame has a warranty of 5 years."], agent_id="support")

    crag = CRAGMiddleware(knowledge, agent_id="support", evaluator=EmbeddingEvaluator(embeddings))
    agent = create_agent(QuotingChatModel(), middleware=[crag])
    result = agent.invoke({"messages": [{"role": "user", "content": "Within how many days are refunds possible?"}]})

    print(result["messages"][-1].text)
    print(explain(result["crag"]))
