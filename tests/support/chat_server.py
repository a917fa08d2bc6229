"""A chat-completions server on loopback, as OpenAI and DeepSeek speak it, with the moods that real ones have."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_deepseek import ChatDeepSeek

from crag_middleware.stages.token_grading import LOOKS


@dataclass
class Mood:
    """How the server behaves; may be changed while it runs.

    Attributes:
        replies: Answered one after the other, the last one again and again; a function gets the request.
        tokens: The likeliest first tokens with their log probabilities, a function of the request; told to whoever asks for `logprobs`, the first
            one is the reply. None for a provider that ignores the request for them.
        refuses: Names of things answered with 400: `tool_choice`, `thinking`, `logprobs`, `logprobs while thinking`, or types of response_format
            (`json_schema`, `json_object`).
        status: Answered to everything if not 200.
        finish: The finish reason, `length` for a reply that ran into the limit.
        max_parallel: More requests than this at a time are answered with 429.
        limits: Which requests are answered with 429, by the request and its number from 0.
        window: Characters of messages beyond which a request is answered as one that does not fit the model's context.
        hold: Requests wait until it is set.
    """

    replies: Sequence[str | Callable[[Mapping[str, Any]], str]] = ("{}",)
    tokens: Callable[[Mapping[str, Any]], Sequence[tuple[str, float]]] | None = None
    refuses: frozenset[str] = frozenset()
    status: int = 200
    finish: str = "stop"
    max_parallel: int = 1000
    limits: Callable[[Mapping[str, Any], int], bool] = lambda asked, number: False
    window: int = 10_000_000
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


def wants_answer(asked: Mapping[str, Any]) -> bool:
    """Whether a request of the grading by tokens is the one for the answer; the other is the one for a yes or a no."""
    return str(asked["messages"][-1]["content"]).endswith(tuple(answer for answer, _ in LOOKS.values()))


@contextmanager
def serve_chat(**mood: Any) -> Iterator[ChatServer]:
    """A server with that mood, stopped at the end."""
    lock = threading.Lock()
    busy = [0]
    server: ChatServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(BrokenPipeError, ConnectionResetError):  # the client did not wait
                super().handle()

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
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if stream else "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

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
    if crowded or mood.limits(asked, number):
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
    if asked.get("top_logprobs") and (not asked.get("logprobs") or asked["top_logprobs"] > 20):
        return 400, _error("top_logprobs needs logprobs, and is at most 20")
    if asked.get("logprobs") and ("logprobs" in mood.refuses or ("logprobs while thinking" in mood.refuses and thinking)):
        return 400, _error("logprobs is not supported")
    if mood.tokens and asked.get("logprobs"):
        tokens = mood.tokens(asked)
        return 200, _completion(tokens[0][0] if tokens else "", "length", asked, tokens)
    if sum(len(message["content"]) for message in asked["messages"]) > mood.window:
        return 400, _error("This model's maximum context length is 4096 tokens. However, you requested more. Please reduce the length.")
    reply = mood.replies[min(number, len(mood.replies) - 1)]
    text = reply(asked) if callable(reply) else reply
    return 200, _completion(text, mood.finish, asked)


def _completion(text: str, finish: str, asked: Mapping[str, Any], tokens: Sequence[tuple[str, float]] = ()) -> dict[str, Any]:
    told = [{"token": token, "logprob": value, "bytes": list(token.encode())} for token, value in tokens[: asked.get("top_logprobs", 0)]]
    logprobs = {"content": [{**told[0], "top_logprobs": told}], "reasoning_content": None} if told else None
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}, "logprobs": logprobs}],
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
