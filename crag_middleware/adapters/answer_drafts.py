"""The drafts of one answer: what of each is shown and when, and what becomes of one that is to be done better.

Nothing is asked or awaited here: whoever drives it hands over what the model writes, piece by piece, and shows what comes back.
"""

from typing import Any, Protocol, TypeVar

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.answer_text import Texts
from crag_middleware.adapters.inner_model import failed
from crag_middleware.errors import CRAGError
from crag_middleware.steps import Plan

Generated = TypeVar("Generated", bound=ChatGeneration)


class Answer(Protocol):
    """What is done to one answer while it is written.

    Attributes:
        waits: Whether nothing is shown before the whole of it was judged.
    """

    waits: bool

    def feed(self, text: str) -> Plan[str]:
        """What can be shown after this piece."""
        ...

    def end(self, *, is_final: bool) -> Plan[str]:
        """What is left to show, when nothing more comes; final is an answer that calls no tools."""
        ...

    def judge(self, draft: str) -> Plan[str | None]:
        """What to tell the model so that it writes another draft; None if this is the last, whose text `feed` and `end` then give."""
        ...

    def failed(self, reason: str) -> None:
        """The other draft that `judge` wanted did not come: the one it judged is the last, whose text `feed` and `end` then give."""
        ...

    def told(self) -> dict[str, Any] | None:
        """What is known of the answer after its end, as keys and values for its `response_metadata`; None for nothing."""
        ...


class Drafts:
    """The drafts of one answer, the first to the last.

    Attributes:
        messages: What the model is to be asked; None once the answer is complete.
    """

    def __init__(self, answer: Answer, messages: list[BaseMessage]) -> None:
        self.messages: list[BaseMessage] | None = messages
        self._asked = messages
        self._answer = answer
        self._draft = _Draft(answer)
        self._judged: _Draft | None = None

    def survives(self, error: Exception) -> bool:
        """Whether an earlier draft can stand in for the one that broke off; never for control flow, nor once something of this one was shown."""
        return self._judged is not None and self._draft.waits and not isinstance(error, CRAGError | GraphBubbleUp)

    def take(self, piece: ChatGeneration | Exception | None) -> Plan[list[ChatGeneration]]:
        """What can be shown after the next piece of the draft: a chunk or a whole message, an error that it survives, or None at its end."""
        if isinstance(piece, ChatGeneration):
            return (yield from self._draft.take(piece))
        if isinstance(piece, Exception):
            return (yield from self._fall_back(failed(CRAGError, "write another draft", piece).reason))
        if self._draft.is_blank and self._judged is not None:
            return (yield from self._fall_back("empty"))
        if self._draft.waits and (correction := (yield from self._answer.judge(self._draft.text))) is not None:
            said = [AIMessage(self._draft.text)] if self._draft.text.strip() else []  # providers refuse an empty message
            self.messages = self._asked = [*self._asked, *said, HumanMessage(correction)]
            self._judged, self._draft = self._draft, _Draft(self._answer, spent=_sum(self._draft.spent, self._draft.used))
            return []
        self.messages = None
        return (yield from self._draft.rest())

    def _fall_back(self, reason: str) -> Plan[list[ChatGeneration]]:
        """Shows the draft that was judged last, since no other came."""
        broken, self._draft = self._draft, self._judged or self._draft
        self._draft.spent = _sum(self._draft.spent, broken.used)
        self._answer.failed(reason)
        self.messages = None
        return (yield from self._draft.rest())


class _Draft:
    """One draft as it comes in: what of it is passed on, and what is held."""

    def __init__(self, answer: Answer, *, spent: UsageMetadata | None = None) -> None:
        self.waits = answer.waits
        self.spent = spent
        self.used: UsageMetadata | None = None
        self._answer = answer
        self._written: list[str] = []
        self._texts = Texts()
        self._held: list[ChatGeneration] = []
        self._unsaid: ChatGenerationChunk | None = None
        self._id: str | None = None
        self._calls_tools = False

    @property
    def is_blank(self) -> bool:
        """Whether it neither says anything nor calls a tool."""
        return not self._calls_tools and not self.text.strip()

    @property
    def text(self) -> str:
        """All that a reader would see of it so far."""
        return "".join(self._written)

    def take(self, piece: ChatGeneration) -> Plan[list[ChatGeneration]]:
        """What can be shown after the next piece.

        A draft that calls tools is no answer, and waits for nothing any more. The piece that says it is the last one is held until nothing came after it,
        since it has to carry what was held back.
        """
        message = piece.message
        self._written.append(str(message.text))
        self._id = self._id or message.id
        self.used = _sum(self.used, getattr(message, "usage_metadata", None))
        self._calls_tools = self._calls_tools or _calls_tools(message)
        self.waits = self.waits and not self._calls_tools
        if self.waits:
            self._held.append(piece)
            return []
        ready, self._held = [*self._held, piece], []
        if _is_last(piece):
            self._held = [ready.pop()]
        return (yield from self._all(ready))

    def rest(self) -> Plan[list[ChatGeneration]]:
        """All that is still to be shown, when the whole draft came; nothing of one that never began."""
        if not self._written:
            return []
        last = self._held.pop() if self._held and _is_last(self._held[-1]) else None
        shown = yield from self._all(self._held)
        return shown + (yield from self._last(last))

    def _all(self, pieces: list[ChatGeneration]) -> Plan[list[ChatGeneration]]:
        shown: list[ChatGeneration] = []
        for piece in pieces:
            shown += yield from self._shown(piece)
        return shown

    def _shown(self, piece: ChatGeneration) -> Plan[list[ChatGeneration]]:
        """The piece with its text checked. If none of it can be shown yet, what else it says goes out with the next one."""
        before = piece.message.content
        content = yield from self._texts.checked(before, self._answer.feed)
        if content == before:
            return [self._with_unsaid(piece)]
        changed = _changed(piece, content=content)
        if isinstance(changed, ChatGenerationChunk) and not content and not _is_urgent(changed.message):
            self._unsaid = self._with_unsaid(changed)
            return []
        return [self._with_unsaid(changed)]

    def _last(self, piece: ChatGeneration | None) -> Plan[list[ChatGeneration]]:
        """The last piece, with what was held back, what is known of the answer, and what earlier drafts have cost."""

        def end() -> Plan[str]:
            return (yield from self._answer.end(is_final=not self._calls_tools))

        content = yield from self._texts.checked(piece.message.content if piece else "", self._answer.feed, end)
        told = self._answer.told()
        if piece is None:
            if not (content or told is not None or self.spent):
                return [self._unsaid] if self._unsaid else []
            piece = ChatGenerationChunk(message=AIMessageChunk(content="", id=self._id, chunk_position="last"))
        message = piece.message
        changes: dict[str, Any] = {} if content == message.content else {"content": content}
        if told is not None:
            changes["response_metadata"] = {**message.response_metadata, **told}
        if self.spent:
            changes["usage_metadata"] = _sum(self.spent, getattr(message, "usage_metadata", None))
        return [self._with_unsaid(_changed(piece, **changes) if changes else piece)]

    def _with_unsaid(self, piece: Generated) -> Generated:
        """The piece with what earlier ones said beside a text that could not be shown yet."""
        unsaid, self._unsaid = self._unsaid, None
        if unsaid is None or not isinstance(piece, ChatGenerationChunk):
            return piece
        nothing: Any = "" if isinstance(piece.message.content, str) else []
        return _changed(unsaid, content=nothing) + piece  # type: ignore[return-value]  # chunks add up to a chunk


def checked_again(answer: Answer, generation: ChatGeneration) -> Plan[ChatGeneration | None]:
    """A whole message that was kept from an earlier call, checked; None if another draft is wanted."""
    drafts = Drafts(answer, [])
    yield from drafts.take(generation)
    shown = yield from drafts.take(None)
    return shown[0] if drafts.messages is None else None


def _is_last(piece: ChatGeneration) -> bool:
    """Whether a piece says that nothing comes after it: a whole message, or the chunk that is marked so."""
    return not isinstance(piece, ChatGenerationChunk) or getattr(piece.message, "chunk_position", None) == "last"


def _calls_tools(message: BaseMessage) -> bool:
    return any(getattr(message, name, None) for name in ("tool_call_chunks", "tool_calls", "invalid_tool_calls"))


def _is_urgent(message: BaseMessage) -> bool:
    """Whether a message without text says what does not wait for text: tool calls, reasoning, usage, that it is the last."""
    return any(getattr(message, name, None) for name in ("tool_call_chunks", "usage_metadata", "additional_kwargs", "chunk_position"))


def _changed(piece: Generated, **changes: Any) -> Generated:
    message = piece.message.model_copy(update=changes)
    return piece.model_copy(update={"message": message, "text": str(message.text)})


def _sum(left: UsageMetadata | None, right: UsageMetadata | None) -> UsageMetadata | None:
    return add_usage(left, right) if left and right else left or right
