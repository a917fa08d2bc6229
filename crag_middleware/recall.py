"""The knowledge's part of the corrective pass: every route is asked, and of all that they bring the few passages worth grading are chosen."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from crag_middleware.errors import CRAGError
from crag_middleware.findings import Found, Routed, Trouble
from crag_middleware.ledger import RouteRule, Run
from crag_middleware.passes import weighed
from crag_middleware.queries import further, spread
from crag_middleware.stages.joining import widened
from crag_middleware.stages.merge import fold, marked, merge
from crag_middleware.stages.provenance import evidence_score
from crag_middleware.stages.selection import select
from crag_middleware.steps import MAIN, Call, Plan, Stage, Together, embed, find_neighbours, rerank, retrieve
from crag_middleware.types import Graded, Passage

RERANKED = 50
"""Passages a reranker is shown at most; those after them keep their places behind."""

_Search = tuple[RouteRule, int, Call[Found]]
"""A route, the query's number, and the call."""


def recall(query: str, seen: Sequence[Graded], run: Run, *, first: bool) -> Plan[tuple[Passage, ...] | None]:
    """Passages worth grading that were not seen yet, best first, at most `top_k`.

    Args:
        query: What is searched; in the first round its parts and variants are, too.
        seen: What earlier rounds graded.
        run: The run.
        first: Whether this is the first round.

    Returns:
        The passages; None if no route answered.
    """
    yield Stage("retrieving")
    searches = _searches([query], run)
    asked = (yield from spread(query, run)) if first else ()
    outcomes = yield Together((*(call for *_, call in searches), *(call for _, call in asked)))
    found = _collected(searches, outcomes[: len(searches)], run)
    parts = further(asked, outcomes[len(searches) :], run, tried=[query])
    if parts:
        more = _searches(parts, run)
        more_found = _collected(more, (yield Together(tuple(call for *_, call in more))), run)
        found = more_found if found is None else [*found, *(more_found or ())]
    if found is None:
        return None
    pool = merge([*(g.passage for g in seen), *(yield from _embedded(found, run))], run.merging)
    fresh = _unseen(pool, seen)
    ranked = yield from _reranked(query, fresh, run)
    settings = run.settings
    return weighed(select(ranked, settings.top_k, mmr_lambda=settings.mmr_lambda, fair=settings.decompose), run)


def with_neighbours(kept: tuple[Graded, ...], run: Run) -> Plan[tuple[Graded, ...]]:
    """The kept passages, each with the chunks around it, as far as the context budget shared among them goes."""
    reach = run.settings.neighbours
    own = tuple(g.passage for g in kept if any(hit.route == run.policy.routes[0].name for hit in g.passage.hits))
    if not reach or not own or not run.has("neighbours"):
        return kept
    yield Stage("retrieving")
    run.count("neighbours")
    call = find_neighbours(own, run.scope, reach=reach, timeout_s=run.settings.retrieve_timeout_s)
    (found,) = yield Together((call,))
    if isinstance(found, CRAGError):
        run.trouble("neighbours", found)
        return kept
    room = run.settings.max_context_tokens // len(kept)
    wide = {p.id: widened(p, around, limit_chars=_chars(room, p, run)) for p, around in zip(own, found, strict=True)}
    grown = weighed([wide.get(g.passage.id, g.passage) for g in kept], run)
    return tuple(replace(g, passage=p) for g, p in zip(kept, grown, strict=True))


def _chars(tokens: int, passage: Passage, run: Run) -> int:
    """About how many characters of such a text these tokens are."""
    return tokens * len(passage.text) // max(1, run.policy.count_tokens(passage.text))


def _searches(queries: Sequence[str], run: Run) -> list[_Search]:
    """A search of every route for each query."""
    begin = len(run.queries)
    run.queries += queries
    searches = []
    for number, query in enumerate(queries, begin):
        for route in run.policy.routes:
            run.count(route.port)
            call = retrieve(query, run.scope, limit=route.k, timeout_s=route.timeout_s, port=route.port)
            searches.append((route, number, call))
    return searches


def _collected(searches: Sequence[_Search], outcomes: Sequence[Any], run: Run) -> list[Passage] | None:
    """What the routes brought, marked with where it was found; None if none of them answered. Failures are told."""
    found: list[Passage] | None = None
    for (route, number, _), outcome in zip(searches, outcomes, strict=True):
        if isinstance(outcome, CRAGError):
            run.trouble(route.step, outcome)
            run.routed.append(Routed(route.name, number, reason=outcome.reason))
            continue
        run.missed(*(Trouble(f"{route.step}:{trouble.step}", trouble.reason) for trouble in outcome.troubles))
        run.routed.append(Routed(route.name, number, len(outcome)))
        # A vector of another route may be of another model: only those of the main store can be compared.
        passages = outcome if route.port == MAIN else (replace(p, vector=None) for p in outcome)
        scored = [replace(p, evidence_score=evidence_score(p, run.web.scores, trust=route.trust)) for p in passages]
        found = [*(found or ()), *marked(scored, route.name, number)]
    return found


def _embedded(found: Sequence[Passage], run: Run) -> Plan[Sequence[Passage]]:
    """The passages, those without a vector embedded as those of the main store are, so that all can be compared; without, and told, if that fails."""
    settings = run.settings
    missing = tuple(dict.fromkeys(p.text for p in found if p.vector is None and p.text.strip()))
    if not missing or not run.has("embedder") or (settings.near_duplicate is None and settings.mmr_lambda == 1):
        return found
    run.count("embedder")
    (vectors,) = yield Together((embed(missing, timeout_s=settings.retrieve_timeout_s, memo=run.memo),))
    if isinstance(vectors, CRAGError):
        run.trouble("embed", vectors)
        return found
    known = dict(zip(missing, vectors, strict=True))
    return [replace(p, vector=known.get(p.text)) if p.vector is None else p for p in found]


def _unseen(pool: Sequence[Passage], seen: Sequence[Graded]) -> tuple[Passage, ...]:
    """The passages of the pool that say what no graded one said: not found before, or joined to more than was graded."""
    texts = {fold(g.passage.text) for g in seen}
    known = {(hit.route, hit.id) for g in seen for hit in g.passage.hits}
    return tuple(
        p for p in pool if fold(p.text) not in texts and ("joined" in p.metadata or known.isdisjoint((hit.route, hit.id) for hit in p.hits))
    )


def _reranked(query: str, pool: tuple[Passage, ...], run: Run) -> Plan[tuple[Passage, ...]]:
    """The pool in the reranker's order, without what lies below its floor; in the order of the merge, and told, if there is none or it failed."""
    if not pool or not run.has("reranker"):
        return pool
    shown = pool[:RERANKED]
    yield Stage("reranking")
    run.count("reranker")
    (scores,) = yield Together((rerank(query, shown, run.scope, timeout_s=run.settings.rerank_timeout_s),))
    if isinstance(scores, CRAGError):
        run.trouble("rerank", scores)
        return pool
    floor = run.policy.floor
    scored = [replace(p, rerank_score=s) for p, s in zip(shown, scores, strict=True) if s is not None and (floor is None or s >= floor)]
    unscored = [p for p, s in zip(shown, scores, strict=True) if s is None]
    return (*sorted(scored, key=lambda p: -(p.rerank_score or 0.0)), *unscored, *pool[RERANKED:])
