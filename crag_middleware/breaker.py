"""Which web providers are left alone for a while, since asking them again would be in vain."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

COOL_DOWN_S = {"unauthorized": 300.0, "quota": 300.0, "unavailable": 30.0, "timeout": 30.0}
"""Seconds for which a circuit stays open, by what opened it. Any other answer shows that the provider is there, and closes it."""

AT_ONCE = frozenset({"unauthorized", "quota"})
"""What opens a circuit the first time: the key is wrong, or its plan is used up (HTTP 401, 402, 403, 432, 433)."""

IN_A_ROW = 3
"""Failures of the other kinds, with nothing else between, that open it."""

MAX_CIRCUITS = 10_000
"""Circuits that are remembered, the latest to fail; those without a failure take no room."""


@dataclass(frozen=True, slots=True)
class Permit:
    """The leave to ask; to be settled, whatever comes of it."""

    circuit: Hashable
    trial: bool


@dataclass(slots=True)
class _Circuit:
    """Failures in a row, until when nothing is asked (None while closed), and whether a trial is under way."""

    failures: int = 0
    open_until: float | None = None
    trying: bool = False


class Breaker:
    """Opens a circuit when its provider fails, and lets a single trial through once that has cooled down. Safe to use from several threads.

    Source: M. Nygard, Release It!, "Circuit Breaker".

    Args:
        now: Seconds on a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._circuits: OrderedDict[Hashable, _Circuit] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, circuit: Hashable) -> Permit | None:
        """The leave to ask; None while the circuit is open."""
        with self._lock:
            known = self._circuits.get(circuit)
            if known is None or known.open_until is None:
                return Permit(circuit, trial=False)
            if known.trying or self._now() < known.open_until:
                return None
            known.trying = True
            return Permit(circuit, trial=True)

    def settle(self, permit: Permit, reason: str | None) -> bool:
        """Takes note of what came of asking.

        Args:
            permit: What `admit` gave.
            reason: Empty for an answer, a short code for a failure, None if nothing was learnt.

        Returns:
            Whether this opened the circuit. Staying open after a trial that failed is no news.
        """
        with self._lock:
            known = self._circuits.get(permit.circuit) or _Circuit()
            if permit.trial:
                known.trying = False
            if reason is None:
                return False
            if reason not in COOL_DOWN_S:
                self._circuits.pop(permit.circuit, None)
                return False
            self._circuits[permit.circuit] = known
            self._circuits.move_to_end(permit.circuit)
            if len(self._circuits) > MAX_CIRCUITS:
                self._circuits.popitem(last=False)
            known.failures += 1
            if not permit.trial and reason not in AT_ONCE and known.failures < IN_A_ROW:
                return False
            opened = known.open_until is None
            known.open_until = max(known.open_until or 0.0, self._now() + COOL_DOWN_S[reason])
            return opened
