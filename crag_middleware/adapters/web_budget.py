"""How many requests a tenant may send to the web: in one turn, and in one day."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from crag_middleware.web_policy import WebPolicy

MAX_TENANTS = 100_000
"""Tenants that are counted at a time; with more, the one not heard of for longest begins again at none."""

_DAY_S = 86_400


class DayLedger:
    """The requests of each tenant today, as far as this process knows. Safe to use from several threads.

    Args:
        wall: Seconds since the epoch.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._day = 0
        self._spent: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, agent_id: str, most: int) -> bool:
        """Counts one request of the tenant, unless `most` were counted today (UTC)."""
        today = int(self._wall() // _DAY_S)
        with self._lock:
            if today != self._day:
                self._day = today
                self._spent.clear()
            spent = self._spent.get(agent_id, 0)
            if spent >= most:
                return False
            self._spent[agent_id] = spent + 1
            self._spent.move_to_end(agent_id)
            if len(self._spent) > MAX_TENANTS:
                self._spent.popitem(last=False)
            return True

    def give_back(self, agent_id: str) -> None:
        """Counts one request less: it was not sent."""
        with self._lock:
            if spent := self._spent.get(agent_id, 0):
                self._spent[agent_id] = spent - 1


@dataclass(slots=True, repr=False)
class Allowance:
    """What one turn of a tenant may still send. A tenant without a limit for the day is not counted."""

    ledger: DayLedger
    agent_id: str
    policy: WebPolicy
    spent: int = 0

    def take(self, *, keep: int = 0) -> bool:
        """Counts one request, unless the turn's or the day's are spent, or the turn would be left with less than it has to `keep`."""
        most = self.policy.requests_per_day
        if self.spent + keep >= self.policy.requests_per_turn or (most is not None and not self.ledger.take(self.agent_id, most)):
            return False
        self.spent += 1
        return True

    def give_back(self) -> None:
        """Counts one request less: it was not sent."""
        self.spent -= 1
        if self.policy.requests_per_day is not None:
            self.ledger.give_back(self.agent_id)
