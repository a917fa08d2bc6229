"""The corrective pass of one turn, as one generator: read this first.

It asks the world for things by yielding steps and decides everything else itself; `drive.run` and `drive.arun` perform the steps.
Here stands what happens when a step fails: the turn goes on with what is left, and the evidence says so.
"""

from collections.abc import Sequence

from crag_middleware.errors import RetrievalError, RewriteError
from crag_middleware.ledger import Policy, Run
from crag_middleware.passes import graded, refined, weighed
from crag_middleware.stages.assemble import assemble
from crag_middleware.stages.decide import sufficiency
from crag_middleware.stages.merge import arrange, fold, unseen
from crag_middleware.stages.question import LEAD_IN, shorten
from crag_middleware.stages.words import language
from crag_middleware.steps import Plan, Stage, Timings, ask, retrieve, rewrite
from crag_middleware.tenancy import Scope
from crag_middleware.types import Evidence, Exchange, Graded, Question, Status, Verdict
from crag_middleware.web_pass import add_web, search_early, wants_web


def correct(question: Question, scope: Scope, policy: Policy, *, first_number: int = 1) -> Plan[Evidence]:
    """Finds, grades, corrects and assembles the evidence for one question.

    Args:
        question: What the user asked.
        scope: The tenant whose rows may be seen.
        policy: Settings, and which ports exist.
        first_number: The first citation number.

    Raises:
        TenantError: A row of another tenant came back.
    """
    if question.skip:
        return Evidence(question=question, status="skipped")
    settings, run = policy.settings, Run(scope, policy, question.text)
    calibration = run.scale.calibration
    query = yield from _standalone(question, run)

    known, verdict = yield from _consult(query, run)
    kept = tuple(g for g in known if g.grade.label != "incorrect" and verdict != "incorrect")
    if wants_web(verdict, known, run):
        kept_known, web, kept_web = yield from add_web(query, kept, known, run)
    else:
        yield Stage("refining")
        kept_known, web, kept_web = (yield from refined(query, kept, run)), (), ()

    yield Stage("assembling")
    failed: Status = "no_evidence" if verdict else "retrieval_failed"
    spoken = language(question.text) if settings.language == "auto" else settings.language
    everything = (*kept_known, *kept_web)
    block = assemble(
        everything,
        status=failed,
        language=spoken,
        first=first_number,
        budget=settings.max_context_tokens,
        count_tokens=policy.count_tokens,
        order=settings.order,
        tail=LEAD_IN[spoken] if settings.position == "human" else "",
    )
    cut = sum(len(k.strips) for k in everything) - sum(len(s.strips) for s in block.sources)
    if cut or not block.text:
        run.notes.append("cut_to_budget")
    timings = yield Timings()
    return Evidence(
        question=question,
        query=query,
        status="grounded" if block.sources and verdict else failed,
        rule=settings.verdict_rule,
        verdict=verdict,
        sufficiency=sufficiency([g.grade for g in known], calibration) if verdict else None,
        calibration=calibration.described if calibration else None,
        graded=(*known, *web),
        sources=block.sources,
        cut_strips=cut,
        block=block.text,
        tokens=block.tokens,
        queries=tuple(run.queries),
        web_queries=tuple(run.web_queries),
        web_attempts=tuple(run.web_attempts),
        web_dropped=tuple(run.web_dropped),
        troubles=tuple(run.troubles),
        notes=tuple(run.notes),
        calls=run.calls,
        timings_ms=timings,
    )


def _standalone(question: Question, run: Run) -> Plan[str]:
    """The question made understandable on its own if it has a history; its own words if that can't be had."""
    own = shorten(question.text, run.settings.max_question_chars)
    if not question.history or not run.settings.standalone_questions:
        return own
    return (yield from _rewrite(own, run, history=question.history)) or own


def _rewrite(text: str, run: Run, *, history: tuple[Exchange, ...] = (), tried: Sequence[str] = ()) -> Plan[str]:
    """The rewriter's text; empty if there is no rewriter or it failed."""
    if not run.policy.has_rewriter:
        run.notes.append("no_rewriter")
        return ""
    yield Stage("rewriting")
    run.count("rewriter")
    try:
        written = yield from ask(rewrite(text, history, tuple(tried), run.scope, timeout_s=run.settings.rewrite_timeout_s))
    except RewriteError as error:
        run.trouble("rewrite", error)
        return ""
    return shorten(written, run.settings.max_question_chars)


def _consult(query: str, run: Run) -> Plan[tuple[tuple[Graded, ...], Verdict | None]]:
    """Searches and grades the knowledge, again with another query while the verdict is `incorrect` and rounds are left.

    Returns:
        All passages seen, best first, and the verdict on them; no verdict if the first search failed.
    """
    settings = run.settings
    seen: tuple[Graded, ...] = ()
    verdict: Verdict | None = None
    tried = [query]
    for round_left in range(settings.max_rewrites, -1, -1):
        yield Stage("retrieving")
        run.count("retriever")
        run.queries.append(tried[-1])
        try:
            found = yield from ask(retrieve(tried[-1], run.scope, limit=settings.top_k, timeout_s=settings.retrieve_timeout_s))
        except RetrievalError as error:
            run.trouble("retrieve", error)
            break
        fresh = weighed(unseen(found, [g.passage for g in seen]), run.web.scores)
        early = (yield from search_early(query, run)) if fresh and run.early is None else None
        seen += yield from graded(query, fresh, "grade", run, beside=early)
        verdict = run.decide(seen)
        if verdict != "incorrect" or not round_left or (len(tried) > 1 and not fresh):
            break
        written = yield from _rewrite(query, run, tried=tried)
        if not written or fold(written) in map(fold, tried):
            break
        tried.append(written)
    return arrange(seen), verdict
