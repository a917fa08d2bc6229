"""Scripted models and ports, without network or chance."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

from crag_middleware.settings import CHAT_THRESHOLDS
from crag_middleware.stages.decide import label
from crag_middleware.types import Exchange, Grade, Passage


class ScriptedChatModel(BaseChatModel):
    """A chat model that gives its replies in order, the last one again and again, and keeps every request.

    It streams word by word, tool calls included, and accepts tools without looking at them.

    Attributes:
        replies: What it answers, in order: a message, its text, an error to raise, or a function of the messages.
        requests: The messages of every call so far.
    """

    replies: list[Any]
    requests: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """The model itself: tools change nothing."""
        return self

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        reply: Any = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(list(messages))
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            reply = reply(messages)
        return AIMessage(reply) if isinstance(reply, str) else reply.model_copy(deep=True)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        message = self._next(messages)
        words = message.text.split(" ")
        pieces = [word if i == 0 else f" {word}" for i, word in enumerate(words)]
        calls = [
            tool_call_chunk(name=c["name"], args=json.dumps(c["args"], ensure_ascii=False), id=c["id"], index=i)
            for i, c in enumerate(message.tool_calls)
        ]
        for piece in pieces:
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece, id=message.id))
            if run_manager:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        last = AIMessageChunk(
            content="", id=message.id, tool_call_chunks=calls, additional_kwargs=message.additional_kwargs, chunk_position="last"
        )
        yield ChatGenerationChunk(message=last)


class ScriptedRetriever:
    """A retriever over passages held in memory, by tenant; every question finds all of them.

    Args:
        passages: Each tenant's passages, best first.
        error: Raised instead, if given.
    """

    def __init__(self, passages: Mapping[str, Sequence[Passage]], *, error: Exception | None = None) -> None:
        self.passages = passages
        self.error = error
        self.asked: list[tuple[str, str]] = []

    def retrieve(self, question: str, *, agent_id: str, limit: int) -> Sequence[Passage]:
        """The tenant's passages."""
        self.asked.append((agent_id, question))
        if self.error:
            raise self.error
        return list(self.passages.get(agent_id, ()))[:limit]

    async def aretrieve(self, question: str, *, agent_id: str, limit: int) -> Sequence[Passage]:
        """The tenant's passages."""
        return self.retrieve(question, agent_id=agent_id, limit=limit)


class ScriptedEvaluator:
    """An evaluator with fixed probabilities.

    Args:
        probabilities: P(the passage answers the question) by passage id; None means that it can't be graded.
        otherwise: The probability of every other passage.
        error: Raised instead, if given.
    """

    thresholds = CHAT_THRESHOLDS

    def __init__(
        self, probabilities: Mapping[str, float | None] | None = None, *, otherwise: float = 0.95, error: Exception | None = None
    ) -> None:
        self.probabilities = probabilities or {}
        self.otherwise = otherwise
        self.error = error
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        """One grade a passage; the labels follow from the thresholds."""
        self.asked.append((question, tuple(p.id for p in passages)))
        if self.error:
            raise self.error
        found = [(p.id, self.probabilities.get(p.id, self.otherwise)) for p in passages]
        return [label(Grade(passage_id=i, probability=p, label="ungraded"), self.thresholds) for i, p in found]

    async def agrade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        """One grade a passage; the labels follow from the thresholds."""
        return self.grade(question, passages)


class ScriptedWebSearch:
    """A web search with fixed results.

    Args:
        passages: What every query finds.
        error: Raised instead, if given.
    """

    def __init__(self, passages: Sequence[Passage] = (), *, error: Exception | None = None) -> None:
        self.passages = passages
        self.error = error
        self.asked: list[str] = []

    def search(self, query: str, *, limit: int) -> Sequence[Passage]:
        """The fixed results."""
        self.asked.append(query)
        if self.error:
            raise self.error
        return list(self.passages)[:limit]

    async def asearch(self, query: str, *, limit: int) -> Sequence[Passage]:
        """The fixed results."""
        return self.search(query, limit=limit)


class ScriptedRewriter:
    """A rewriter that gives its texts in order, the last one again and again.

    Args:
        texts: What it writes; an exception is raised.
    """

    def __init__(self, *texts: str | Exception) -> None:
        self.texts = texts
        self.asked: list[tuple[str, tuple[Exchange, ...], tuple[str, ...]]] = []

    def rewrite(self, question: str, *, history: Sequence[Exchange], tried: Sequence[str]) -> str:
        """The next text."""
        text = self.texts[min(len(self.asked), len(self.texts) - 1)]
        self.asked.append((question, tuple(history), tuple(tried)))
        if isinstance(text, Exception):
            raise text
        return text

    async def arewrite(self, question: str, *, history: Sequence[Exchange], tried: Sequence[str]) -> str:
        """The next text."""
        return self.rewrite(question, history=history, tried=tried)
