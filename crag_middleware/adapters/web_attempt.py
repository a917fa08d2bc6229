"""One provider's part in a web search: remembered, left alone, or asked, with repetitions."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from crag_middleware.adapters.web_budget import Allowance
from crag_middleware.adapters.web_cache import Outcome, SearchCache, search_key
from crag_middleware.breaker import AT_ONCE, Breaker
from crag_middleware.errors import WebSearchError
from crag_middleware.findings import WebAttempt, WebFound
from crag_middleware.pool import Pools
from crag_middleware.ports import Bound
from crag_middleware.steps import Call, search_web
from crag_middleware.tenancy import Scope, digest
from crag_middleware.web_policy import WebPolicy
from crag_middleware.world import World

logger = logging.getLogger(__name__)

REPEATED = frozenset({"rate_limited", "unavailable"})
"""Failures after which the same request may do better; any other would only cost again."""

MAX_REPETITIONS = 2
"""Repetitions of one request at most."""

FIRST_PAUSE_S = 0.5
"""Seconds before the first repetition, at most, unless the provider asks for more; each later pause is twice as long."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, which tests replace.

    Attributes:
        now: Seconds on a clock that never goes back.
        wall: Seconds since the epoch.
        sleep: Waits for so many seconds.
        asleep: Its async form.
        chance: A number from [0, 1).
    """

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    asleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


REAL = Clock()
"""The time that everybody has."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A web search at its place in the chain."""

    place: int
    port: object
    bound: Bound

    @property
    def name(self) -> str:
        """The name it has, else its class name."""
        return str(getattr(self.port, "name", "") or type(self.port).__name__)

    @property
    def credential(self) -> str:
        """What stands for the key it has now, if it tells."""
        return str(getattr(self.port, "credential", ""))


@dataclass(frozen=True, slots=True)
class Ask:
    """A provider is asked; the answer is its passages, or a `WebSearchError`."""

    bound: Bound
    call: Call[WebFound]
    scope: Scope

    def world(self, pools: Pools) -> World:
        """What a driver needs to perform the call, with these threads where the provider blocks."""
        return World({"web_search": self.bound}, report=lambda stage: None, tenant=digest(self.scope.agent_id), pools=pools)


@dataclass(frozen=True, slots=True)
class Pause:
    """So many seconds pass; the answer is None."""

    seconds: float


T = TypeVar("T")
Steps = Generator[Ask | Pause, Any, T]
"""What a search asks of the world before it returns a T."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Search:
    """One search: what is asked, for whom, how much of it may be sent. Its text form shows neither query nor tenant."""

    query: str
    scope: Scope
    limit: int
    options: Mapping[str, Any]
    policy: WebPolicy
    allowance: Allowance

    def key(self, provider: Provider) -> tuple[Any, ...]:
        """What the provider's answer is remembered under."""
        return search_key(self.scope.agent_id, provider.place, self.query, limit=self.limit, options=self.options, policy=self.policy)

    def ask(self, provider: Provider, timeout_s: float) -> Ask:
        """One request to the provider, its reply checked."""
        call = search_web(self.query, self.scope, limit=self.limit, timeout_s=timeout_s, options=self.options, policy=self.policy)
        return Ask(provider.bound, call, self.scope)


class Attempts:
    """Makes attempts, and remembers of them what the next ones should know. Safe to use from several threads and event loops.

    Args:
        clock: Time and chance.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._breaker = Breaker(clock.now)
        self._cache = SearchCache(clock.now)

    def attempt(self, provider: Provider, search: Search, *, until: float, to_come: int) -> Steps[tuple[WebFound, WebAttempt]]:
        """What a provider found, and its record.

        Args:
            provider: Who is asked, unless the answer is remembered or the circuit is open.
            search: For whom and what.
            until: When it must end, repetitions included, on the clock.
            to_come: Providers after it, for each of which repetitions leave a request of the turn's budget.
        """
        begun = self._clock.now()
        outcome, requests = yield from self._consult(provider, search, until, to_come)
        ms = round((self._clock.now() - begun) * 1000, 3)
        found = outcome.passages
        return found, WebAttempt(provider=provider.name, reason=outcome.reason, results=len(found), requests=requests, ms=ms)

    def _consult(self, provider: Provider, search: Search, until: float, to_come: int) -> Steps[tuple[Outcome, int]]:
        """What a provider has to say, remembered or asked for, and how many requests left for it."""
        key = search.key(provider)
        if (known := self._cache.get(key)) is not None:
            return known, 0
        permit = self._breaker.admit((search.scope.agent_id, provider.place, provider.credential))
        if permit is None:
            return Outcome(reason="breaker_open"), 0
        learnt = None
        try:
            outcome, requests = yield from self._request(provider, search, until, to_come)
            if requests:
                learnt = outcome.reason
        finally:  # A search that is cancelled gives its permit back.
            if self._breaker.settle(permit, learnt):
                logger.warning("the web search %s is left alone for a while: %s", provider.name, learnt)
        if requests and outcome.reason not in AT_ONCE:
            self._cache.put(key, outcome)
        return outcome, requests

    def _request(self, provider: Provider, search: Search, until: float, to_come: int) -> Steps[tuple[Outcome, int]]:
        """What a provider answers, with repetitions, and how many requests left for it."""
        if self._clock.now() >= until:
            return Outcome(reason="timeout"), 0
        if not search.allowance.take():
            return Outcome(reason="budget"), 0
        sent = repetitions = 0
        while True:
            begun = self._clock.now()
            try:
                found: WebFound = yield search.ask(provider, until - begun)
            except WebSearchError as error:
                reason, asked_for = error.reason or "failed", error.retry_after_s
                has_left = error.sent and reason != "busy"  # then no thread was free to send it
                sent += has_left
                if not has_left:
                    search.allowance.give_back()
            else:
                return Outcome(found), sent + 1
            now = self._clock.now()
            wait = pause_s(repetitions, asked_for, self._clock.chance())
            in_time = now + wait + (now - begun) < until  # as long as this one took, the next may take, too
            if reason not in REPEATED or repetitions == MAX_REPETITIONS or not in_time or not search.allowance.take(keep=to_come):
                return Outcome(reason=reason), sent
            repetitions += 1
            yield Pause(wait)


def pause_s(repetitions: int, asked_for: float | None, chance: float) -> float:
    """Seconds before the next repetition: growing, from half to the whole by chance, and no less than the provider asks for.

    Source: exponential backoff with equal jitter, M. Brooker, AWS Architecture Blog, 2015.
    """
    return max(FIRST_PAUSE_S * 2.0**repetitions * (1 + chance) / 2, asked_for or 0.0)
