"""A chatbot for two companies in one process, offline and without keys: `python examples/chat_service/serve.py`, then open the printed address.

The parts are those of examples/demo.py: the same documents, models and pretend web, and the same keys that put real services in their places. Each
company has a token that is made anew at each start. They stand behind the `#` of the printed address, which browsers keep to themselves: whoever has
the address may ask.
"""

import argparse
import logging
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from langchain.agents import create_agent
from langgraph.checkpoint.base import BaseCheckpointSaver

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, its own folder would stand there

from chat_service.access import Tenant, Tokens
from chat_service.app import create_app
from chat_service.turns import Caller
from demo import choose_model, choose_web, name_of, open_documents

from crag_middleware import CRAGMiddleware, CRAGSettings, LocalEmbeddings, WordClaimChecker

HOME = Path(__file__).resolve().parents[2] / ".demo" / "chat_service"
TENANTS = [
    Tenant(
        "aurora",
        "Aurora Bikes",
        {
            "en": (
                "How many days do I have to return an order for a refund?",
                "What does the frame's warranty cover?",
                "Which planet has the most moons?",
            ),
            "zh": ("多少天内可以退货？", "电池可以带上飞机吗？", "门店几点开门？"),
        },
    ),
    Tenant(
        "borealis",
        "Borealis Coffee",
        {
            "en": (
                "How many days do I have to return an order for a refund?",
                "How often do I descale the machine?",
                "What does a subscription cost?",
            ),
            "zh": ("多少天内可以退款？", "咖啡机多久除垢一次？", "太阳系哪颗行星的卫星最多？"),
        },
    ),
]
PLAIN = "Answer in plain text without Markdown, in the language of the question."


def agent_maker(model: Any, crag: CRAGMiddleware) -> Callable[[BaseCheckpointSaver[str]], Any]:
    """Makes the agent once its checkpointer is there."""
    return lambda saver: create_agent(model, system_prompt=PLAIN, middleware=[crag], context_schema=Caller, checkpointer=saver)


def main() -> None:
    """Set up the parts and serve until interrupted."""
    parser = argparse.ArgumentParser(description="A multi-tenant chatbot on this machine, for two sample companies.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument(
        "--folder", type=Path, default=HOME, help="where documents and conversations are kept (default: .demo/chat_service)"
    )
    given = parser.parse_args()
    logging.getLogger("jieba").setLevel(logging.WARNING)
    try:
        listening = socket.create_server(("127.0.0.1", given.port))
    except (OSError, OverflowError) as error:
        parser.error(f"port {given.port} can't be used ({error}); choose another one, or 0 for a free one")
    given.folder.mkdir(parents=True, exist_ok=True)
    embeddings = LocalEmbeddings()
    knowledge, made = open_documents(embeddings, given.folder)
    model, evaluator = choose_model(embeddings)
    tokens = {secrets.token_urlsafe(): tenant for tenant in TENANTS}
    with choose_web() as (web_search, web):
        crag = CRAGMiddleware(
            knowledge,
            evaluator=evaluator,
            web_search=web_search,
            claim_checker=WordClaimChecker(),
            settings=CRAGSettings(receipt_detail="full"),  # the page shows the passage around a cited sentence
        )
        app = create_app(agent_maker(model, crag), knowledge, Tokens(tokens), given.folder / "conversations.db")
        print(f"knowledge  {made}\nmodel      {name_of(model)}\nweb        {web}")
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        print(f"\nOpen       {address}#{urlencode([('token', token) for token in tokens])}\nStop       Ctrl+C", flush=True)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)).run([listening])


if __name__ == "__main__":
    main()
