"""A chat-completions server on loopback, as OpenAI and DeepSeek speak it, with the moods that real ones have."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_deepseek import ChatDeepSeek


@dataclass
class Mood:
    """How the server behaves; may be changed while it runs.

    Attributes:
        replies: Answered one after the other, the last one again and again; a function gets the request.
        refuses: Names of things answered with 400: `tool_choice`, `thinking`, or types of response_format (`json_schema`, `json_object`).
        status: Answered to everything if not 200.
        finish: The finish reason, `length` for a reply that ran into the limit.
        max_parallel: More requests than this at a time are answered with 429.
        hold: Requests wait until it is set.
    """

    replies: Sequence[str | Callable[[Mapping[str, Any]], str]] = ("{}",)
    refuses: frozenset[str] = frozenset()
    status: int = 200
    finish: str = "stop"
    max_parallel: int = 1000
    hold: threading.Event = field(default_factory=lambda: _set())


@dataclass
class ChatServer:
    """The running server: its address, its mood, what it was sent, how many requests it had at a time, and whether any came."""

    url: str
    mood: Mood
    requests: list[dict[str, Any]] = field(default_factory=list)
    peak: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)

    def model(self, **options: Any) -> ChatDeepSeek:
        """The real DeepSeek client, pointed at this server."""
        return ChatDeepSeek(**{"model": "deepseek-flash", "api_key": "test-key", "base_url": self.url, "max_retries": 0, **options})

    def forms(self) -> list[str]:
        """The response format of each request, `plain` without one, in order."""
        return [r.get("response_format", {}).get("type", "plain") for r in self.requests]


@contextmanager
def serve_chat(**mood: Any) -> Iterator[ChatServer]:
    """A server with that mood, stopped at the end."""
    lock = threading.Lock()
    busy = [0]
    server: ChatServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                number = len(server.requests)
                server.requests.append(asked)
                server.arrived.set()
                busy[0] += 1
                server.peak = max(server.peak, busy[0])
                crowded = busy[0] > server.mood.max_parallel
            try:
                server.mood.hold.wait(20)
                status, body = _answer(server.mood, asked, number, crowded=crowded)
            finally:
                with lock:
                    busy[0] -= 1
            self._send(status, body, streamed=bool(asked.get("stream")))

        def _send(self, status: int, body: dict[str, Any], *, streamed: bool) -> None:
            stream = streamed and status == 200
            raw = _events(body) if stream else json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("content-type", "text/event-stream" if stream else "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)
            except (BrokenPipeError, ConnectionResetError):  # the client did not wait
                self.close_connection = True

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        server = ChatServer(f"http://127.0.0.1:{listening.server_address[1]}/v1", Mood(**mood))
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.mood.hold.set()
            listening.shutdown()


def _answer(mood: Mood, asked: Mapping[str, Any], number: int, *, crowded: bool) -> tuple[int, dict[str, Any]]:
    if crowded:
        return 429, _error("rate limit reached")
    if mood.status != 200:
        return mood.status, _error("no")
    thinking = asked.get("thinking", {}).get("type") != "disabled"
    form = asked.get("response_format", {}).get("type")
    if "tool_choice" in mood.refuses and thinking and isinstance(asked.get("tool_choice"), dict):
        return 400, _error("deepseek-reasoner does not support this tool_choice")
    if form in mood.refuses:
        return 400, _error("This response_format type is unavailable now")
    if "thinking" in mood.refuses and "thinking" in asked:
        return 400, _error("unknown parameter: thinking")
    if form == "json_object" and "json" not in json.dumps(asked["messages"]).lower():
        return 400, _error("Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.")
    reply = mood.replies[min(number, len(mood.replies) - 1)]
    text = reply(asked) if callable(reply) else reply
    return 200, _completion(text, mood.finish, asked)


def _completion(text: str, finish: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def _events(body: Mapping[str, Any]) -> bytes:
    """The completion as a stream of server-sent events."""
    choice = body["choices"][0]
    frame = {"id": body["id"], "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    deltas = [{"index": 0, "delta": choice["message"]}, {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]
    chunks = [{**frame, "choices": [delta]} for delta in deltas] + [{**frame, "choices": [], "usage": body["usage"]}]
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_request_error"}}


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
