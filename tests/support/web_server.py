"""A search server on loopback that speaks Tavily's and Bocha's protocol, each under its path, and misbehaves on request.

with WebServer() as server:
    server.answer = status(429, retry_after="7")
    TavilyWebSearch(api_key="tvly-test", api_base_url=server.url)
"""

import gzip
import json
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

JSON = "application/json"
BOCHA = "/v1/web-search"


class Handler(BaseHTTPRequestHandler):
    """One request; `body` is what was sent."""

    server: "WebServer"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.server.requests.append({"path": self.path, "headers": dict(self.headers), "body": self.body})
        self.server.asked.set()
        self.close_connection = True
        try:
            self.server.answer(self)
        except OSError:
            self.server.dropped.set()

    @property
    def bocha(self) -> bool:
        """Whether Bocha was asked, and not Tavily."""
        return self.path.endswith(BOCHA)

    def reply(self, status: int, body: bytes, *, kind: str = JSON, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests read `requests`."""


Answer = Callable[[Handler], None]


class WebServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        answer: What it does with a request; may be changed at any time.
        requests: What it got: `path`, `headers` and `body` of each request.
        asked: Set when the first request came.
        dropped: Set when a client went away before its answer was written.
        closing: Set when the server closes; slow answers wait for it.
    """

    daemon_threads = True

    def __init__(self, answer: Answer | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer or results()
        self.requests: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.dropped = threading.Event()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()


def page(host: str = "site.example", path: str = "/page", content: str | None = "Some text.", **fields: Any) -> dict[str, Any]:
    """One result as Tavily gives it."""
    return {"title": "A page", "url": f"https://{host}{path}", "content": content, "score": 0.9, "raw_content": None, **fields}


def bocha_page(host: str = "site.example", path: str = "/page", summary: str | None = "Some text.", **fields: Any) -> dict[str, Any]:
    """One result as Bocha gives it."""
    url = f"https://{host}{path}"
    given = {"id": None, "name": "A page", "url": url, "displayUrl": url, "snippet": "Some", "summary": summary, "siteName": "A site"}
    return {**given, "dateLastCrawled": "2024-07-22T00:00:00Z", "cachedPageUrl": None, "language": None, **fields}


def results(*pages: Any) -> Answer:
    """These results, in the form of whoever is asked; none gives an empty list."""
    tavily = {"query": "q", "follow_up_questions": None, "answer": None, "images": [], "results": list(pages), "response_time": 0.1}
    found = {"webSearchUrl": "", "totalEstimatedMatches": 9, "value": list(pages), "someResultsRemoved": True}
    data = {"_type": "SearchResponse", "queryContext": {"originalQuery": "q"}, "webPages": found, "images": None, "videos": None}
    bocha = {"code": 200, "log_id": "d71841ad20095f61", "msg": None, "data": data}
    return lambda handler: handler.reply(200, json.dumps(bocha if handler.bocha else tavily).encode())


def raw(body: bytes, *, kind: str = JSON, status: int = 200, **headers: str) -> Answer:
    """Any body: an HTML page, garbage, truncated JSON."""
    return lambda handler: handler.reply(status, body, kind=kind, **headers)


def json_reply(content: Any, *, status: int = 200) -> Answer:
    """Any JSON."""
    return raw(json.dumps(content).encode(), status=status)


def status(code: int, *, retry_after: str | None = None, said: str | None = None) -> Answer:
    """A refusal in the form of whoever is asked. It names the query, as a rude server would, if nothing else is to be said."""

    def answer(handler: Handler) -> None:
        why = f"refused: {handler.body.get('query')}" if said is None else said
        bocha = {"code": str(code), "message": why, "log_id": "c66aac17eab1bb7e"}
        body = json.dumps(bocha if handler.bocha else {"detail": {"error": why}}).encode()
        handler.reply(code, body, **({} if retry_after is None else {"Retry_After": retry_after}))

    return answer


def redirect(url: str) -> Answer:
    """To another address."""

    def answer(handler: Handler) -> None:
        handler.send_response(307)
        handler.send_header("Location", url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def silent(seconds: float = 30.0) -> Answer:
    """No answer for so long, or until the server closes."""

    def answer(handler: Handler) -> None:
        handler.server.closing.wait(seconds)

    return answer


def hanging(seconds: float = 30.0) -> Answer:
    """The headers, then nothing for so long, or until the server closes."""

    def answer(handler: Handler) -> None:
        handler.reply(200, b"", length=100_000)
        handler.server.closing.wait(seconds)

    return answer


def dripping(seconds: float = 30.0, *, in_headers: bool = False) -> Answer:
    """A byte now and then, so that no single read of the socket is late."""

    def answer(handler: Handler) -> None:
        if in_headers:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        else:
            handler.reply(200, b'{"results": [', length=100_000)
        for _ in range(int(seconds / 0.05)):
            if handler.server.closing.wait(0.05):
                return
            handler.wfile.write(b" ")

    return answer


def cut_off(*, in_body: bool = True) -> Answer:
    """The connection closed in the middle of the body, or before a single byte."""

    def answer(handler: Handler) -> None:
        if in_body:
            handler.reply(200, b'{"results": [{"title": "half', length=5000)

    return answer


def in_chunks(body: bytes, *, size: int = 100, **headers: str) -> Answer:
    """A body without a length, in chunks."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        for name, value in {"Transfer_Encoding": "chunked", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        for start in range(0, len(body), size):
            part = body[start : start + size]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    return answer


def bomb(unpacked: int, *, twice: bool = False) -> Answer:
    """A small body that is huge once unpacked, or once what was packed in it is."""
    packer = zlib.compressobj(1, wbits=31)
    body = b"".join(packer.compress(b" " * 1_000_000) for _ in range(unpacked // 1_000_000)) + packer.flush()
    return raw(gzip.compress(body) if twice else body, Content_Encoding="gzip, gzip" if twice else "gzip")
