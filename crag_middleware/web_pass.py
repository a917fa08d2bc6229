"""The web's part of the corrective pass: when it is asked, what leaves for it, and what becomes of the results."""

from collections.abc import Sequence
from typing import Any

from crag_middleware.errors import CRAGError, RewriteError, WebSearchError
from crag_middleware.ledger import Run
from crag_middleware.passes import graded, keep, refined
from crag_middleware.stages.assemble import Kept
from crag_middleware.stages.decide import could_not_grade
from crag_middleware.stages.merge import arrange
from crag_middleware.stages.screen import screen
from crag_middleware.stages.webquery import compose, cut
from crag_middleware.steps import Call, Plan, Stage, Together, approve, ask, draft_keywords, refine, search_web
from crag_middleware.types import Graded, Passage, Trouble, Verdict, WebFound, WebQuery

Added = tuple[tuple[Kept, ...], tuple[Graded, ...], tuple[Kept, ...]]
"""The knowledge's strips, all web passages that were graded, the web's strips."""

MAX_CHARS = 400
"""Of a query that somebody approved; longer ones are refused by search services."""

_NOTHING_LEAVES = frozenset({"no_web_query", "web_vetoed"})
"""Notes after which a turn sends nothing to the web."""

_DOWN = ("timeout", "unavailable", "unauthorized", "quota", "rate_limited")
"""Reasons for which a model will hardly answer the next call either."""


def wants_web(verdict: Verdict | None, known: Sequence[Graded], run: Run) -> bool:
    """Whether the web is the next source. No verdict means that the knowledge could not be searched."""
    wanted = _is_next(verdict, known, run)
    if run.early is not None and not wanted:
        run.notes.append("web_not_needed")
    return wanted


def _is_next(verdict: Verdict | None, known: Sequence[Graded], run: Run) -> bool:
    if verdict == "relevant":
        return False
    if not run.has("web_search"):
        run.notes.append("no_web_search")
        return False
    if run.policy.web is None:
        run.troubles.append(Trouble("web_policy", "failed"))
        return False
    mode = run.web.mode
    if mode == "off" or (mode == "incorrect" and verdict == "ambiguous"):
        run.notes.append("web_off" if mode == "off" else "web_only_when_incorrect")
        return False
    if verdict is None:
        return run.settings.web_on_retrieval_failure
    if could_not_grade([g.grade for g in known]):
        return run.settings.web_on_evaluator_failure
    return True


def search_early(query: str, run: Run) -> Plan[Call[WebFound] | None]:
    """The search that goes on while the knowledge is graded, if the policy says so. Nothing is drafted for it: that would make it late."""
    if run.web.mode != "speculative" or not run.has("web_search"):
        return None
    leaving = yield from _leaving(query, run, draft=False)
    return None if leaving is None else _search(leaving, run)


def add_web(query: str, kept: tuple[Graded, ...], known: Sequence[Graded], run: Run) -> Plan[Added]:
    """Searches the web while the knowledge is refined; then screens, grades and refines what the web gave."""
    found: WebFound | CRAGError | None = run.early
    if found is None:
        leaving = yield from _leaving(query, run, draft=True)
        if leaving is None:
            yield Stage("refining")
            return (yield from refined(query, kept, run)), (), ()
        yield Stage("searching the web")
        calls: tuple[Call[Any], ...] = (_search(leaving, run),)
        if kept:
            run.count("refiner")
            calls += (refine(query, tuple(g.passage for g in kept), run.scope, timeout_s=run.settings.refine_timeout_s, memo=run.memo),)
        found, *picked = yield Together(calls)
        run.attempted(found)
        kept_known = keep(kept, picked[0], run) if picked else ()
    else:
        yield Stage("refining")
        kept_known = yield from refined(query, kept, run)
    pages, dropped = screen(_passages(found, run), _own(known), query=query, policy=run.web)
    run.web_dropped += dropped
    web = arrange((yield from graded(query, pages, "grade_web", run)))
    useful = tuple(g for g in web if g.grade.label != "incorrect")
    if useful:
        yield Stage("refining")
    return kept_known, web, (yield from refined(query, useful, run))


def _own(known: Sequence[Graded]) -> list[Passage]:
    """The passages that web results may repeat; an older excerpt of a page must not keep the page of today out."""
    return [g.passage for g in known if g.passage.metadata.get("origin") != "web"]


def _leaving(query: str, run: Run, *, draft: bool) -> Plan[WebQuery | None]:
    """What is to leave for the web, made of the question and nothing else; None if nothing is, or may.

    What the rewriter writes gives words only: where is searched is the user's (`site:`) or the policy's to say.
    """
    if not _NOTHING_LEAVES.isdisjoint(run.notes) or any(trouble.step == "approve_web_query" for trouble in run.troubles):
        return None  # Decided already, for a search that was to begin early.
    policy = run.web
    text = own = compose(query, protected=policy.protected_terms).text
    # A rewriter that could not be reached a moment ago would most likely cost as long again.
    is_down = any(trouble.step == "rewrite" and trouble.reason in _DOWN for trouble in run.troubles)
    if draft and run.has("keywords") and run.settings.web_keywords and text and not is_down and run.may_ask(sparing=1):
        yield Stage("rewriting")
        run.count("keywords")
        try:
            drafted = yield from ask(draft_keywords(own, run.scope, timeout_s=run.settings.rewrite_timeout_s))
        except RewriteError as error:
            run.trouble("keywords", error)
        else:
            text = compose(drafted, protected=policy.protected_terms).text or text
    if not text:
        run.notes.append("no_web_query")
        return None
    if run.has("approver"):
        run.count("approver")
        try:
            text = cut((yield from ask(approve(text, run.scope, timeout_s=run.settings.web_timeout_s))), MAX_CHARS)
        except WebSearchError as error:
            run.trouble("approve_web_query", error)
            return None
        if not text:
            run.notes.append("web_vetoed")
            return None
    return WebQuery(text, compose(run.asked, protected=policy.protected_terms).include_domains)


def _search(leaving: WebQuery, run: Run) -> Call[WebFound]:
    settings = run.settings
    run.count("web_search")
    run.web_queries.append(leaving.text)
    options = dict(settings.web_options)
    if leaving.include_domains:
        options.setdefault("include_domains", list(leaving.include_domains))
    return search_web(
        leaving.text, run.scope, limit=settings.web_results, timeout_s=settings.web_timeout_s, options=options, policy=run.web
    )


def _passages(found: WebFound | CRAGError, run: Run) -> Sequence[Any]:
    """What was found; nothing, and told, if the search failed."""
    if isinstance(found, CRAGError):
        run.trouble("search_web", found)
        return ()
    run.web_dropped += found.dropped
    return found
