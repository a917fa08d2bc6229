"""Metrics for Prometheus, on loopback: `.venv/bin/python examples/prometheus.py [--serve]`; needs opentelemetry-exporter-prometheus.

Three turns are asked; then the program reads its own metrics page, as Prometheus would, and prints what is there of this package. With `--serve` the page
stays up until Ctrl-C. Spans work in the same way: give the process a tracer provider with an exporter.
"""

import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

from langchain.agents import create_agent
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from crag_middleware import CRAGMiddleware, EmbeddingEvaluator, LocalEmbeddings, OpenTelemetry, open_knowledge
from crag_middleware.testing import QuotingChatModel

DOCUMENTS = ["Refunds are possible within 30 days of delivery.", "The frame has a warranty of 5 years."]
QUESTIONS = ["Within how many days are refunds possible?", "Which planet has the most moons?", "Hello!"]


def ask(folder: str, telemetry: OpenTelemetry) -> None:
    """Three turns of an agent whose middleware counts them."""
    embeddings = LocalEmbeddings()
    knowledge = open_knowledge(str(Path(folder, "knowledge.db")), embeddings)
    knowledge.add_texts(DOCUMENTS, agent_id="support")
    crag = CRAGMiddleware(knowledge, agent_id="support", evaluator=EmbeddingEvaluator(embeddings), telemetry=telemetry)
    agent = create_agent(QuotingChatModel(), middleware=[crag])
    for question in QUESTIONS:
        agent.invoke({"messages": [{"role": "user", "content": question}]})


def main() -> None:
    """Count, serve, and read what is served."""
    telemetry = OpenTelemetry(meter_provider=MeterProvider([PrometheusMetricReader()]))
    server, _ = start_http_server(0, "127.0.0.1")
    address = f"http://127.0.0.1:{server.server_port}/metrics"
    with tempfile.TemporaryDirectory() as folder:
        ask(folder, telemetry)
    with urllib.request.urlopen(address) as page:
        lines = page.read().decode().splitlines()
    print("\n".join(line for line in lines if line.startswith(("crag_", "gen_ai_")) and "_bucket" not in line and "_created" not in line))
    if "--serve" in sys.argv[1:]:
        print(f"\n{address} until Ctrl-C")
        threading.Event().wait()
    server.shutdown()


if __name__ == "__main__":
    main()
