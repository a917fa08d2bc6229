"""Every Python block of the documents does what it says: it runs, page by page, as a reader would paste it.

The blocks of a page share their names, in order. What a page takes as given (`knowledge`, `model`, `my_chat_model`, ...) are real parts that need no
network; the services that it names are a chat server on loopback.
"""

import ast
import asyncio
import json
import logging
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from inspect import CO_COROUTINE
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_milvus import Milvus
from pymilvus import DataType

import crag_middleware
from crag_middleware import CRAGMiddleware, EmbeddingEvaluator, open_knowledge
from crag_middleware.adapters.given import as_evaluator, evaluator_key
from crag_middleware.testing import QuotingChatModel, ScriptedChatModel, ScriptedWebSearch
from crag_middleware.types import Passage
from tests.support.chat_server import serve_chat
from tests.support.claims import passages_in
from tests.support.milvus import TENANT, WordEmbeddings, WordSparse, make_collection, open_store
from tests.support.pdf import make_pdf
from tests.support.rerankers import WordEncoder

ROOT = Path(__file__).resolve().parent.parent
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if "```python" in page.read_text(encoding="utf-8")]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

NOT_RUN = {
    "HuggingFaceCrossEncoder(": "downloads a model of 2 GB",
    'agent = create_agent("deepseek:deepseek-flash", tools=[]': "runs as a program of its own in test_docs.py",
}
"""What a block that can't run offline contains, and why it can't."""

if (sys.platform, platform.machine()) != ("linux", "x86_64"):
    NOT_RUN["E5Embeddings("] = "runs on Linux on x86-64 only"

SLOW = {"measuring.md"}
"""Pages that measure on whole data sets, for half a minute."""

STAND_INS = {
    '"splade": my_splade': '"words": my_splade',  # the field of the collection at hand
    "http://localhost:19530": "./server.db",  # a Milvus Lite file in the place of a server
    '{"messages": [...]}': '{"messages": [("user", "How long is the warranty?")]}',
}
"""What is put in the place of a part of a block."""

TEXTS = ["The warranty is two years.", "Refunds are possible within 30 days of delivery.", "图书馆周末照常开放"]


@dataclass(frozen=True)
class Caller:
    agent_id: str


class Found(BaseRetriever):
    """A retriever of somebody's documents, each of which names its tenant."""

    documents: list[Document]

    @classmethod
    def from_documents(cls, documents: list[Document], k: int) -> "Found":
        return cls(documents=documents[:k])

    @classmethod
    def from_existing_index(cls, embeddings: Any, *, index_name: str) -> Any:
        return SimpleNamespace(as_retriever=lambda: cls(documents=[Document(f"{index_name} of {type(embeddings).__name__}")]))

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return self.documents


class Given:
    """What the pages take as given; what needs a store is made when a block first names it."""

    Caller, Milvus, BM25Retriever, Neo4jVector = Caller, Milvus, Found, Found
    create_agent = staticmethod(create_agent)
    question = "How long is the warranty?"
    embeddings = WordEmbeddings()
    model = QuotingChatModel()
    my_chat_model = ScriptedChatModel(replies=["{}"])
    search = ScriptedWebSearch()
    cross_encoder = encoder = WordEncoder()
    my_splade = WordSparse()
    graph_retriever = my_retriever = Found(documents=[Document("The battery is a PowerPack.", metadata={"agent_id": "support"})])
    by_tenant = MappingProxyType({"support": graph_retriever.documents})
    driver = SimpleNamespace(execute_query=lambda query, **parameters: SimpleNamespace(records=[]))

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "given.db")

    @cached_property
    def knowledge(self) -> Any:
        knowledge = open_knowledge(self.uri, self.embeddings)
        for agent_id in ("support", "aurora"):
            knowledge.add_texts(TEXTS, agent_id=agent_id)
        return knowledge

    @cached_property
    def store(self) -> Milvus:
        """Of a collection with a tenant column, a JSON column for the way without one, and a sparse field with an embedder of its own."""
        make_collection(self.uri, "store", {"agent_id": TENANT, "metadata": (DataType.JSON, {"nullable": True})}, client_sparse=True)
        return open_store(self.uri, "store", client_sparse=True)

    @property
    def tickets_store(self) -> Milvus:
        return self.store

    @cached_property
    def crag(self) -> CRAGMiddleware:
        return CRAGMiddleware(self.knowledge, agent_id="support", evaluator=EmbeddingEvaluator(self.embeddings))

    @cached_property
    def agent(self) -> Any:
        return create_agent(self.model, middleware=[self.crag])

    @cached_property
    def result(self) -> Any:
        return self.agent.invoke({"messages": [("user", self.question)]})

    @staticmethod
    def keep(receipt: dict[str, Any]) -> None:
        json.dumps(receipt)

    @staticmethod
    def search_status_page(question: str) -> list[Passage]:
        return [Passage(id="status", text="All systems work.", source="status")]


def blocks(page: Path) -> Iterator[tuple[str, int]]:
    """Each block of a page that can run, and the line of its first line."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        code = found[1]
        if not any(part in code for part in NOT_RUN):
            for part, stand_in in STAND_INS.items():
                code = code.replace(part, stand_in)
            yield code, text.count("\n", 0, found.start(1)) + 1


def run(code: str, line: int, page: Path, names: dict[str, Any], given: Given) -> None:
    """Runs a block; a traceback names the page and the line in it."""
    tree = ast.increment_lineno(ast.parse(code), line - 1)
    for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - names.keys():
        if name in crag_middleware.__all__:
            names[name] = getattr(crag_middleware, name)
        elif hasattr(given, name):
            names[name] = getattr(given, name)
    compiled = compile(tree, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & CO_COROUTINE:
        asyncio.run(eval(compiled, names))
    else:
        exec(compiled, names)


def relevant(asked: Any) -> str:
    """The reply of a chat model that calls every passage relevant."""
    count = len(passages_in(asked))
    return json.dumps({"grades": [{"passage": n, "label": "relevant", "confidence": 0.97, "reason": ""} for n in range(1, count + 1)]})


def write_files(folder: Path) -> None:
    """The files that the pages name."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "docs").mkdir()
    (folder / "docs" / "warranty.md").write_text("# Warranty\n\nThe warranty is two years.\n")
    (folder / "handbook.pdf").write_bytes(make_pdf([["The warranty is two years."]]))
    (folder / "support.jsonl").write_text(json.dumps({"id": "one", "text": TEXTS[0], "metadata": {"source": "warranty.md"}}))
    old = Milvus(WordEmbeddings(), connection_args={"uri": str(folder / "old.db")}, text_field="body")
    old.add_texts(TEXTS, ids=["1", "2", "3"])
    shipped = json.loads(next((ROOT / "crag_middleware" / "calibrations").glob("chatmodel*.json")).read_text())
    key = evaluator_key(as_evaluator(None))
    for name, tenant in {"support": None, "any": None, "for_one_tenant": "aurora"}.items():
        calibration = shipped | {"evaluator": key.evaluator, "model": key.model, "prompt": key.prompt, "tenant": tenant}
        (folder / f"{name}.json").write_text(json.dumps(calibration))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    """A folder with what the pages name, where every service that they name is on loopback."""
    monkeypatch.chdir(tmp_path)
    turns = logging.getLogger("crag_middleware.turn")
    monkeypatch.setattr(turns, "handlers", list(turns.handlers))
    monkeypatch.setattr(turns, "level", turns.level)
    with serve_chat(replies=[relevant]) as chat:
        for provider in ("DEEPSEEK", "OPENAI"):
            monkeypatch.setenv(f"{provider}_API_KEY", "test")
            monkeypatch.setenv(f"{provider}_API_BASE", chat.url)
        for service in ("TAVILY", "BOCHA"):
            monkeypatch.setenv(f"{service}_API_KEY", "test")
        monkeypatch.delenv("CRAG_MODEL", raising=False)
        write_files(tmp_path)
        yield Given(tmp_path)


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW), id=page.name) for page in PAGES])
def test_the_python_of_a_page_runs_in_order(page: Path, desk: Given) -> None:
    names: dict[str, Any] = {"__name__": "page"}

    for code, line in blocks(page):
        run(code, line, page, names, desk)


def test_a_block_that_does_not_run_is_still_there() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert [part for part in [*NOT_RUN, *STAND_INS] if part not in text] == []
