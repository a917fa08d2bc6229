"""Chat models that stream a script of chunks, in the ways that integrations do, and a server that streams as DeepSeek and OpenAI do."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

Script = Sequence[AIMessageChunk | Exception]
USAGE = UsageMetadata(input_tokens=10, output_tokens=5, total_tokens=15)


class Whole(BaseChatModel):
    """Answers the scripts one after the other, the last one again and again, each in one piece.

    Args:
        scripts: The chunks of each answer; an exception is raised where it stands.
        log: What happened: `ask`, the text of each chunk that was asked for, `closed`.
        binds: What `bind_tools` returns: the model itself, a binding, a binding around a binding, another model, or a runnable that is none.
    """

    scripts: list[Any]
    log: list[str] = Field(default_factory=list)
    requests: list[list[BaseMessage]] = Field(default_factory=list)
    options: list[dict[str, Any]] = Field(default_factory=list)
    binds: str = "self"
    model_name: str = "blocks-1"
    temperature: float = 0.7
    streaming: bool = False
    n: int = 1

    @property
    def _llm_type(self) -> str:
        return "whole"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"model_name": self.model_name, "temperature": self.temperature}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        match self.binds:
            case "self":
                return self
            case "binding":
                return self.bind(tools=list(tools), **kwargs)
            case "retry":
                return self.bind(tools=list(tools), **kwargs).with_retry(stop_after_attempt=2)
            case "other":
                return self.model_copy(update={"model_name": "with-tools"})
        return self | (lambda message: message)

    def _script(self, messages: list[BaseMessage], options: Mapping[str, Any]) -> Script:
        script: Script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
        self.requests.append(list(messages))
        self.options.append(dict(options))
        self.log.append("ask")
        return script

    def _next(self, messages: list[BaseMessage], options: Mapping[str, Any]) -> Iterator[ChatGenerationChunk]:
        try:
            for part in self._script(messages, options):
                if isinstance(part, Exception):
                    raise part
                self.log.append(str(part.text))
                yield ChatGenerationChunk(message=part.model_copy(deep=True), generation_info={"logprobs": None} if part.text else None)
        finally:
            self.log.append("closed")

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        first, *rest = self._next(messages, kwargs)
        whole = (first + rest) if rest else first
        generation = ChatGeneration(message=message_chunk_to_message(whole.message), generation_info=whole.generation_info)
        return ChatResult(generations=[generation] * self.n, llm_output={"model_name": self.model_name})


class SyncStreaming(Whole):
    """The same, chunk by chunk, with a sync stream only."""

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._next(messages, kwargs):
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


class AsyncStreaming(Whole):
    """The same, with an async stream only."""

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._next(messages, kwargs):
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


class Streaming(SyncStreaming):
    """The same, with both."""

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._next(messages, kwargs):
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def words(text: str, *, usage: bool = True) -> list[AIMessageChunk]:
    """The text word by word; every chunk names its provider, as those of most integrations do, the last one brings the usage."""
    pieces = [AIMessageChunk(content=word, response_metadata={"model_provider": "openai"}) for word in _words(text)]
    last = AIMessageChunk(content="", response_metadata={"finish_reason": "stop"}, usage_metadata=USAGE if usage else None)
    return [AIMessageChunk(content=""), *pieces, last]


def calling(name: str, args: dict[str, Any], *, text: str = "") -> list[AIMessageChunk]:
    """A tool call in pieces, perhaps after a text."""
    raw = json.dumps(args)
    calls = [tool_call_chunk(name=name, args=raw[:4], id="call-1", index=0), tool_call_chunk(name=None, args=raw[4:], id=None, index=0)]
    said = [AIMessageChunk(content=word) for word in _words(text)] if text else []
    return [
        *said,
        *(AIMessageChunk(content="", tool_call_chunks=[call]) for call in calls),
        AIMessageChunk(content="", usage_metadata=USAGE),
    ]


def blocks(text: str, *, thought: str = "Let me think.") -> list[AIMessageChunk]:
    """Reasoning, then text, in indexed blocks that end in a signature and annotations, as Anthropic's and OpenAI's responses stream."""
    parts: list[dict[str, Any]] = [{"type": "reasoning", "reasoning": word, "index": 0} for word in _words(thought)]
    parts += [{"type": "reasoning", "reasoning": "", "extras": {"signature": "xyz"}, "index": 0}, {"type": "text", "text": "", "index": 1}]
    parts += [{"type": "text", "text": word, "index": 1} for word in _words(text)]
    parts += [{"type": "text", "text": "", "annotations": [{"type": "citation", "url": "https://example.org"}], "index": 1}]
    last = AIMessageChunk(content=[], response_metadata={"stop_reason": "end_turn"}, usage_metadata=USAGE, chunk_position="last")
    return [*(AIMessageChunk(content=[part], id="msg_1", response_metadata={"model_provider": "test"}) for part in parts), last]


def _words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]


@contextmanager
def serve_stream(answer: Callable[[Mapping[str, Any]], list[dict[str, Any]]]) -> Iterator[str]:
    """A chat-completions server on loopback that streams the deltas of `answer`, which gets the request; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            deltas = answer(asked)
            finish = "tool_calls" if any("tool_calls" in delta for delta in deltas) else "stop"
            usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
            if asked.get("stream"):
                frame = {
                    "id": "chat-1",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": asked["model"],
                    "system_fingerprint": "fp",
                }
                choices: list[Any] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
                choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
                chunks = [{**frame, "choices": choice} for choice in choices] + [{**frame, "choices": [], "usage": usage}]
                raw = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"
            else:
                message: dict[str, Any] = {"role": "assistant", "content": ""}
                for delta in deltas:
                    for key, value in delta.items():
                        message[key] = value if key in ("role", "tool_calls") else (message.get(key) or "") + value
                choice = {"index": 0, "finish_reason": finish, "message": message}
                frame = {"id": "chat-1", "object": "chat.completion", "created": 1, "model": asked["model"]}
                raw = json.dumps({**frame, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}/v1"
        finally:
            listening.shutdown()


def reasoned(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reasoning and a text; a call of the first tool instead, if tools were given and none has answered yet."""
    if asked.get("tools") and not any(message["role"] == "tool" for message in asked["messages"]):
        function = {"name": asked["tools"][0]["function"]["name"], "arguments": json.dumps({"word": "port"})}
        return [
            {"role": "assistant", "content": "", "reasoning_content": "Look it up."},
            {"tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": function}]},
        ]
    return [
        {"role": "assistant", "content": "", "reasoning_content": "Let me"},
        {"reasoning_content": " think."},
        *({"content": word} for word in _words("The port is 9100 [1]. It was 80.")),
    ]
