"""What a driver works with: the ports, who may be asked at the moment, and what is left of the turn's time."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from crag_middleware.breaker import Breaker, Permit
from crag_middleware.meter import Meter
from crag_middleware.pool import Pools
from crag_middleware.ports import Bound
from crag_middleware.steps import Call, PortName
from crag_middleware.telemetry import OpenTelemetry

logger = logging.getLogger(__name__)

T = TypeVar("T")

UNGUARDED = frozenset({"web_search", "approver"})
"""Ports without a circuit of ours: each web provider has its own, and a person is not left alone."""

_POOLS = Pools()


@dataclass(frozen=True, slots=True)
class World:
    """What a driver works with.

    Attributes:
        ports: The ports by name.
        report: Where progress is told.
        timeout_s: Deadline of a turn, in seconds, of which the meter tells what is spent; None for that of each step only.
        tenant: Whose turn it is, as circuits are told apart by: a digest.
        breaker: The circuits; without them every port is asked every time.
        pools: The threads of blocking ports.
        meter: What the turn has cost so far.
        telemetry: Where spans of calls go; None for nowhere.
    """

    ports: Mapping[PortName, Bound]
    report: Callable[[str], None]
    timeout_s: float | None = None
    tenant: str = ""
    breaker: Breaker | None = None
    pools: Pools = _POOLS
    meter: Meter = field(default_factory=Meter)
    telemetry: OpenTelemetry | None = None

    def is_instant(self, call: Call[T]) -> bool:
        """Whether the call never waits, so that it needs neither a thread nor time nor a circuit."""
        return self.ports[call.port].instant

    def admit(self, call: Call[T]) -> Permit | None:
        """The leave to ask, to be settled; None if the port needs none.

        Raises:
            CRAGError: The call's own error: the port's circuit is open, or there is no time for it.
        """
        if self.is_instant(call):
            return None
        if call.timeout_s <= 0:
            raise call.error(f"the {call.port} was not asked: the turn's time was up", reason="deadline")
        if self.breaker is None or call.port in UNGUARDED:
            return None
        permit = self.breaker.admit((self.tenant, call.port))
        if permit is None:
            raise call.error(f"the {call.port} is left alone for a while, since it failed", reason="circuit_open")
        return permit

    def settle(self, call: Call[T], permit: Permit | None, learnt: str | None) -> None:
        """Takes note of what came of the call: see `Breaker.settle`."""
        if permit is not None and self.breaker is not None and self.breaker.settle(permit, learnt):
            logger.warning("crag: the %s of a tenant is left alone for a while: %s", call.port, learnt)


@dataclass(slots=True)
class Stopwatch:
    """Counts milliseconds by stage, and what is left until the turn's deadline; one for each run of a plan."""

    spent: dict[str, float] = field(default_factory=dict)
    stage: str = "reading"
    since: float = field(default_factory=time.perf_counter)
    timeout_s: float = math.inf
    deadline: float = math.inf

    @classmethod
    def of(cls, world: World) -> "Stopwatch":
        """A stopwatch for a plan that begins now, in a turn that has cost something already."""
        if world.timeout_s is None:
            return cls()
        return cls(timeout_s=world.timeout_s, deadline=time.monotonic() + world.timeout_s - world.meter.spent.ms / 1000)

    def within(self, call: Call[T]) -> Call[T]:
        """The call with no more time than the turn leaves it."""
        if self.deadline == math.inf:
            return call
        left = max(0.0, self.deadline - time.monotonic() - call.reserve * self.timeout_s)
        if left >= call.timeout_s:
            return call
        told = {"timeout_s": left} if "timeout_s" in call.keywords else {}
        return replace(call, timeout_s=left, keywords={**call.keywords, **told}, cut=True)

    def enter(self, stage: str) -> None:
        """From now on, time is the stage's."""
        now = time.perf_counter()
        self.spent[self.stage] = self.spent.get(self.stage, 0.0) + (now - self.since) * 1000
        self.stage, self.since = stage, now

    def read(self) -> dict[str, float]:
        """Milliseconds by stage."""
        self.enter(self.stage)
        return {stage: round(ms, 3) for stage, ms in self.spent.items()}
