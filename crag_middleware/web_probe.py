"""A web search as a turn would make it, looked at from outside: what would leave, what comes, what is dropped and why."""

from dataclasses import dataclass
from typing import Any

from crag_middleware.adapters.given_web import AnyWebSearch, as_web_search
from crag_middleware.drive import run
from crag_middleware.errors import WebSearchError
from crag_middleware.findings import Dropped, WebAttempt, WebQuery
from crag_middleware.ports import bind
from crag_middleware.stages.screen import screen
from crag_middleware.stages.webquery import compose
from crag_middleware.steps import ask, search_web
from crag_middleware.tenancy import Scope, check_agent_id
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy
from crag_middleware.world import World


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of a question.

    Attributes:
        query: What would leave, or left; its text is empty if nothing may.
        error: Why the search failed, in a short code; empty if it did not, or none was made.
        attempts: Who was asked, in order.
        kept: The results that would be graded, best first, with their scores.
        dropped: The others, and why.
    """

    query: WebQuery
    error: str = ""
    attempts: tuple[WebAttempt, ...] = ()
    kept: tuple[Passage, ...] = ()
    dropped: tuple[Dropped, ...] = ()


def probe(
    question: str,
    web_search: AnyWebSearch | None = None,
    *,
    agent_id: str,
    policy: WebPolicy | None = None,
    limit: int = 3,
    timeout_s: float = 10.0,
) -> Probe:
    """Composes the query for a question, sends it if there is a web search, and screens what comes.

    Args:
        question: In a user's words.
        web_search: Who is asked; None to see only what would be sent.
        agent_id: The tenant for whom.
        policy: What the search may do; by default a plain `WebPolicy()`.
        limit: Results asked for.
        timeout_s: Deadline, in seconds.

    Raises:
        ConfigError: `web_search` can't search.
        TenantError: `agent_id` is no usable tenant id.
    """
    policy = policy or WebPolicy()
    query = compose(question, protected=policy.protected_terms)
    search = as_web_search(web_search)
    if search is None or not query.text:
        return Probe(query)
    options: dict[str, Any] = {"include_domains": list(query.include_domains)} if query.include_domains else {}
    plan = ask(search_web(query.text, Scope(check_agent_id(agent_id)), limit=limit, timeout_s=timeout_s, options=options, policy=policy))
    try:
        found = run(plan, World({"web_search": bind(search, "search")}, lambda _: None))
    except WebSearchError as error:
        return Probe(query, error.reason, error.attempts)
    kept, dropped = screen(found, (), query=query.text, policy=policy)
    return Probe(query, "", found.attempts, kept, (*found.dropped, *dropped))
