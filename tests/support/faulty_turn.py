"""A whole turn whose every dependency is reached over a socket, one of them at fault."""

import asyncio
import time
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatResult
from langchain_deepseek import ChatDeepSeek
from langchain_openai import OpenAIEmbeddings
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
from pydantic import SecretStr

from crag_middleware import (
    BochaWebSearch,
    ChatModelClaimChecker,
    ChatModelEvaluator,
    ChatModelRewriter,
    CRAGMiddleware,
    CRAGSettings,
    ModelReranker,
    TavilyWebSearch,
    WebSearchChain,
)
from crag_middleware.adapters.web_attempt import Clock
from tests.support.faulty import KNOWN, NEVER_ENDS, QUESTION, SECRET, FaultyServer, ForeignError, HttpReranker
from tests.support.milvus import TENANT, insert, make_collection, open_store

TENANT_ID = "tenant-7"
HISTORY = [HumanMessage("What is the Zephyr gateway?"), AIMessage("It sits in front of your services."), HumanMessage(QUESTION)]
ANSWER = f"{KNOWN.removesuffix('.')} [1]."
DEADLINES = {
    "milvus": "retrieve_timeout_s",
    "embeddings": "retrieve_timeout_s",
    "evaluator": "grade_timeout_s",
    "rewriter": "rewrite_timeout_s",
    "tavily": "web_timeout_s",
    "bocha": "web_timeout_s",
    "reranker": "rerank_timeout_s",
    "claim-checker": "claim_timeout_s",
}
"""The setting that bounds a dependency."""

PLENTY_S = 30.0
"""Nobody who is well takes so long, however busy the machine is."""


QUICK = Clock(sleep=lambda seconds: time.sleep(seconds / 20), asleep=lambda seconds: asyncio.sleep(seconds / 20), chance=lambda: 0.0)
"""Pauses between repetitions are short."""


def _clients() -> dict[str, Any]:
    """HTTP clients of OpenAI's that read no certificates, which takes longer than a turn."""
    return {"http_client": DefaultHttpxClient(verify=False), "http_async_client": DefaultAsyncHttpxClient(verify=False)}


class ForeignModel(ChatDeepSeek):
    """A chat model whose client breaks in a way of its own."""

    def _generate(self, *arguments: Any, **keywords: Any) -> ChatResult:
        raise ForeignError

    async def _agenerate(self, *arguments: Any, **keywords: Any) -> ChatResult:
        raise ForeignError


class ForeignWeb:
    """A web search that breaks in a way of its own."""

    def search(self, query: str) -> Any:
        raise ForeignError

    async def asearch(self, query: str) -> Any:
        raise ForeignError


class ForeignEmbeddings(Embeddings):
    """Embeddings that break in a way of their own."""

    def embed_query(self, text: str) -> list[float]:
        raise ForeignError

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise ForeignError


class ForeignReranker(HttpReranker):
    """A reranker that breaks in a way of its own."""

    url: str = ""

    def compress_documents(self, *arguments: Any, **keywords: Any) -> Any:
        raise ForeignError

    async def acompress_documents(self, *arguments: Any, **keywords: Any) -> Any:
        raise ForeignError


class ForeignKnowledge:
    """A retriever that breaks in a way of its own."""

    def retrieve(self, question: str) -> Any:
        raise ForeignError

    async def aretrieve(self, question: str) -> Any:
        raise ForeignError


def fill(uri: str) -> None:
    """The tenant's knowledge, and another tenant's."""
    rows = [
        {"id": "known", "text": KNOWN, "agent_id": TENANT_ID},
        {"id": "beside", "text": "The Zephyr gateway is written in Go.", "agent_id": TENANT_ID},
        {"id": "foreign", "text": "The Zephyr gateway listens on port 1 elsewhere.", "agent_id": "another"},
    ]
    insert(make_collection(uri, "k", {"agent_id": TENANT}), "k", rows)


class Parts:
    """Every dependency of a turn on a server's addresses, one of them with a fault.

    Args:
        server: Plays all services.
        faulty: The dependency at fault, if any but Milvus.
        fault: The fault.
        well: Parts without a fault, whose clients serve for all others.
    """

    def __init__(self, server: FaultyServer, faulty: str = "", fault: str = "none", *, well: "Parts | None" = None) -> None:
        self._server, self._faulty, self._fault, self._well = server, faulty, fault, well
        self._made: dict[str, Any] = {}

    def part(self, service: str) -> Any:
        """The client of a service, made once."""
        if self._well and service != self._faulty:
            return self._well.part(service)
        if service not in self._made:
            makers: dict[str, Any] = {"embeddings": self.embeddings, "reranker": self.reranker, "tavily": self.web, "bocha": self.web}
            self._made[service] = makers[service]() if service in makers else self.chat(service)
        return self._made[service]

    def address(self, service: str) -> str:
        return self._server.at(service, self._fault if service == self._faulty else "none")

    def breaks(self, service: str) -> bool:
        """Whether the client itself breaks, without any socket."""
        return (service, "foreign exception") == (self._faulty, self._fault)

    def retries(self, service: str) -> int:
        return int((service, "success after a retry") == (self._faulty, self._fault))

    def chat(self, service: str) -> ChatDeepSeek:
        kind = ForeignModel if self.breaks(service) else ChatDeepSeek
        url, key = f"{self.address(service)}/v1", SecretStr(SECRET)
        return kind(model="deepseek-flash", api_key=key, base_url=url, max_retries=self.retries(service), **_clients())

    def web(self) -> Any:
        service = "bocha" if self._faulty == "bocha" else "tavily"
        kind = BochaWebSearch if service == "bocha" else TavilyWebSearch
        provider = ForeignWeb() if self.breaks(service) else kind(api_key=SECRET, api_base_url=self.address(service))
        return WebSearchChain(provider, clock=QUICK)

    def embeddings(self) -> Embeddings:
        if self.breaks("embeddings"):
            return ForeignEmbeddings()
        url, key = f"{self.address('embeddings')}/v1", SecretStr(SECRET)
        options: dict[str, Any] = {"check_embedding_ctx_length": False, "max_retries": self.retries("embeddings"), **_clients()}
        return OpenAIEmbeddings(model="words", api_key=key, base_url=url, **options)

    def reranker(self) -> ModelReranker:
        return ModelReranker(ForeignReranker() if self.breaks("reranker") else HttpReranker(url=self.address("reranker")))

    def middleware(self, knowledge: str | ForeignKnowledge, *, patience_s: float = 0.2, **settings: Any) -> CRAGMiddleware:
        """The middleware over the knowledge.

        Args:
            knowledge: Milvus' address, or a retriever.
            patience_s: Deadline of the dependency at fault, where nothing else ends a call.
            settings: Further settings.
        """
        limits = dict.fromkeys(DEADLINES.values(), PLENTY_S)
        if self._fault in NEVER_ENDS and self._faulty in DEADLINES:
            limits[DEADLINES[self._faulty]] = 5 * patience_s if self._faulty == "embeddings" else patience_s
        return CRAGMiddleware(
            open_store(knowledge, "k", embedding_function=[self.part("embeddings")]) if isinstance(knowledge, str) else knowledge,
            TENANT_ID,
            evaluator=ChatModelEvaluator(self.part("evaluator")),
            rewriter=ChatModelRewriter(self.part("rewriter")),
            claim_checker=ChatModelClaimChecker(self.part("claim-checker")),
            web_search=self.part("bocha" if self._faulty == "bocha" else "tavily"),
            reranker=self.part("reranker"),
            settings=CRAGSettings(web_on_evaluator_failure=True, web_on_retrieval_failure=True, **{**limits, **settings}),
        )
