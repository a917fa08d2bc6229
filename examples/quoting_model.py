"""A chat model that quotes and does not think.

It needs no key and no network: it answers with the first sentences of the sources that the middleware injected, each with its citation, and says so when
there are none. That makes it honest enough for a demo (every word of an answer stands in a source) and useless for anything else.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

BLOCK = re.compile(r"<crag_sources>\n(.*?)\n</crag_sources>\s*", re.DOTALL)
HEADER = re.compile(r"^\[(\d+)\] (knowledge|web)( \(unverified\))?: ?(.*)$", re.MULTILINE)
SENTENCE = re.compile(r".+?(?:[。！？；]+|[.!?]+(?=\s)|\n|$)\s*", re.DOTALL)
CHINESE = re.compile(r"[\u4e00-\u9fff]")

PHRASES = {
    "en": {
        "sure": "The documents say: ",
        "unsure": "The documents may bear on this: ",
        "web": "The web says: ",
        "none": "I found no source that answers this.",
        "between": " ",
    },
    "zh": {
        "sure": "内部资料写道：",
        "unsure": "内部资料中可能相关的内容：",
        "web": "网上资料写道：",
        "none": "没有找到能回答这个问题的资料。",
        "between": "",
    },
}


class QuotingChatModel(BaseChatModel):
    """Quotes the best source of each origin, with its citation.

    Attributes:
        sentences: How many sentences of a source it quotes.
    """

    sentences: int = 3

    @property
    def _llm_type(self) -> str:
        return "quoting"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "QuotingChatModel":
        """Itself: it accepts tools and calls none."""
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(self._pieces(messages))))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for piece in self._pieces(messages):
            yield _chunk(AIMessageChunk(content=piece), run_manager)
        yield _chunk(AIMessageChunk(content="", chunk_position="last"), run_manager)

    def _pieces(self, messages: list[BaseMessage]) -> Iterator[str]:
        """The answer, sentence by sentence."""
        text = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")
        say = PHRASES["zh" if CHINESE.search(BLOCK.sub("", text)) else "en"]
        quoted: set[str] = set()
        for number, origin, unverified, body in read_sources(text):
            if origin in quoted:
                continue
            opening = say["web"] if origin == "web" else say["unsure"] if unverified else say["sure"]
            yield (say["between"] if quoted else "") + opening + "“"
            *most, last = SENTENCE.findall(body)[: self.sentences] or [body]
            yield from most
            yield f"{last.rstrip()}”{say['between']}[{number}]"
            quoted.add(origin)
        if not quoted:
            yield say["none"]


def _chunk(message: AIMessageChunk, run_manager: CallbackManagerForLLMRun | None) -> ChatGenerationChunk:
    """The message as a chunk, told to whoever listens to tokens."""
    chunk = ChatGenerationChunk(message=message)
    if run_manager:
        run_manager.on_llm_new_token(message.text, chunk=chunk)
    return chunk


def read_sources(text: str) -> list[tuple[str, str, bool, str]]:
    """The injected sources of a message, in their order: number, origin, whether it is unverified, text."""
    block = BLOCK.search(text)
    if not block:
        return []
    headers = list(HEADER.finditer(block[1]))
    ends = [*(header.start() for header in headers[1:]), len(block[1])][: len(headers)]
    return [(h[1], h[2], bool(h[3]), block[1][h.end() : end].strip()) for h, end in zip(headers, ends, strict=True)]
