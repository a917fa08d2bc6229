"""A chat model that quotes and does not think: it answers where no chat model can be had.

It needs no key and no network: it repeats the first sentences of the best source of each origin that the middleware injected, each with its citation, and
says so when there is none. Every word of an answer stands in a source.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import language

SENTENCES = 3
"""Sentences of a source that are quoted, at most."""

_BEGIN, _END = "<crag_sources>\n", "\n</crag_sources>"
_HEADER = re.compile(r"^\[(\d+)\] (knowledge|web)( \(unverified\))?: ?(.*)$", re.MULTILINE)
_SAYS = {
    "en": {"sure": "The documents say: ", "unsure": "The documents may bear on this: ", "web": "The web says: ", "between": " "},
    "zh": {"sure": "内部资料写道：", "unsure": "内部资料中可能相关的内容：", "web": "网上资料写道：", "between": ""},
}
_NOTHING = {"en": "I found no source that answers this.", "zh": "没有找到能回答这个问题的资料。"}


class QuotingChatModel(BaseChatModel):
    """Quotes the best source of each origin, with its citation."""

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
        pieces = (AIMessageChunk(content=piece) for piece in self._pieces(messages))
        for message in (*pieces, AIMessageChunk(content="", chunk_position="last")):
            chunk = ChatGenerationChunk(message=message)
            if run_manager:
                run_manager.on_llm_new_token(message.text, chunk=chunk)
            yield chunk

    def _pieces(self, messages: list[BaseMessage]) -> Iterator[str]:
        """The answer, sentence by sentence."""
        text = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")
        block, rest = _parted(text)
        spoken, quoted = language(rest), set[str]()
        say = _SAYS[spoken]
        for number, origin, unverified, body in _sources(block):
            if origin in quoted:
                continue
            yield (say["between"] if quoted else "") + say["web" if origin == "web" else "unsure" if unverified else "sure"] + "“"
            strips = split(body)[:SENTENCES]
            yield from (body[strip.start : after.start] for strip, after in pairwise(strips))
            yield f"{strips[-1].text if strips else body}”{say['between']}[{number}]"
            quoted.add(origin)
        if not quoted:
            yield _NOTHING[spoken]


def _parted(text: str) -> tuple[str, str]:
    """The injected block, and what stands around it; no block where there is none."""
    before, begun, after = text.partition(_BEGIN)
    block, ended, rest = after.partition(_END)
    return (block, before + rest.lstrip()) if begun and ended else ("", text)


def _sources(block: str) -> Iterator[tuple[str, str, bool, str]]:
    """The injected sources of a message, in their order: number, origin, whether it is unverified, text."""
    headers = [*_HEADER.finditer(block)]
    for header, after in zip(headers, [*headers[1:], None], strict=False):
        body = block[header.end() : after.start() if after else None]
        yield header[1], header[2], bool(header[3]), body.strip()
