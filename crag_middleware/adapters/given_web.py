"""What a user may pass for the web search, turned into what we work with."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from crag_middleware.adapters.web_chain import WebSearchChain
from crag_middleware.errors import ConfigError
from crag_middleware.ports import AsyncWebSearch, WebSearch
from crag_middleware.stages.urls import domain
from crag_middleware.tenancy import check_agent_id
from crag_middleware.web_policy import OFF, WebPolicies, WebPolicy

AnyWebSearch = WebSearch | AsyncWebSearch
"""A provider, sync or async."""

AnyWebPolicy = WebPolicies | Callable[[str], WebPolicy | None]
"""What tenants' web searches may do: `WebPolicies`, or a function of the `agent_id`."""

Approval = Callable[[str, str], str | Awaitable[str | None] | None]
"""Says what may leave: called with a web query and the `agent_id`, returns the text, changed or not, or None for none."""


def as_web_search(given: AnyWebSearch | Sequence[AnyWebSearch] | None) -> WebSearchChain | None:
    """The web search: one provider or several in their order, with retries, breakers, cache and budgets; None if there is none.

    Raises:
        ConfigError: One of them can't search, or there is none in the list.
    """
    if given is None or isinstance(given, WebSearchChain):
        return given
    return WebSearchChain(*given) if isinstance(given, Sequence) else WebSearchChain(given)


def as_web_policy(given: AnyWebPolicy | None) -> Callable[[str], WebPolicy]:
    """What each tenant's web search may do: the same for all, by a mapping, or by a function of the `agent_id`. Whom it does not name has none.

    Raises:
        ConfigError: It is none of these.
    """
    if given is None or isinstance(given, WebPolicy):
        policy = _checked(given or WebPolicy())
        return lambda _: policy
    if isinstance(given, Mapping):
        by_tenant = {check_agent_id(tenant): policy for tenant, policy in given.items()}
        if all(isinstance(policy, WebPolicy) for policy in by_tenant.values()):
            for policy in by_tenant.values():
                _checked(policy)
            return lambda agent_id: by_tenant.get(agent_id, OFF)
    elif callable(given):
        return lambda agent_id: _policy(given(agent_id))
    msg = (
        f"`web_policy` must be a WebPolicy, a mapping from agent_id to WebPolicy, or a function of the agent_id, got {type(given).__name__}"
    )
    raise ConfigError(msg)


def _checked(policy: WebPolicy) -> WebPolicy:
    for name, domains in (
        ("allow_domains", policy.allow_domains),
        ("deny_domains", policy.deny_domains),
        ("scores.official_domains", policy.scores.official_domains),
        ("scores.media_domains", policy.scores.media_domains),
    ):
        for given in domains:
            if not domain(given):
                msg = f"WebPolicy: `{name}` must hold host names such as example.org, got {given!r}"
                raise ConfigError(msg)
    return policy


def _policy(given: WebPolicy | None) -> WebPolicy:
    if given is None or isinstance(given, WebPolicy):
        return given or OFF
    msg = f"`web_policy` must return a WebPolicy or None, got {type(given).__name__}"
    raise ConfigError(msg)


class Approver:
    """A user's function as the port that approves web queries.

    Args:
        function: Called with the query and the `agent_id`; returns the text that may leave, or None. It may be a coroutine function.

    Raises:
        ConfigError: It can't be called.
    """

    def __init__(self, function: Callable[[str, str], str | Awaitable[str | None] | None]) -> None:
        if not callable(function):
            msg = f"`approve_web_query` must be a function of the query and the agent_id, got {type(function).__name__}"
            raise ConfigError(msg)
        self._function = function
        if inspect.iscoroutinefunction(function):
            self.aapprove = self._approve
        else:
            self.approve = self._approve

    def _approve(self, query: str, *, agent_id: str) -> Any:
        return self._function(query, agent_id)
