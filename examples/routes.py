"""An agent that searches Milvus, a graph and an HTTP service at the same time: run it with `.venv/bin/python examples/routes.py`.

It needs no key and no network, and `pip install ladybug`. `NEO4J_URI` (with `NEO4J_USERNAME` and `NEO4J_PASSWORD`) puts a Neo4j database of yours in the
graph's place.
"""

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from routes_graph import Graph, choose_graph
from routes_orders import Orders, start_order_service

from crag_middleware import CRAGMiddleware, EmbeddingEvaluator, LocalEmbeddings, Route, open_knowledge
from crag_middleware.testing import QuotingChatModel

DOCUMENTS = [
    "You have 30 days to return an order for a full refund; the bike must not have been ridden more than 50 km.",
    "The frame of every Aurora bike carries a warranty of 5 years. Batteries and motors are covered for 2 years.",
    "自送达之日起30天内可以退货并获得全额退款，车辆骑行里程不得超过50公里。",
]
QUESTIONS = [
    "How many days do I have to return an order for a refund?",
    "Which company supplies the battery of the Aurora City?",
    "哪些极光电动车使用504电池组？",
    "When does order A-1042 arrive?",
]


async def main() -> None:
    """Ask four questions, each of which another place can answer."""
    logging.getLogger("jieba").setLevel(logging.WARNING)
    embeddings = LocalEmbeddings()
    graph = choose_graph(embeddings)
    with tempfile.TemporaryDirectory() as folder, start_order_service() as url:
        knowledge = open_knowledge(str(Path(folder, "knowledge.db")), embeddings)
        knowledge.add_texts(DOCUMENTS, agent_id="aurora")
        routes = [
            Route("graph", graph.search if isinstance(graph, Graph) else graph, public=True, trust=0.9, timeout_s=3),
            Route("orders", Orders(url).search, weight=2, timeout_s=2),
        ]
        crag = CRAGMiddleware(knowledge, agent_id="aurora", evaluator=EmbeddingEvaluator(embeddings), routes=routes)
        agent = create_agent(QuotingChatModel(), middleware=[crag])
        for question in QUESTIONS:
            result = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
            print(f"\n{question}\n  {result['messages'][-1].text}")
            show_routes(result["crag"])


def show_routes(receipt: dict[str, Any]) -> None:
    """Which route brought how much, and which of that was injected."""
    for route in receipt["routes"]:
        found = route["reason"] or f"{route['found']} found"
        print(f"  {route['route']:<10} {found}")
    for passage in receipt["passages"]:
        if passage["number"] is not None:
            places = ", ".join(f"{hit['route']} (rank {hit['rank']})" for hit in passage["hits"])
            print(f"  [{passage['number']}] from {places}")


if __name__ == "__main__":
    asyncio.run(main())
