"""Between LangChain's messages and our values: the question is read from them, the evidence goes into copies of them."""

from collections.abc import Sequence
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage

from crag_middleware.stages.question import classify, unicode, without_fence, without_files, without_lead_in
from crag_middleware.types import Exchange, Question

M = TypeVar("M", bound=BaseMessage)


def text_of(content: object) -> str:
    """The text of a message's content, whatever its shape: a string, or the text parts of a block list, a line each."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part if isinstance(part, str) else part.get("text") if _is_text(part) else None for part in content]
    return "\n".join(part for part in parts if isinstance(part, str))


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type", "text") == "text"


def is_question(message: AnyMessage) -> bool:
    """Whether a message is the user's own: human, and not marked by `lc_source` as written by a middleware (a summary)."""
    return isinstance(message, HumanMessage) and not message.additional_kwargs.get("lc_source")


def read_question(messages: Sequence[AnyMessage], *, history: int) -> Question | None:
    """The question of the turn, the user's latest message, with at most `history` earlier texts; None if there is no such message."""
    place = next((i for i in range(len(messages) - 1, -1, -1) if is_question(messages[i])), None)
    if place is None:
        return None
    message = messages[place]
    said = text_of(message.content)
    text = _words(said)
    skip = classify(text)
    if skip == "empty" and (without_files(said) != said or (message.content and not isinstance(message.content, str))):
        return Question(text="", message_id=message.id or "", skip="no_text")
    return Question(text=text, message_id=message.id or "", history=_exchanges(messages[:place], history), skip=skip)


def _words(said: str) -> str:
    """What was said, without our own fence and without files; anything that a store, a model or a wire takes."""
    return without_fence(without_files(unicode(said)))


def _exchanges(messages: Sequence[AnyMessage], most: int) -> tuple[Exchange, ...]:
    """What user and assistant said last to each other, oldest first: no tool calls, no tool results, no summaries."""
    exchanges: list[Exchange] = []
    for message in reversed(messages):
        if len(exchanges) == most:
            break
        is_answer = isinstance(message, AIMessage) and not message.tool_calls
        if (is_question(message) or is_answer) and (text := _words(text_of(message.content))):
            exchanges.append(Exchange("assistant" if is_answer else "user", text))
    return tuple(reversed(exchanges))


def inject(
    block: str,
    messages: list[AnyMessage],
    system: SystemMessage | None,
    *,
    message_id: str,
    into_system: bool,
    others: tuple[str, ...] = (),
) -> tuple[list[AnyMessage], SystemMessage | None]:
    """New messages with the block; the given ones stay as they are.

    The block goes before the text of the message with `message_id`, so that everything before that message stays the same from turn to turn.
    If that message is gone it goes into the last human message, else, or on request, after the system prompt. Before one of the `others`, the blocks of
    other instances, it goes without its lead-in, which is for the message alone.
    """
    place = None if into_system else _place(messages, message_id)
    if place is None:
        return messages, _with_text(system, block, after=True) if system else SystemMessage(block)
    if others and text_of(messages[place].content).startswith(others):
        block = without_lead_in(block)
    return [*messages[:place], _with_text(messages[place], block, after=False), *messages[place + 1 :]], system


def _place(messages: Sequence[AnyMessage], message_id: str) -> int | None:
    humans = [i for i, m in enumerate(messages) if isinstance(m, HumanMessage)]
    exact = [i for i in humans if message_id and messages[i].id == message_id]
    places = exact or humans
    return places[-1] if places else None


def _with_text(message: M, text: str, *, after: bool) -> M:
    """A copy of the message with more text: a string stays a string, a block list gets one more text block."""
    content: Any = message.content
    if isinstance(content, str):
        joined = (content, text) if after else (text, content)
        return message.model_copy(update={"content": "\n\n".join(part for part in joined if part)})
    block = {"type": "text", "text": text}
    return message.model_copy(update={"content": [*content, block] if after else [block, *content]})
