"""Several web searches as one: asked in order, within one deadline, every attempt told."""

from collections.abc import Mapping
from typing import Any

from crag_middleware.adapters.fan_out import SHARE_OF_TIME
from crag_middleware.adapters.web_attempt import REAL, Ask, Attempts, Clock, Pause, Provider, Search, Steps
from crag_middleware.adapters.web_budget import Allowance, DayLedger
from crag_middleware.drive import afinish, arun, finish, run
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.findings import Dropped, WebAttempt, WebFound
from crag_middleware.pool import Pools
from crag_middleware.ports import AsyncWebSearch, WebSearch, bind
from crag_middleware.steps import ask
from crag_middleware.tenancy import Scope, check_agent_id
from crag_middleware.web_policy import WebPolicy


class WebSearchChain:
    """A `WebSearch` port over others, asked in the order given; every attempt is told, and no provider takes another's place in silence.

    The next provider is asked when the one before failed or found nothing. A provider may use its even share of the time that is left, so that one
    that hangs leaves time for the next; what it does not use goes to those after it.

    - `rate_limited` and `unavailable` are repeated, twice at most, after pauses that grow and that keep to what the provider asks for; a repetition
      that would not end in time, or would leave a provider to come without a request of the turn's budget, is not begun. Each counts against the
      tenant's budgets, `requests_per_turn` and `requests_per_day` of the policy.
    - A provider that says `unauthorized` or `quota` is left alone for 5 minutes, one that was `unavailable` or timed out in three searches in a row
      for 30 seconds, then tried by a single search. This holds for the tenant that met it, and for the provider's key (an attribute `credential`: a
      digest, never the key itself): one tenant's trouble is not another's. It is logged once.
    - Passages are kept for 5 minutes, failures and empty results for 20 seconds, for the same tenant, query, options, policy and limit only. Two equal
      searches at the same time may both be sent.

    An instance holds nothing of a single search: it serves any number of tenants, threads and event loops. What it remembers is bounded.

    Args:
        *providers: `WebSearch` ports, sync or async or both; one is enough.
        clock: Time and chance.

    Raises:
        ConfigError: There is no provider, or one of them can't search, or is a chain itself.
    """

    def __init__(self, *providers: WebSearch | AsyncWebSearch, clock: Clock = REAL) -> None:
        if not providers:
            msg = "a chain needs at least one web search, got none"
            raise ConfigError(msg)
        for provider in providers:
            if isinstance(provider, WebSearchChain | type):
                got = f"the class {provider.__name__}" if isinstance(provider, type) else "another chain; give its providers in its place"
                msg = f"a chain is made of instances of web searches, got {got}"
                raise ConfigError(msg)
        self._providers = tuple(Provider(place, port, bind(port, "search")) for place, port in enumerate(providers))
        self._clock = clock
        self._pools = Pools()
        self._attempts = Attempts(clock)
        self._ledger = DayLedger(clock.wall)

    def __repr__(self) -> str:
        return f"WebSearchChain({', '.join(provider.name for provider in self._providers)})"

    @property
    def left_behind(self) -> Mapping[str, int]:
        """Calls of blocking providers that outlived their deadline and still run."""
        return self._pools.left_behind

    @property
    def async_only(self) -> bool:
        """Whether a provider has no sync form, so that the chain has none either."""
        return any(provider.bound.sync is None for provider in self._providers)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Passes if every provider can work with these options, since every provider gets them; sends nothing.

        Raises:
            ConfigError: An option is unknown to a provider or can't work.
        """
        for provider in self._providers:
            if check := getattr(provider.port, "check_options", None):
                check(options)

    def search(
        self,
        query: str,
        *,
        agent_id: str,
        limit: int,
        timeout_s: float,
        options: Mapping[str, Any] | None = None,
        policy: WebPolicy | None = None,
    ) -> WebFound:
        """The passages of the first provider that found some, and every attempt.

        Args:
            query: Given to the providers as it is.
            agent_id: The tenant whose budgets, keys and remembered answers these are.
            limit: At most so many passages.
            timeout_s: For all providers together, pauses included; a little of it is kept back, so that whoever waits as long hears the reasons.
            options: Given to every provider that takes options.
            policy: The tenant's; by default one with its defaults. Whether the web is searched at all is decided before.

        Returns:
            Nothing and no error if a provider answered that there is nothing, even if others failed.

        Raises:
            WebSearchError: Every provider failed. The reason is the last one's that was sent something, else the last one's; beside the providers' own
                there are `breaker_open`, `budget`, and `timeout`, which also stands for one that there was no time left for.
            ConfigError: A provider has only an async form.
            TenantError: `agent_id` is no usable tenant id.
        """
        if self.async_only:
            names = ", ".join(provider.name for provider in self._providers if provider.bound.sync is None)
            msg = f"the web search {names} has only an async form: use `ainvoke` or `astream`, or give it a sync method"
            raise ConfigError(msg)

        def perform(step: Ask | Pause) -> Any:
            return self._clock.sleep(step.seconds) if isinstance(step, Pause) else run(ask(step.call), step.world(self._pools))

        return finish(self._steps(self._prepare(query, agent_id, limit, options, policy), timeout_s), perform)

    async def asearch(
        self,
        query: str,
        *,
        agent_id: str,
        limit: int,
        timeout_s: float,
        options: Mapping[str, Any] | None = None,
        policy: WebPolicy | None = None,
    ) -> WebFound:
        """The async form of `search`; a provider without one runs in a thread."""

        async def perform(step: Ask | Pause) -> Any:
            return await (self._clock.asleep(step.seconds) if isinstance(step, Pause) else arun(ask(step.call), step.world(self._pools)))

        return await afinish(self._steps(self._prepare(query, agent_id, limit, options, policy), timeout_s), perform)

    def _prepare(self, query: str, agent_id: str, limit: int, options: Mapping[str, Any] | None, policy: WebPolicy | None) -> Search:
        policy = policy or WebPolicy()
        scope = Scope(check_agent_id(agent_id))
        allowance = Allowance(self._ledger, scope.agent_id, policy)
        return Search(query=query, scope=scope, limit=limit, options=options or {}, policy=policy, allowance=allowance)

    def _steps(self, search: Search, timeout_s: float) -> Steps[WebFound]:
        deadline = self._clock.now() + SHARE_OF_TIME * timeout_s
        attempts: list[WebAttempt] = []
        dropped: tuple[Dropped, ...] = ()
        for to_come, provider in zip(reversed(range(len(self._providers))), self._providers, strict=True):
            now = self._clock.now()
            until = now + (deadline - now) / (to_come + 1)
            found, attempt = yield from self._attempts.attempt(provider, search, until=until, to_come=to_come)
            attempts.append(attempt)
            dropped += found.dropped
            if found:
                break
        if any(not attempt.reason for attempt in attempts):
            return WebFound(found, tuple(attempts), dropped)
        raise _failure(attempts) from None  # the providers' own errors have causes that quote


def _failure(attempts: list[WebAttempt]) -> WebSearchError:
    """The error of a chain in which every provider failed; it holds codes only."""
    told = [attempt for attempt in attempts if attempt.requests] or attempts
    shown = ", ".join(f"{attempt.provider}: {attempt.reason}" for attempt in attempts)
    sent = any(attempt.requests for attempt in attempts)
    return WebSearchError(f"no web search answered ({shown})", reason=told[-1].reason, attempts=tuple(attempts), sent=sent)
