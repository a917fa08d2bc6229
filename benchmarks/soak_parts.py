"""What a soak is made of: tenants with words of their own, models and ports that fail now and then, and somebody who looks at every text that passes.

A marker is a made-up word such as `qz07kzq`: it names the tenant (7) and where it stands: in its questions (q), knowledge (k), web pages (w), answers (a) or
its id (t). Every turn has a number of its own in its question, `t004217`. So each text says itself whose it is.
"""

import asyncio
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from zlib import crc32

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable

from crag_middleware import MilvusRetriever, Passage

PUMPS = 20
"""Rows of a tenant's knowledge."""

SHOWN = 20
"""Findings of a kind that are kept; all are counted."""

_MARKER = re.compile(r"qz(\d\d)([qkwat])zq")
_TURN = re.compile(r"\bt(\d{6})\b")
_PUMP = re.compile(r"pump (\d+)")
_PASSAGE = re.compile(r"<passage[^>]*>\n(.*?)\n</passage>", re.DOTALL)
_CLAIM = re.compile(r"<claim[ >]")

Fault = Literal["raises", "hangs", "garbage"]


def marker(tenant: int, kind: str) -> str:
    """The tenant's word of a kind."""
    return f"qz{tenant:02}{kind}zq"


def agent_id(tenant: int) -> str:
    """The tenant's id."""
    return f"org-{marker(tenant, 't')}"


def knowledge(tenant: int) -> list[str]:
    """The tenant's texts."""
    mine = marker(tenant, "k")
    return [f"The torque of pump {pump} of {mine} is {3 * pump + tenant} Nm. It is serviced twice a year." for pump in range(PUMPS)]


def messages(number: int, tenant: int) -> list[AnyMessage]:
    """What the tenant's user asks in this turn; every fourth turn has a history."""
    mine, pump = marker(tenant, "q"), number % PUMPS
    earlier: list[AnyMessage] = [HumanMessage(f"Tell me of pump {pump} at {mine}."), AIMessage(f"It is old, says {marker(tenant, 'a')}.")]
    asked = HumanMessage(f"What is the torque of pump {pump} at {mine} for order t{number:06}?")
    return [*(earlier if number % 4 == 1 else []), asked]


@dataclass
class Findings:
    """What was found wrong, each kind counted, the first few told; and what was logged, by logger and level."""

    counts: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    logged: Counter[str] = field(default_factory=Counter)

    def tell(self, kind: str, where: str) -> None:
        """Something is wrong."""
        self.counts[kind] += 1
        if len(self.told) < SHOWN:
            self.told.append(f"{kind}: {where}")

    def belongs(self, where: str, text: str, tenant: int | None = None, kinds: str = "qkwat") -> None:
        """Tells of markers of another tenant, or of several where none is given; and of kinds that have no business there."""
        found = set(_MARKER.findall(text))
        owners = {int(owner) for owner, _ in found} | ({tenant} if tenant is not None else set())
        if len(owners) > 1:
            self.tell("cross-tenant marker", f"{where}: {sorted(''.join(pair) for pair in found)}")
        if stray := {kind for _, kind in found} - set(kinds):
            self.tell("private text", f"{where}: {sorted(stray)}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Every log line and every error of a dying thread is looked at, whatever the logger: nothing private stands in one."""
        listener = _Listener(self)
        loggers = [
            logging.root,
            *(it for it in logging.root.manager.loggerDict.values() if isinstance(it, logging.Logger) and not it.propagate),
        ]
        level, hook = logging.root.level, threading.excepthook
        logging.root.setLevel(logging.INFO)
        threading.excepthook = lambda args: self.tell("dead thread", getattr(args.exc_type, "__name__", ""))
        for logger in loggers:
            logger.addHandler(listener)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(listener)
            logging.root.setLevel(level)
            threading.excepthook = hook


class _Listener(logging.Handler):
    def __init__(self, findings: Findings) -> None:
        super().__init__()
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        self._findings.logged[f"{record.name} {record.levelname}"] += 1
        line = self.format(record)
        self._findings.belongs(f"log line of {record.name}", line, kinds="")
        if _TURN.search(line):
            self._findings.tell("private text", f"log line of {record.name}: a question")


@dataclass
class Clock:
    """When each turn's ports and models were at work: the rest of a turn's time is overhead."""

    deadline_s: float
    _turns: dict[int, list[list[float]]] = field(default_factory=dict)

    def begin(self, number: int) -> None:
        """A turn begins."""
        self._turns[number] = []

    @contextmanager
    def at_work(self, text: str) -> Iterator[None]:
        """A port or model of the turn whose question this is works while this is open."""
        numbers = _TURN.findall(text)
        span = [time.perf_counter(), 0.0]
        spans = self._turns.get(int(numbers[-1])) if numbers else None
        if spans is not None:
            spans.append(span)
        try:
            yield
        finally:
            span[1] = time.perf_counter()

    def overhead_s(self, number: int, begun: float) -> float:
        """The turn's time until now in which nothing of it was at work; a call that was left behind counts until its deadline."""
        now = reached = time.perf_counter()
        reached = begun
        busy = 0.0
        for begin, end in sorted((b, e or min(now, b + self.deadline_s)) for b, e in self._turns.pop(number)):
            busy += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return now - begun - busy


@dataclass(frozen=True)
class Faults:
    """Which calls fail, and how: by the port and the text it is given, so the same in each run.

    Attributes:
        rate: Their share, in [0, 1].
        hang_s: How long one hangs, in seconds: longer than its deadline.
    """

    rate: float
    hang_s: float

    def of(self, port: str, text: str) -> Fault | None:
        """How this call fails, if it does."""
        drawn = crc32(f"{port}:{text}".encode())
        kinds: tuple[Fault, ...] = ("raises", "hangs", "garbage")
        return kinds[drawn % 3] if drawn / 2**32 < self.rate else None


class SoakError(Exception):
    """What a port at fault raises; its text is private."""


GARBAGE = '\x00<html>\ufffd 502 Bad Gateway {"grades": [{'


class SoakModel(BaseChatModel):
    """A model that answers from what it is asked and fails now and then.

    Attributes:
        role: What it is for; the agent's own never fails.
        say: Makes the reply of what it is asked.
        parts: The soak's.
    """

    role: str
    say: Callable[[Sequence[BaseMessage]], AIMessage]
    parts: Any

    @property
    def _llm_type(self) -> str:
        return "soak"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """The model itself: it knows its tools."""
        return self

    def _begin(self, messages: Sequence[BaseMessage]) -> tuple[str, Fault | None]:
        text = "\n".join(str(message.text) for message in messages)
        self.parts.findings.belongs(f"call of the {self.role}", text)
        if not _MARKER.search(text) or not _TURN.search(text):
            self.parts.findings.tell("unknown call", self.role)
        fault = None if self.role == "agent" else self.parts.faults.of(self.role, text)
        if fault == "raises":
            raise SoakError(text)
        return text, fault

    def _end(self, messages: Sequence[BaseMessage], fault: Fault | None) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(GARBAGE) if fault else self.say(messages))])

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        text, fault = self._begin(messages)
        with self.parts.clock.at_work(text):
            time.sleep(self.parts.seconds(fault))
            return self._end(messages, fault)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        text, fault = self._begin(messages)
        with self.parts.clock.at_work(text):
            await asyncio.sleep(self.parts.seconds(fault))
            return self._end(messages, fault)


class SoakRetriever:
    """The knowledge in Milvus, which fails now and then."""

    def __init__(self, inner: MilvusRetriever, parts: "Parts") -> None:
        self._inner, self._parts = inner, parts

    def retrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Any:
        """What Milvus finds."""
        fault = self._parts.begin("retriever", question, agent_id)
        with self._parts.clock.at_work(question):
            if fault:
                time.sleep(self._parts.seconds(fault))
                return [GARBAGE]
            return self._inner.retrieve(question, agent_id=agent_id, limit=limit, timeout_s=timeout_s)

    async def aretrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Any:
        """What Milvus finds."""
        fault = self._parts.begin("retriever", question, agent_id)
        with self._parts.clock.at_work(question):
            if fault:
                await asyncio.sleep(self._parts.seconds(fault))
                return [GARBAGE]
            return await self._inner.aretrieve(question, agent_id=agent_id, limit=limit, timeout_s=timeout_s)


class SoakWeb:
    """A web that has a page for each tenant, and fails now and then. Nothing but a question's words may reach it."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts

    def search(self, query: str, *, agent_id: str) -> Any:
        """The tenant's page."""
        fault = self._parts.begin("web", query, agent_id, kinds="q")
        with self._parts.clock.at_work(query):
            time.sleep(self._parts.seconds(fault))
            return _page(query, fault)

    async def asearch(self, query: str, *, agent_id: str) -> Any:
        """The tenant's page."""
        fault = self._parts.begin("web", query, agent_id, kinds="q")
        with self._parts.clock.at_work(query):
            await asyncio.sleep(self._parts.seconds(fault))
            return _page(query, fault)


def _page(query: str, fault: Fault | None) -> Any:
    owner = _MARKER.search(query)
    if fault or owner is None:
        return 7
    text = f"Published by {marker(int(owner[1]), 'w')}: {query}: the torque is 12 Nm."
    return [Passage(f"page-{crc32(query.encode())}", text, title="Data sheet", url=f"https://{owner[1]}.example/{crc32(query.encode())}")]


@dataclass
class Parts:
    """What all models and ports of a soak share.

    Attributes:
        faults: Which calls fail.
        pause_s: How long a call takes, in seconds.
        clock: When they work.
        findings: What is wrong.
    """

    faults: Faults
    pause_s: float
    clock: Clock
    findings: Findings

    def begin(self, port: str, text: str, agent: str, kinds: str = "qkwat") -> Fault | None:
        """Looks at what a port is given; how it is to fail, if it is.

        Raises:
            SoakError: It raises.
        """
        owner = _MARKER.search(agent)
        self.findings.belongs(f"call of the {port}", text, int(owner[1]) if owner else -1, kinds)
        fault = self.faults.of(port, text)
        if fault == "raises":
            raise SoakError(text)
        return fault

    def seconds(self, fault: Fault | None) -> float:
        """How long a call takes."""
        return self.faults.hang_s if fault == "hangs" else self.pause_s


def grades(messages: Sequence[BaseMessage]) -> AIMessage:
    """The grader's reply: of five turns three have relevant knowledge, one ambiguous, one incorrect; what the web says is relevant."""
    asked = str(messages[-1].text)
    label = ("relevant", "relevant", "relevant", "ambiguous", "incorrect")[_number(asked) % 5]
    sure = {"relevant": 0.97, "ambiguous": 0.7, "incorrect": 0.03}
    said = ["relevant" if "Published" in text else label for text in _PASSAGE.findall(asked)]
    return AIMessage(
        json.dumps({"grades": [{"passage": n, "label": one, "confidence": sure[one], "reason": ""} for n, one in enumerate(said, 1)]})
    )


def rewrites(messages: Sequence[BaseMessage]) -> AIMessage:
    """The rewriter's reply: another query, the stand-alone question, or keywords."""
    asked = str(messages[-1].text)
    mine, order, pump = f"qz{_owner(asked):02}qzq", f"t{_number(asked):06}", _PUMP.findall(asked)[-1]
    if "<queries>" in asked:
        return AIMessage(f"tightening moment of pump {pump} at {mine} for order {order}")
    return AIMessage(
        f"What is the torque of pump {pump} at {mine} for order {order}?"
        if "<conversation>" in asked
        else f"torque pump {pump} {mine} {order}"
    )


def checks(messages: Sequence[BaseMessage]) -> AIMessage:
    """The claim checker's reply: the first passage supports everything."""
    count = len(_CLAIM.findall(str(messages[-1].text)))
    return AIMessage(
        json.dumps({"claims": [{"claim": n, "passage": 1, "label": "supported", "confidence": 0.97} for n in range(1, count + 1)]})
    )


def answers(messages: Sequence[BaseMessage]) -> AIMessage:
    """The agent's reply: in every third turn a call of the tool first, then an answer that names its question and cites the first source."""
    last = max(place for place, message in enumerate(messages) if message.type == "human")
    asked = str(messages[last].text)
    number, owner = _number(asked), _owner(asked)
    if number % 3 == 0 and not any(isinstance(message, ToolMessage) for message in messages[last:]):
        return AIMessage(
            "", tool_calls=[{"name": "look", "args": {"what": f"order t{number:06} {marker(owner, 'q')}"}, "id": f"call-{number}"}]
        )
    return AIMessage(f"Order t{number:06} of {marker(owner, 'a')}: the torque of pump {number % PUMPS} is known [1].")


def _number(text: str) -> int:
    """The turn's number: of the question, which stands last."""
    return int(_TURN.findall(text)[-1])


def _owner(text: str) -> int:
    return int(_MARKER.findall(text)[-1][0])
