"""What a grounded turn takes beside a bare one: this middleware in each verdict, retrieval before every model call, and a graph that grades a passage a call.

    python benchmarks/turns.py [--repeat 3] [--json] [--check]

Models take 400 ms a call (the first token comes after half of it), the web 300 ms, the store 30 ms; they sleep, in threads or on the event loop. Each turn is a
tool loop of two steps and an answer, over five passages; all ways run in one process, one after the other, so that no turn waits for another. Shown is the
median turn, less the bare agent's: seconds to the first token of the answer and to the end, model calls, how many of them follow on each other, web searches,
store searches and tokens. Then the milliseconds of CPU time that the middleware adds to a turn whose parts answer at once. With --check the exit code is 1 if
what is promised is not held.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal, get_args

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from rivals import RetrieveAlways, corrective_graph
from simulated import (
    ANSWER,
    FURTHER,
    GOOD,
    POOR,
    QUESTION,
    Costs,
    Label,
    SleepingModel,
    Store,
    Tally,
    Web,
    answers_after,
    grades,
    rewrites,
    supports,
)
from texts import QUESTIONS, by_language

from crag_middleware import (
    ChatModelClaimChecker,
    ChatModelEvaluator,
    ChatModelRewriter,
    CRAGMiddleware,
    CRAGSettings,
    Passage,
    WebPolicy,
)
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever

How = Literal["sync", "async"]
TOOL_CALLS = 2
BARE = "bare agent"
HISTORY: list[AnyMessage] = [HumanMessage("What is the exporter?"), AIMessage("A small program that publishes metrics.")]
CPU_MS = 5.0
"""Promised of the middleware's own CPU time in a turn with 20 candidates and the settings' own `top_k`, in milliseconds."""


@tool
def look(what: str) -> str:
    """Looks something up."""
    return f"{what}: nothing special"


class Parts:
    """The sleeping parts of one way, and the tally that they share."""

    def __init__(self, costs: Costs) -> None:
        self.costs, self.tally = costs, Tally()
        self.web = Web(costs, self.tally)
        self.agent_model = SleepingModel(say=answers_after(TOOL_CALLS), seconds=costs.model_s, tally=self.tally)

    def store(self, passages: Sequence[Passage], further: Sequence[Passage] = ()) -> Store:
        """A store over these passages."""
        return Store(passages, self.costs, self.tally, further)

    def inner(self, say: Callable[[Sequence[BaseMessage]], AIMessage]) -> SleepingModel:
        """A model for an inner call, which no stream of the user's shows."""
        return SleepingModel(say=say, seconds=self.costs.model_s, tally=self.tally, tags=["nostream"])

    def agent(self, *middleware: Any) -> Any:
        """The agent with this middleware."""
        return create_agent(self.agent_model, tools=[look], middleware=middleware)


@dataclass(frozen=True)
class Promise:
    """At most so many model calls in sequence, and so many seconds, more than the bare agent. No limit on the seconds where None."""

    calls: int
    seconds: float | None


@dataclass(frozen=True)
class Way:
    """One way to a grounded answer: how it is built, what was said before, and what is promised of it."""

    name: str
    build: Callable[[Parts], Any]
    history: list[AnyMessage] = field(default_factory=list)
    promise: Promise | None = None


@dataclass(frozen=True)
class Turn:
    """One turn: seconds to the first token of the answer and to the end, calls, and tokens of all model calls."""

    first_s: float
    end_s: float
    model_calls: float
    in_sequence: float
    web: float
    store: float
    tokens: float

    def less(self, other: "Turn") -> "Turn":
        """What it takes more than another."""
        mine, others = asdict(self), asdict(other)
        return Turn(**{name: round(mine[name] - others[name], 3) for name in mine})


def crag(
    verdict: Label,
    passages: Sequence[Passage],
    *,
    further: Sequence[Passage] = (),
    checks: bool = False,
    policy: WebPolicy | None = None,
    **settings: Any,
) -> Callable[[Parts], Any]:
    """This middleware, with a grader that comes to this verdict on the store's passages."""

    def build(parts: Parts) -> Any:
        middleware = CRAGMiddleware(
            parts.store(passages, further),
            "a",
            evaluator=ChatModelEvaluator(parts.inner(grades(verdict))),
            rewriter=ChatModelRewriter(parts.inner(rewrites)),
            web_search=parts.web,
            web_policy=policy,
            claim_checker=ChatModelClaimChecker(parts.inner(supports)) if checks else None,
            settings=CRAGSettings(**settings),
        )
        return parts.agent(middleware)

    return build


def graph(passages: Sequence[Passage]) -> Callable[[Parts], Any]:
    """The corrective graph over these passages."""
    return lambda parts: corrective_graph(parts.agent_model, parts.inner, parts.store(passages), parts.web, [look])


MIXED = (*GOOD[:4], POOR[4])
WAYS = (
    Way(BARE, lambda parts: parts.agent()),
    Way("relevant", crag("relevant", GOOD), promise=Promise(1, 0.5)),
    Way("ambiguous", crag("ambiguous", POOR, max_rewrites=0), promise=Promise(2, 1.3)),
    Way("ambiguous, speculative web", crag("ambiguous", POOR, policy=WebPolicy(mode="speculative")), promise=Promise(2, 1.3)),
    Way("ambiguous, passages share the question's words", crag("ambiguous", GOOD)),
    Way("incorrect", crag("incorrect", POOR, max_rewrites=0), promise=Promise(2, 1.3)),
    Way("incorrect, passages share the question's words", crag("incorrect", GOOD, max_rewrites=0)),
    Way("incorrect, a rewrite round that finds nothing new", crag("incorrect", POOR, max_rewrites=1), promise=Promise(3, None)),
    Way("incorrect, a rewrite round that finds new passages", crag("incorrect", POOR, further=FURTHER, max_rewrites=1)),
    Way("relevant, follow-up question", crag("relevant", GOOD), HISTORY, Promise(2, None)),
    Way("relevant, claims checked by a model", crag("relevant", GOOD, checks=True), promise=Promise(2, None)),
    Way("incorrect, claims checked by a model", crag("incorrect", POOR, checks=True, max_rewrites=0), promise=Promise(3, None)),
    Way("retrieval before every model call", lambda parts: parts.agent(RetrieveAlways(parts.store(GOOD)))),
    Way("a grading call a passage, all relevant", graph(GOOD)),
    Way("a grading call a passage, one is not", graph(MIXED)),
)


def measured(ways: Sequence[Way], costs: Costs, *, repeat: int, warm_up: int = 1) -> dict[How, dict[str, Turn]]:
    """The median turn of each way, sync and async.

    Args:
        ways: The ways.
        costs: What calls take.
        repeat: Turns of each way that count.
        warm_up: Turns before them, which load what the others find loaded.

    Raises:
        AssertionError: A turn did not end with the answer.
    """
    found: dict[How, dict[str, list[Turn]]] = {how: {way.name: [] for way in ways} for how in get_args(How)}
    for n, way in product(range(-warm_up, repeat), ways):
        for how, run in _RUNS.items():
            parts = Parts(costs)
            turn = run(way.build(parts), way, parts.tally)  # built anew: the web search remembers what it found
            if n >= 0:
                found[how][way.name].append(turn)
    return {how: {name: _median(turns) for name, turns in rows.items()} for how, rows in found.items()}


def _median(turns: Sequence[Turn]) -> Turn:
    return Turn(**{name: statistics.median(asdict(turn)[name] for turn in turns) for name in asdict(turns[0])})


class _Reader:
    """Reads a stream: when the answer's first token came, and what it said."""

    def __init__(self, tally: Tally) -> None:
        self._tally, self._begun, self._first, self._said = tally, time.perf_counter(), 0.0, ""

    def read(self, chunk: Any) -> None:
        text = str(chunk.text) if isinstance(chunk, AIMessage) else ""
        self._first = self._first or (time.perf_counter() if text else 0.0)
        self._said += text

    def turn(self) -> Turn:
        ended = time.perf_counter()
        if ANSWER not in self._said:
            msg = f"a turn ended without the answer, with {self._said!r}"
            raise AssertionError(msg)
        tally = self._tally
        return Turn(
            self._first - self._begun,
            ended - self._begun,
            tally.count("model"),
            tally.in_sequence(),
            tally.count("web"),
            tally.count("store"),
            sum(call.tokens for call in tally.calls),
        )


def _sync(agent: Any, way: Way, tally: Tally) -> Turn:
    reader = _Reader(tally)
    chunks: Iterator[Any] = agent.stream(_asked(way), stream_mode="messages", subgraphs=True)
    for _, (chunk, _) in chunks:
        reader.read(chunk)
    return reader.turn()


async def _asynchronously(agent: Any, way: Way, tally: Tally) -> Turn:
    reader = _Reader(tally)
    chunks: AsyncIterator[Any] = agent.astream(_asked(way), stream_mode="messages", subgraphs=True)
    async for _, (chunk, _) in chunks:
        reader.read(chunk)
    return reader.turn()


def _async(agent: Any, way: Way, tally: Tally) -> Turn:
    return asyncio.run(_asynchronously(agent, way, tally))


_RUNS: dict[How, Callable[[Any, Way, Tally], Turn]] = {"sync": _sync, "async": _async}


def _asked(way: Way) -> dict[str, Any]:
    return {"messages": [*way.history, HumanMessage(QUESTION)]}


def extra(found: dict[How, dict[str, Turn]]) -> dict[How, dict[str, Turn]]:
    """Each way less the bare agent."""
    return {how: {name: turn.less(rows[BARE]) for name, turn in rows.items()} for how, rows in found.items()}


def broken(ways: Sequence[Way], added: dict[How, dict[str, Turn]]) -> list[str]:
    """The promises that are not held."""
    said = []
    for how, rows in added.items():
        for way in ways:
            promise, turn = way.promise, rows[way.name]
            if promise and turn.in_sequence > promise.calls:
                said.append(f"{way.name}, {how}: {turn.in_sequence:g} model calls in sequence, promised {promise.calls}")
            if promise and promise.seconds is not None and turn.end_s > promise.seconds:
                said.append(f"{way.name}, {how}: {turn.end_s:.2f} s, promised {promise.seconds:.2f} s")
    return said


class _Instant(ScriptedChatModel):
    """Says the same at once, and keeps nothing."""

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        return AIMessage(ANSWER)


def own_cpu_ms(texts: Sequence[str], question: str, *, top_k: int, rounds: int = 70) -> dict[How, float]:
    """CPU milliseconds of all threads that the middleware adds to a turn whose parts answer at once.

    Args:
        texts: What the store finds.
        question: The question.
        top_k: How many of them are graded.
        rounds: Turns of which the median counts.
    """
    found = [Passage(str(n), text) for n, text in enumerate(texts)]
    settings = CRAGSettings(top_k=top_k, max_context_tokens=20_000)
    bare = create_agent(_Instant(replies=[]))
    added: dict[How, float] = {}
    for how in get_args(How):
        middleware = CRAGMiddleware(ScriptedRetriever({"a": found}), "a", evaluator=ScriptedEvaluator(), settings=settings)
        grounded = create_agent(_Instant(replies=[]), middleware=[middleware])
        plain, whole = (asyncio.run(_cpu_ms(agent, question, how, rounds)) for agent in (bare, grounded))
        added[how] = round(whole - plain, 2)
    return added


async def _cpu_ms(agent: Any, question: str, how: How, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        asked, begun = {"messages": [("user", question)]}, time.process_time()
        if how == "sync":
            agent.invoke(asked)
        else:
            await agent.ainvoke(asked)
        times.append((time.process_time() - begun) * 1000)
    return statistics.median(times[5:])


def table(added: dict[How, dict[str, Turn]], bare: dict[How, dict[str, Turn]]) -> str:
    """The ways as a Markdown table, async in brackets."""
    lines = [
        "| over one bare turn | s to the first token | s to the end | model calls | in sequence | web | store | tokens |",
        "| --- " * 8 + "|",
    ]
    for name in added["sync"]:
        rows = bare if name == BARE else added
        sync, async_ = rows["sync"][name], rows["async"][name]
        seconds = [f"{a:.2f} ({b:.2f})" for a, b in ((sync.first_s, async_.first_s), (sync.end_s, async_.end_s))]
        counts = [
            f"{getattr(sync, key):g}" + (f" ({getattr(async_, key):g})" if getattr(sync, key) != getattr(async_, key) else "")
            for key in ("model_calls", "in_sequence", "web", "store", "tokens")
        ]
        label = f"{name}, in all" if name == BARE else name
        lines.append(f"| {label} | {' | '.join((*seconds, *counts))} |")
    return "\n".join(lines)


def main() -> int:
    """Measures and prints; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="turns of each way that are looked at, beside the first")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a promise is not held")
    given = parser.parse_args()
    bare = measured(WAYS, Costs(), repeat=given.repeat)
    added = extra(bare)
    cpu = {
        f"{language}, {top_k} of 20 graded": own_cpu_ms(texts, QUESTIONS[language], top_k=top_k)
        for (language, texts), top_k in product(by_language().items(), (5, 20))
    }
    said = broken(WAYS, added)
    said += [
        f"own CPU time, {what}, {how}: {ms} ms" for what, row in cpu.items() for how, ms in row.items() if "5 of" in what and ms > CPU_MS
    ]
    if given.json:
        rows = {how: {name: asdict(turn) for name, turn in turns.items()} for how, turns in added.items()}
        whole = {how: asdict(turns[BARE]) for how, turns in bare.items()}
        print(json.dumps({"bare": whole, "added": rows, "own_cpu_ms": cpu, "broken": said}, indent=1))
    else:
        print(table(added, bare))
        print("\n| own CPU time | ms sync | ms async |\n| --- | --- | --- |")
        print("\n".join(f"| {what} | {row['sync']} | {row['async']} |" for what, row in cpu.items()))
        print("\nPromises: " + ("all held" if not said else "not held\n" + "\n".join(f"- {line}" for line in said)))
    return int(given.check and bool(said))


if __name__ == "__main__":
    sys.exit(main())
