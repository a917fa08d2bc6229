"""The web's part of the corrective pass: when it is asked, what leaves for it, and what becomes of the results."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from crag_middleware.errors import CRAGError, WebSearchError
from crag_middleware.findings import Trouble, WebFound, WebQuery
from crag_middleware.ledger import Run
from crag_middleware.passes import graded, keep, refined
from crag_middleware.stages.assemble import Kept
from crag_middleware.stages.budget import SHORT
from crag_middleware.stages.decide import could_not_grade
from crag_middleware.stages.merge import arrange
from crag_middleware.stages.screen import coverage, screen
from crag_middleware.stages.webquery import compose, cut
from crag_middleware.steps import Call, Plan, Stage, Together, approve, ask, draft_keywords, refine, search_web
from crag_middleware.types import Graded, Passage, Verdict

Added = tuple[tuple[Kept, ...], tuple[Graded, ...], tuple[Kept, ...]]
"""The knowledge's strips, all web passages that were graded, the web's strips."""

MAX_CHARS = 400
"""Of a query that somebody approved; longer ones are refused by search services."""

_NOTHING_LEAVES = frozenset({"no_web_query", "web_vetoed"})
"""Notes after which a turn sends nothing to the web."""

_DOWN = ("timeout", "deadline", "circuit_open", "unavailable", "unauthorized", "quota", "rate_limited")
"""Reasons for which a model will hardly answer the next call either."""

POOR = 0.3
"""Passages none of which has this share of the question's words look poor: a web query is drafted while they are graded."""


def wants_web(verdict: Verdict | None, known: Sequence[Graded], run: Run) -> Plan[bool]:
    """Whether the web is the next source. No verdict means that the knowledge could not be searched."""
    wanted = _is_next(verdict, known, run)
    if wanted and run.policy.fallback is None and not (yield from run.may_ask()):
        run.without("no_web")  # What it brings could not be graded.
        return False
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


def meanwhile(query: str, fresh: Sequence[Passage], run: Run, *, again: bool) -> Plan[Call[Any] | None]:
    """What goes on for the web while passages are graded, so that it costs the turn no time: a search, if the policy says so, else the draft of a query.

    A query is drafted for passages that look poor, or that were found `again` after a first verdict `incorrect`. Nothing is drafted for the early search,
    which would make it late.
    """
    if not run.has("web_search") or run.web.mode == "off" or run.early is not None or run.drafted is not None:
        return None
    if run.web.mode == "speculative":
        leaving = yield from _leaving(query, run, draft=False)
        return None if leaving is None else _search(leaving, run)
    if not again and any(map(partial(_is_promising, coverage(query)), fresh)):
        return None
    return (yield from _draft(query, run, sparing=2))


def _is_promising(covered: Callable[[str], float], passage: Passage) -> bool:
    return covered(f"{passage.title}\n{passage.text}") >= POOR


def _draft(query: str, run: Run, *, sparing: int) -> Plan[Call[str] | None]:
    """The call that drafts a web query from the question alone; None if nobody can, should, or may beside `sparing` other calls."""
    own = compose(query, protected=run.web.protected_terms).text
    # A rewriter that could not be reached a moment ago would most likely cost as long again.
    is_down = any(trouble.step == "rewrite" and trouble.reason in _DOWN for trouble in run.troubles)
    if not (run.has("keywords") and run.settings.web_keywords and own) or is_down or not (yield from run.may_ask(sparing=sparing)):
        return None
    run.count("keywords")
    return draft_keywords(own, run.scope, timeout_s=run.settings.rewrite_timeout_s)


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
    text = compose(query, protected=policy.protected_terms).text
    if draft and run.drafted is None and not run.calls.get("evaluator"):  # Nothing was found to grade, and so nothing to draft beside.
        call = yield from _draft(query, run, sparing=1)
        if call:
            yield Stage("rewriting")
            (run.drafted,) = yield Together((call,))
    if isinstance(run.drafted, CRAGError):
        run.trouble("keywords", run.drafted)
    elif run.drafted:
        text = compose(run.drafted, protected=policy.protected_terms).text or text
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
        if found.reason in SHORT:
            run.without("no_web")
        return ()
    run.web_dropped += found.dropped
    return found
