"""One HTTP server that plays every service of a turn, each with every fault: what is asked of it stands in the path, `/<service>/<fault>/<cell>/...`.

with FaultyServer() as server:
    ChatDeepSeek(base_url=server.at("evaluator", "503") + "/v1", ...)
"""

import itertools
import json
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
from langchain_core.documents import BaseDocumentCompressor, Document

from tests.support.claims import checks_each, passages_in
from tests.support.milvus import WordEmbeddings
from tests.support.rerankers import overlap
from tests.support.web_server import Answer, Handler, WebServer, bocha_page, bomb, dripping, page, raw, results, silent

SECRET = "sk-never-to-be-seen"
QUESTION = "Which port does it listen on?"
STANDALONE = "Which port does the Zephyr gateway listen on?"
KNOWN = "The Zephyr gateway listens on port 9100."
PUBLISHED = "Zephyr gateway release notes: its port can be changed in the file zephyr.toml."
PRIVATE = (SECRET, "Zephyr", "zephyr.toml", "tenant-7", "listen on")
"""What no log line may hold."""

HTTP_FAULTS = ("hang", "slow", "reset", "garbage", "wrong type", "401", "429", "503", "empty", "huge", "success after a retry")
FAULTS = ("refused", *HTTP_FAULTS, "foreign exception")
NEVER_ENDS = frozenset({"hang", "slow"})
"""Faults that only a deadline ends."""


class ForeignError(Exception):
    """Of a class that nobody here knows; its text is private."""

    def __init__(self) -> None:
        super().__init__(f"{SECRET}: {STANDALONE}")


class _Handler(Handler):
    """Says that it closes each connection, so that no client sends a second request into one that is about to end."""

    def end_headers(self) -> None:
        self.send_header("Connection", "close")
        super().end_headers()


class FaultyServer(WebServer):
    """The server; everything it is asked for stands in `requests`.

    Attributes:
        waiting: How many connections with the fault `watch` are open: they are never answered, and counted until the client closes them.
    """

    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(self._route)
        self.RequestHandlerClass = _Handler
        self.waiting = 0
        self._cells = itertools.count()
        self._failed: set[str] = set()
        self._lock = threading.Lock()

    def at(self, service: str, fault: str = "none") -> str:
        """An address of this service that has this fault, and that nobody else is given."""
        return (
            f"http://127.0.0.1:{refusing_port()}"
            if fault == "refused"
            else f"{self.url}/{service}/{fault.replace(' ', '-')}/{next(self._cells)}"
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients may go away in the middle of their requests."""

    def _route(self, handler: Handler) -> None:
        _, service, fault, cell, *_ = handler.path.split("/")
        healthy = SERVICES[service]
        if fault == "success-after-a-retry":
            fault = "none" if cell in self._failed else "503"
            self._failed.add(cell)
        if fault == "watch":
            self._watch(handler)
        elif fault == "huge" and service in ("tavily", "bocha"):
            _BEYOND_ALL(handler)  # more than `MAX_REPLY_BYTES`
        else:
            ANSWERS.get(fault, healthy)(handler)

    def _watch(self, handler: Handler) -> None:
        with self._lock:
            self.waiting += 1
        while not self.closing.is_set() and not select.select([handler.connection], [], [], 0.02)[0]:
            pass  # Nothing more can come but the end.
        with self._lock:
            self.waiting -= 1


def refusing_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _reset(handler: Handler) -> None:
    """Half an answer, then a reset."""
    handler.reply(200, b'{"half": [', length=5000)
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _status(code: int) -> Answer:
    """A refusal that quotes the key and what was asked, as rude servers do, and that may be asked again at once."""

    def answer(handler: Handler) -> None:
        said = {"error": {"message": f"{handler.headers.get('Authorization')}: {json.dumps(handler.body)}", "type": "x", "code": None}}
        handler.reply(code, json.dumps(said).encode(), Retry_After="0", retry_after_ms="1")

    return answer


ANSWERS: Mapping[str, Answer] = {
    "hang": silent(10),
    "slow": dripping(3),
    "reset": _reset,
    "garbage": raw(b"\x00\xff\xfe<html>\x80 not JSON"),
    "wrong-type": raw(b'{"choices": 7, "results": {"a": 1}, "data": "x", "object": 3, "code": 200}'),
    "401": _status(401),
    "429": _status(429),
    "503": _status(503),
    "empty": raw(b""),
    "huge": bomb(10_000_000),
}
"""Each fault that is the same for all services. A huge reply is small until it is unpacked."""

_BEYOND_ALL = bomb(33_000_000)


def _chat(say: Callable[[Mapping[str, Any]], str]) -> Answer:
    """A chat model that says this."""

    def answer(handler: Handler) -> None:
        message = {"role": "assistant", "content": say(handler.body)}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        body = {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": handler.body["model"],
            "choices": choices,
            "usage": usage,
        }
        handler.reply(200, json.dumps(body).encode())

    return answer


def _grades(asked: Mapping[str, Any]) -> str:
    """Every passage may answer, so that the web is searched, too."""
    count = len(passages_in(asked))
    return json.dumps({"grades": [{"passage": n, "label": "ambiguous", "confidence": 0.7, "reason": ""} for n in range(1, count + 1)]})


def _embed(handler: Handler) -> None:
    given = handler.body["input"]
    texts = [given] if isinstance(given, str) else given
    data = [{"object": "embedding", "index": i, "embedding": WordEmbeddings().embed_query(text)} for i, text in enumerate(texts)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    handler.reply(200, json.dumps({"object": "list", "model": "words", "data": data, "usage": usage}).encode())


def _rerank(handler: Handler) -> None:
    texts = handler.body["documents"]
    found = [{"index": i, "relevance_score": overlap(handler.body["query"], text)} for i, text in enumerate(texts)]
    handler.reply(200, json.dumps({"results": found}).encode())


SERVICES: Mapping[str, Answer] = {
    "evaluator": _chat(_grades),
    "rewriter": _chat(lambda asked: STANDALONE),
    "claim-checker": _chat(checks_each),
    "tavily": results(page(content=PUBLISHED)),
    "bocha": results(bocha_page(summary=PUBLISHED)),
    "embeddings": _embed,
    "reranker": _rerank,
}


class HttpReranker(BaseDocumentCompressor):
    """A hosted reranker's client, as integrations write it."""

    url: str

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        return _ranked(documents, httpx.post(self.url, json=_asked(documents, query), headers=_KEY, verify=False))

    async def acompress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        async with httpx.AsyncClient(verify=False) as client:
            return _ranked(documents, await client.post(self.url, json=_asked(documents, query), headers=_KEY))


_KEY = {"Authorization": f"Bearer {SECRET}"}


def _asked(documents: Sequence[Document], query: str) -> dict[str, Any]:
    return {"query": query, "documents": [document.page_content for document in documents]}


def _ranked(documents: Sequence[Document], response: httpx.Response) -> Sequence[Document]:
    found = response.raise_for_status().json()["results"]
    return [
        Document(documents[r["index"]].page_content, metadata={**documents[r["index"]].metadata, "relevance_score": r["relevance_score"]})
        for r in found
    ]
