"""A web-search server on loopback that speaks Tavily's protocol and misbehaves on request.

with TavilyServer() as server:
    server.answer = status(429)
    TavilyWebSearch(api_key="tvly-test", api_base_url=server.url)
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

JSON = "application/json"


class Handler(BaseHTTPRequestHandler):
    """One request; `body` is what was sent."""

    server: "TavilyServer"
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

    def reply(self, status: int, body: bytes, *, kind: str = JSON, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests read `requests`."""


Answer = Callable[[Handler], None]


class TavilyServer(ThreadingHTTPServer):
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


def results(*pages: Any) -> Answer:
    """These results; none gives an empty list."""
    reply = {"query": "q", "follow_up_questions": None, "answer": None, "images": [], "results": list(pages), "response_time": 0.1}
    return raw(json.dumps(reply).encode())


def raw(body: bytes, *, kind: str = JSON, status: int = 200) -> Answer:
    """Any body: an HTML page, garbage, truncated JSON."""
    return lambda handler: handler.reply(status, body, kind=kind)


def status(code: int) -> Answer:
    """A refusal in Tavily's form, which names the query as a rude server would."""

    def answer(handler: Handler) -> None:
        handler.reply(code, json.dumps({"detail": {"error": f"refused: {handler.body.get('query')}"}}).encode())

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


def dripping(seconds: float = 30.0) -> Answer:
    """A byte now and then, so that no single read of the socket is late."""

    def answer(handler: Handler) -> None:
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
