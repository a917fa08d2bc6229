"""What web providers answered lately, so that nobody is asked the same again at once."""

import hashlib
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from crag_middleware.findings import WebFound
from crag_middleware.stages.merge import fold
from crag_middleware.web_policy import WebPolicy

FOUND_S = 300.0
"""Seconds for which passages are kept."""

NOTHING_S = 20.0
"""Seconds for which it is kept that nothing was found, or that a search failed."""

MAX_ENTRIES = 256
MAX_BYTES = 16_000_000
"""Limits of one cache, over all tenants; what was not asked for longest goes first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of asking one provider: passages, or nothing, or the reason why it failed."""

    passages: WebFound = field(default_factory=WebFound)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    outcome: Outcome
    until: float
    size: int


def search_key(
    agent_id: str, provider: Hashable, query: str, *, limit: int, options: Mapping[str, Any], policy: WebPolicy
) -> tuple[str, Hashable, bytes]:
    """What makes two searches the same: tenant, provider, the query but for case and white space, limit, options, policy."""
    asked = (fold(query), limit, sorted(options.items()), policy.model_dump_json())
    return agent_id, provider, hashlib.sha256(repr(asked).encode(errors="replace")).digest()


class SearchCache:
    """Outcomes by key, bounded in time, number and size. Safe to use from several threads.

    Args:
        now: Seconds on a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Outcome | None:
        """What is remembered under the key; None if that is nothing."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry.until <= self._now():
                self._drop(key)
                return None
            self._entries.move_to_end(key)
            return entry.outcome

    def put(self, key: Hashable, outcome: Outcome) -> None:
        """Remembers an outcome; one that is larger than the whole cache is not kept."""
        size = sys.getsizeof(repr(outcome))
        until = self._now() + (FOUND_S if outcome.passages else NOTHING_S)
        with self._lock:
            self._drop(key)
            if size > MAX_BYTES:
                return
            self._entries[key] = _Entry(outcome, until, size)
            self._bytes += size
            while len(self._entries) > MAX_ENTRIES or self._bytes > MAX_BYTES:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
