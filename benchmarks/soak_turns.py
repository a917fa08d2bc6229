"""The turns of a soak: one middleware, one agent and one collection, and the workers that ask."""

import asyncio
import random
import statistics
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.tools import tool
from soak_parts import (
    Clock,
    Faults,
    Findings,
    Parts,
    SoakModel,
    SoakRetriever,
    SoakWeb,
    agent_id,
    answers,
    checks,
    grades,
    knowledge,
    marker,
    messages,
    rewrites,
)

from crag_middleware import (
    ChatModelClaimChecker,
    ChatModelEvaluator,
    ChatModelRewriter,
    CRAGMiddleware,
    CRAGSettings,
    MilvusRetriever,
    open_knowledge,
)


@tool
def look(what: str) -> str:
    """Looks something up."""
    return f"nothing special about {what}"


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    agent_id: str


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a soak is made of.

    Attributes:
        turns: Turns in all.
        minutes: Time in which new turns begin.
        tenants: Tenants, at most 100.
        threads: Workers that are threads.
        loops: Event loops.
        tasks: Workers on each of them.
        rate: Share of the calls that fail.
        deadline_s: Deadline of each port.
        pause_s: How long each simulated call takes.
        slices: Parts between which the process is looked at; memory is compared with that after the first.
    """

    turns: int = 10_000
    minutes: float = 20.0
    tenants: int = 20
    threads: int = 100
    loops: int = 4
    tasks: int = 25
    rate: float = 0.05
    deadline_s: float = 8.0
    pause_s: float = 1.0
    slices: int = 5


class Soak:
    """One middleware, one agent, one collection, and what all turns on them left behind.

    Args:
        uri: Where Milvus is: an address, or a file for one in this process.
        load: The load.
    """

    def __init__(self, uri: str, load: Load) -> None:
        self.load = load
        self.findings = Findings()
        self._clock = Clock(load.deadline_s)
        self._parts = Parts(Faults(load.rate, load.deadline_s + 0.5), load.pause_s, self._clock, self.findings)
        self._lock = threading.Lock()
        self.overheads, self.walls = array("d"), array("d")  # which take no memory block for each number
        self.statuses: Counter[str] = Counter()
        self.degraded: Counter[str] = Counter()
        store = open_knowledge(uri, DeterministicFakeEmbedding(size=64), embedding_name="fake")
        texts = [
            (text, {"agent_id": agent_id(tenant), "source": "pumps.md"}) for tenant in range(load.tenants) for text in knowledge(tenant)
        ]
        random.Random(7).shuffle(texts)
        store.add_texts([text for text, _ in texts], [metadata for _, metadata in texts])
        settings = CRAGSettings(
            retrieve_timeout_s=load.deadline_s,
            grade_timeout_s=load.deadline_s,
            rewrite_timeout_s=load.deadline_s,
            web_timeout_s=load.deadline_s,
            claim_timeout_s=load.deadline_s,
            web_on_evaluator_failure=True,
            web_on_retrieval_failure=True,
        )
        self.middleware = CRAGMiddleware(
            SoakRetriever(MilvusRetriever(store, settings=settings), self._parts),
            evaluator=ChatModelEvaluator(self.model("evaluator", grades)),
            rewriter=ChatModelRewriter(self.model("rewriter", rewrites)),
            claim_checker=ChatModelClaimChecker(self.model("claim checker", checks)),
            web_search=SoakWeb(self._parts),
            settings=settings,
        )
        model = self.model("agent", answers)
        self._bare: Any = create_agent(model, tools=[look], context_schema=Caller)
        self._agent: Any = create_agent(model, tools=[look], middleware=[self.middleware], context_schema=Caller)

    def model(self, role: str, say: Callable[..., Any]) -> SoakModel:
        """A model of the soak."""
        return SoakModel(role=role, say=say, parts=self._parts)

    def turn(self, number: int) -> None:
        """One turn on this thread; every other one is streamed."""
        tenant, begun = self._begin(number)
        given = self._given(number, tenant)
        try:
            if number % 2:
                result = self._agent.invoke(**given)
            else:
                result = None
                for mode, chunk in self._agent.stream(**given, stream_mode=["custom", "messages", "values"]):
                    result = self._streamed(tenant, mode, chunk) or result
        except Exception as error:  # noqa: BLE001 - whatever a turn raises is what is looked for
            self._failed(number, error)
        else:
            self._ended(number, tenant, begun, result)

    async def aturn(self, number: int) -> None:
        """One turn on the running loop."""
        tenant, begun = self._begin(number)
        given = self._given(number, tenant)
        try:
            if number % 2:
                result = await self._agent.ainvoke(**given)
            else:
                result = None
                async for mode, chunk in self._agent.astream(**given, stream_mode=["custom", "messages", "values"]):
                    result = self._streamed(tenant, mode, chunk) or result
        except Exception as error:  # noqa: BLE001 - whatever a turn raises is what is looked for
            self._failed(number, error)
        else:
            self._ended(number, tenant, begun, result)

    def _begin(self, number: int) -> tuple[int, float]:
        self._clock.begin(number)
        return number % self.load.tenants, time.perf_counter()

    def _given(self, number: int, tenant: int) -> dict[str, Any]:
        return {"input": {"messages": messages(number, tenant)}, "context": Caller(agent_id(tenant))}

    def _streamed(self, tenant: int, mode: str, chunk: Any) -> dict[str, Any] | None:
        self.findings.belongs(f"stream of {mode}", repr(chunk), tenant)
        return chunk if mode == "values" else None

    def _failed(self, number: int, error: Exception) -> None:
        self._clock.overhead_s(number, 0.0)
        self.findings.tell("lost answer", f"turn {number} raised {type(error).__name__}: {error}")

    def _ended(self, number: int, tenant: int, begun: float, result: dict[str, Any] | None) -> None:
        wall, own = time.perf_counter() - begun, self._clock.overhead_s(number, begun)
        result = result or {"messages": [], "crag": {}}
        answer, receipt = (result["messages"] or [None])[-1], result.get("crag") or {}
        wanted = f"Order t{number:06} of {marker(tenant, 'a')}"
        if answer is None or answer.type != "ai" or wanted not in str(answer.text):
            self.findings.tell("lost answer", f"turn {number} ended with another one")
        elif not receipt.get("status"):
            self.findings.tell("lost receipt", f"turn {number}")
        self.findings.belongs(f"result of turn {number}", repr(result), tenant)
        with self._lock:
            self.overheads.append(1000 * own)
            self.walls.append(wall)
            self.statuses[f"{receipt.get('status')}, {receipt.get('verdict')}"] += 1
            self.degraded.update(f"{trouble['step']}: {trouble['reason']}" for trouble in receipt.get("degraded", ()))

    def run(self, numbers: Iterator[int], until: float) -> None:
        """All workers take turns from these until there are none left, or it is so late by `time.monotonic`; threads and loops are new ones each time."""
        load, guard = self.load, threading.Lock()

        def following() -> Iterator[int]:
            while time.monotonic() < until:
                with guard:
                    number = next(numbers, None)
                if number is None:
                    return
                yield number

        def sync_worker() -> None:
            for number in following():
                self.turn(number)

        async def async_worker() -> None:
            for number in following():
                await self.aturn(number)

        async def loop() -> None:
            await asyncio.gather(*(async_worker() for _ in range(load.tasks)))

        workers = [threading.Thread(target=sync_worker, daemon=True) for _ in range(load.threads)]
        workers += [threading.Thread(target=lambda: asyncio.run(loop()), daemon=True) for _ in range(load.loops)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def settle(self) -> None:
        """Waits until the calls that were left behind have ended, and with them the threads of the pools."""
        until = time.monotonic() + self.load.deadline_s + 5.0
        while time.monotonic() < until and (any(self.middleware.left_behind.values()) or any(map(_is_port, threading.enumerate()))):
            time.sleep(0.1)
        if left := {port: count for port, count in self.middleware.left_behind.items() if count}:
            self.findings.tell("left behind", f"{left} after all calls have ended")

    def alone(self, count: int) -> tuple[dict[str, float], dict[str, float]]:
        """The overhead of turns that run one after the other, without faults and pauses, half of them async: with the middleware, and without."""
        parts = self._parts
        kept = parts.faults, parts.pause_s
        parts.faults, parts.pause_s = Faults(0.0, 0.0), 0.0
        bare: list[float] = []

        async def several() -> None:
            for number in range(900_000, 900_000 + count // 2):
                await self.aturn(number)
                bare.append(await self._abare_ms(number))

        asyncio.run(several())
        for number in range(950_000, 950_000 + count // 2):
            self.turn(number)
            bare.append(self._bare_ms(number))
        own = percentiles(self.overheads)
        parts.faults, parts.pause_s = kept
        self.overheads, self.walls = array("d"), array("d")
        self.statuses.clear()
        self.degraded.clear()
        return own, percentiles(bare)

    def _bare_ms(self, number: int) -> float:
        tenant, begun = self._begin(number)
        self._bare.invoke(**self._given(number, tenant))
        return 1000 * self._clock.overhead_s(number, begun)

    async def _abare_ms(self, number: int) -> float:
        tenant, begun = self._begin(number)
        await self._bare.ainvoke(**self._given(number, tenant))
        return 1000 * self._clock.overhead_s(number, begun)


def _is_port(thread: threading.Thread) -> bool:
    return thread.name.startswith("crag")


def percentiles(numbers: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile; nothing of fewer than two numbers."""
    if len(numbers) < 2:
        return {}
    cuts = statistics.quantiles(numbers, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2)}
