"""Models, a web and a store that take a set time to answer, in threads and on event loops, and that note when they were asked."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

from crag_middleware import Passage
from crag_middleware.stages.assemble import approximate_tokens

Kind = Literal["model", "web", "store"]
Label = Literal["relevant", "ambiguous", "incorrect"]

QUESTION = "Which port does the exporter of build 7 listen on?"
KEYWORDS = "exporter build 7 listen port"
ANOTHER = "listening port of the exporter, build 7"
ANSWER = "The exporter of build 7 listens on port 7100 unless the flag --port says otherwise [1]."

_CITIES = ("Lima", "Oslo", "Cairo", "Quito", "Hanoi", "Turin", "Perth", "Malmo", "Dakar", "Osaka")
_REST = (
    "Its service account in {city} reads the configuration file pkg.settings.yaml.",
    "Metrics from {city} are kept longer than before, and may be exported as a table.",
    "Dr. Lee wrote the first version of the guide for the team in {city}.",
    "Customers of the enterprise plan may ask the office in {city} for a copy.",
    "The dashboards of {city} show the same series, unless somebody hides them.",
    "Whoever is on duty in {city} is told when a disk is nearly full.",
)


def _passages(name: str, first: str, cities: Sequence[str]) -> tuple[Passage, ...]:
    return tuple(Passage(f"{name}-{n}", " ".join((first, *_REST)).format(city=city)) for n, city in enumerate(cities))


GOOD = _passages("good", "In {city} the exporter of build 7 listens on port 7100 unless the flag --port says otherwise.", _CITIES[:5])
"""Five passages of 540 characters that hold the answer."""

POOR = _passages("poor", "Refunds are paid within seven days after the returned goods have reached the warehouse of {city}.", _CITIES[:5])
"""Five that share hardly a word with the question."""

FURTHER = _passages("further", "Vouchers are sent from {city} to whoever has written a review.", _CITIES[5:])
"""Five more of that kind, for another query."""

PAGES = tuple(
    Passage(
        f"page-{city}",
        f"Published: the exporter of build 7 listens on port 7100, as the mirror in {city} says.",
        title=city,
        url=f"https://{city.lower()}.example/7",
    )
    for city in _CITIES[:3]
)
"""Three web results that hold the answer."""

_PASSAGE = re.compile(r"<passage[^>]*>\n(.*?)\n</passage>", re.DOTALL)
_CLAIM = re.compile(r"<claim[ >]")
_PIECES = 8


@dataclass(frozen=True)
class Costs:
    """What one call takes, in seconds; a model's first token comes after half of it."""

    model_s: float = 0.4
    web_s: float = 0.3
    store_s: float = 0.03


@dataclass(frozen=True)
class Asked:
    """One call: of what, from when to when in seconds of `time.perf_counter`, and about how many tokens went in and out."""

    kind: Kind
    begin: float
    end: float
    tokens: int = 0


@dataclass
class Tally:
    """The calls of one turn, whichever thread or loop makes them."""

    calls: list[Asked] = field(default_factory=list)

    def note(self, kind: Kind, begin: float, tokens: int = 0) -> None:
        """A call that ends now."""
        self.calls.append(Asked(kind, begin, time.perf_counter(), tokens))

    def count(self, kind: Kind) -> int:
        """How many calls there were."""
        return sum(call.kind == kind for call in self.calls)

    def in_sequence(self) -> int:
        """How many model calls the longest chain has in which each begins after the one before it has ended: most disjoint intervals, earliest end first."""
        chain, ended = 0, 0.0
        for call in sorted((c for c in self.calls if c.kind == "model"), key=lambda c: c.end):
            if call.begin >= ended:
                chain, ended = chain + 1, call.end
        return chain


class SleepingModel(BaseChatModel):
    """A chat model that says what a function makes of its messages, after a while.

    Attributes:
        say: Makes the reply.
        seconds: How long a call takes.
        tally: Where calls are noted.
        sees: Told each request, if somebody wants to see it.
    """

    say: Callable[[Sequence[BaseMessage]], AIMessage]
    seconds: float
    tally: Any
    sees: Callable[[Sequence[BaseMessage]], None] | None = None

    @property
    def _llm_type(self) -> str:
        return "sleeping"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """The model itself: it knows its tools."""
        return self

    def _reply(self, messages: Sequence[BaseMessage]) -> tuple[AIMessage, int]:
        if self.sees:
            self.sees(messages)
        reply = self.say(messages)
        return reply, sum(approximate_tokens(str(m.text)) for m in (*messages, reply))

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        begin, (reply, tokens) = time.perf_counter(), self._reply(messages)
        time.sleep(self.seconds)
        self.tally.note("model", begin, tokens)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        begin, (reply, tokens) = time.perf_counter(), self._reply(messages)
        await asyncio.sleep(self.seconds)
        self.tally.note("model", begin, tokens)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        begin, (reply, tokens) = time.perf_counter(), self._reply(messages)
        for pause, chunk in _pieces(reply, self.seconds):
            time.sleep(pause)
            if run_manager:
                run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk
        self.tally.note("model", begin, tokens)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        begin, (reply, tokens) = time.perf_counter(), self._reply(messages)
        for pause, chunk in _pieces(reply, self.seconds):
            await asyncio.sleep(pause)
            if run_manager:
                await run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
            yield chunk
        self.tally.note("model", begin, tokens)


def _pieces(reply: AIMessage, seconds: float) -> Iterator[tuple[float, ChatGenerationChunk]]:
    """The reply in pieces, each with the pause before it: half of the time, then the rest spread evenly."""
    text = str(reply.text)
    size = max(1, -(-len(text) // _PIECES))
    texts = [text[start : start + size] for start in range(0, len(text), size)]
    pauses = [seconds / 2, *[seconds / 2 / len(texts)] * len(texts)] if texts else [seconds]
    for pause, piece in zip(pauses, texts, strict=False):
        yield pause, ChatGenerationChunk(message=AIMessageChunk(content=piece))
    calls = [tool_call_chunk(name=c["name"], args=json.dumps(c["args"]), id=c["id"], index=i) for i, c in enumerate(reply.tool_calls)]
    yield pauses[-1], ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=calls, chunk_position="last"))


class Store:
    """A store that finds the same passages for every question; for another query than the first the further ones, if there are any."""

    def __init__(self, passages: Sequence[Passage], costs: Costs, tally: Tally, further: Sequence[Passage] = ()) -> None:
        self._passages, self._costs, self._tally, self._further = passages, costs, tally, further

    def _found(self, question: str, limit: int, begin: float) -> list[Passage]:
        self._tally.note("store", begin)
        return list(self._further if self._further and question == ANOTHER else self._passages)[:limit]

    def retrieve(self, question: str, *, agent_id: str, limit: int) -> Sequence[Passage]:
        """The passages, after a while."""
        begin = time.perf_counter()
        time.sleep(self._costs.store_s)
        return self._found(question, limit, begin)

    async def aretrieve(self, question: str, *, agent_id: str, limit: int) -> Sequence[Passage]:
        """The passages, after a while."""
        begin = time.perf_counter()
        await asyncio.sleep(self._costs.store_s)
        return self._found(question, limit, begin)


class Web:
    """A web search that finds the same pages for every query."""

    def __init__(self, costs: Costs, tally: Tally) -> None:
        self._costs, self._tally = costs, tally

    def search(self, query: str, *, limit: int) -> Sequence[Passage]:
        """The pages, after a while."""
        begin = time.perf_counter()
        time.sleep(self._costs.web_s)
        self._tally.note("web", begin)
        return PAGES[:limit]

    async def asearch(self, query: str, *, limit: int) -> Sequence[Passage]:
        """The pages, after a while."""
        begin = time.perf_counter()
        await asyncio.sleep(self._costs.web_s)
        self._tally.note("web", begin)
        return PAGES[:limit]


def answers_after(tool_calls: int) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """What the agent's model says: calls of the tool `look`, one after the other, then the answer."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        last = max(place for place, message in enumerate(messages) if message.type == "human")
        done = sum(isinstance(message, ToolMessage) for message in messages[last:])
        if done < tool_calls:
            return AIMessage("", tool_calls=[{"name": "look", "args": {"what": f"zone {done}"}, "id": f"{last}-{done}"}])
        return AIMessage(ANSWER)

    return say


def grades(label: Label) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """What a grader says: this of all knowledge, and that the pages of the web are relevant."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        said = ["relevant" if "Published" in text else label for text in _PASSAGE.findall(str(messages[-1].text))]
        sure = {"relevant": 0.97, "ambiguous": 0.7, "incorrect": 0.03}
        return _json("grades", [{"passage": n, "label": one, "confidence": sure[one], "reason": ""} for n, one in enumerate(said, 1)])

    return say


def rewrites(messages: Sequence[BaseMessage]) -> AIMessage:
    """What a rewriter says: another query, the stand-alone question, or keywords."""
    asked = str(messages[-1].text)
    return AIMessage(ANOTHER if "<queries>" in asked else QUESTION if "<conversation>" in asked else KEYWORDS)


def supports(messages: Sequence[BaseMessage]) -> AIMessage:
    """What a claim checker says: that the first passage supports every claim."""
    count = len(_CLAIM.findall(str(messages[-1].text)))
    return _json("claims", [{"claim": n, "passage": 1, "label": "supported", "confidence": 0.97} for n in range(1, count + 1)])


def _json(key: str, entries: list[dict[str, Any]]) -> AIMessage:
    return AIMessage(json.dumps({key: entries}))
