"""What the small examples share: two shops' knowledge in one Milvus Lite file, and a chat model that calls a tool when a word tells it to."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

from crag_middleware import EmbeddingEvaluator, KnowledgeStore, LocalEmbeddings, open_knowledge
from crag_middleware.testing import QuotingChatModel

TEXTS = {
    "aurora": [
        "You have 30 days to return a bike for a full refund. It must not have been ridden more than 50 km.",
        "The frame of every bike carries a warranty of 5 years, battery and motor one of 2 years.",
        "自送达之日起30天内可以退货并获得全额退款。",
    ],
    "borealis": [
        "You have 14 days to return an unopened coffee machine for a refund. Opened machines are repaired, not refunded.",
        "Descale the machine every 2 months with citric acid, never with vinegar.",
    ],
}


@dataclass(frozen=True)
class Caller:
    """Who is asking: the trusted runtime context, set by the application and never by a message."""

    agent_id: str


@cache
def embeddings() -> LocalEmbeddings:
    """A multilingual sentence encoder from a wheel, loaded once."""
    return LocalEmbeddings()


@cache
def evaluator() -> EmbeddingEvaluator:
    """Grades by those embeddings."""
    return EmbeddingEvaluator(embeddings())


def fill(uri: str, texts: Mapping[str, list[str]] = TEXTS, **options: Any) -> KnowledgeStore:
    """A collection with these texts, by tenant."""
    knowledge: KnowledgeStore = open_knowledge(uri, embeddings(), **options)
    for agent_id, own in texts.items():
        knowledge.add_texts(own, agent_id=agent_id)
    return knowledge


@contextmanager
def open_shop() -> Iterator[KnowledgeStore]:
    """Both shops' knowledge, in a file that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield fill(str(Path(folder, "shop.db")))


class ToolCallingModel(QuotingChatModel):
    """Calls a tool when the user's message has the word for it, once a turn; then says what the tool said, and quotes the sources it was given.

    Attributes:
        calls: By the word: the tool's name and arguments, in which the value `"$question"` stands for the user's message.
    """

    calls: dict[str, tuple[str, dict[str, Any]]] = Field(default_factory=dict)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        if call := self._call(messages):
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])
        return super()._generate(messages, stop, run_manager, **kwargs)

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        if call := self._call(messages):
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_calls=[call], chunk_position="last"))
        else:
            yield from super()._stream(messages, stop, run_manager, **kwargs)

    def _pieces(self, messages: list[BaseMessage]) -> Iterator[str]:
        said = [m.text for m in messages[_asked(messages) :] if isinstance(m, ToolMessage)]
        yield "".join(f"{text} " for text in said)
        if not said or "<crag_sources>" in messages[_asked(messages)].text:
            yield from super()._pieces(messages)

    def _call(self, messages: list[BaseMessage]) -> Any:
        place = _asked(messages)
        question = messages[place].text.rpartition("</crag_sources>")[2]
        word = next((word for word in self.calls if word in question), None)
        if word is None or any(isinstance(m, ToolMessage) for m in messages[place:]):
            return None
        name, arguments = self.calls[word]
        return {"name": name, "args": {k: question if v == "$question" else v for k, v in arguments.items()}, "id": f"call-{len(messages)}"}


def _asked(messages: list[BaseMessage]) -> int:
    """Where the user's latest message stands."""
    return max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))


def say(result: Mapping[str, Any]) -> str:
    """The answer of an agent's result."""
    return str(result["messages"][-1].text).strip()
