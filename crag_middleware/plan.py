"""The corrective pass of one turn, as one generator: read this first.

It asks the world for things by yielding steps and decides everything else itself; `drive.run` and `drive.arun` perform the steps.
Here stands what happens when a step fails: the turn goes on with what is left, and the evidence says so.
"""

from dataclasses import replace

from crag_middleware.findings import Evidence, Status
from crag_middleware.ledger import Policy, Run
from crag_middleware.passes import graded, refined
from crag_middleware.queries import rewritten, standalone
from crag_middleware.recall import recall, with_neighbours
from crag_middleware.stages.assemble import assemble
from crag_middleware.stages.budget import SHORT
from crag_middleware.stages.decide import sufficiency
from crag_middleware.stages.grounding import GENERAL, VERSION
from crag_middleware.stages.merge import arrange, fold
from crag_middleware.stages.question import LEAD_IN
from crag_middleware.stages.words import language
from crag_middleware.steps import Plan, Stage, Timings, spending
from crag_middleware.tenancy import Scope
from crag_middleware.types import Graded, Question, Verdict
from crag_middleware.web_pass import add_web, meanwhile, wants_web


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
    settings, run = policy.settings, Run(scope, policy, question.text, troubles=list(policy.troubles))
    query = yield from standalone(question, run)

    known, verdict = yield from _consult(query, run)
    useful = tuple(g for g in known if g.grade.label != "incorrect" and verdict != "incorrect")
    kept = yield from with_neighbours(useful, run)
    if (yield from wants_web(verdict, known, run)):
        kept_known, web, kept_web = yield from add_web(query, kept, known, run)
    else:
        yield Stage("refining")
        kept_known, web, kept_web = (yield from refined(query, kept, run)), (), ()

    yield Stage("assembling")
    failed: Status = "no_evidence" if verdict else "retrieval_failed"
    if not verdict and not kept_web and all(routed.reason in SHORT for routed in run.routed):
        run.without("untouched")
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
        rules=settings.rules,
        nothing=GENERAL[spoken] if settings.when_no_evidence == "general" else "",
        query=query,
    )
    cut = sum(len(k.strips) for k in everything) - sum(len(s.strips) for s in block.sources)
    if cut or not block.text:
        run.notes.append("cut_to_budget")
    timings, calibration = (yield Timings()), run.calibration
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
        conflicts=block.conflicts,
        cut_strips=cut,
        block="" if "untouched" in run.rungs else block.text,
        rules="own" if settings.rules else VERSION,
        tokens=0 if "untouched" in run.rungs else block.tokens,
        queries=tuple(run.queries),
        routed=tuple(run.routed),
        web_queries=tuple(run.web_queries),
        web_attempts=tuple(run.web_attempts),
        web_dropped=tuple(run.web_dropped),
        troubles=tuple(run.troubles),
        notes=tuple(run.notes),
        rungs=tuple(run.rungs),
        calls=run.calls,
        spent=replace((yield from spending()), web_requests=sum(attempt.requests for attempt in run.web_attempts)),
        timings_ms=timings,
    )


def _consult(query: str, run: Run) -> Plan[tuple[tuple[Graded, ...], Verdict | None]]:
    """Searches and grades the knowledge, again with another query while the verdict is `incorrect` and rounds are left.

    It ends early when the rewriter repeats a query or a search brings nothing new.

    Returns:
        All passages graded, best first, and the verdict on them; no verdict if the first search failed.
    """
    settings = run.settings
    seen: tuple[Graded, ...] = ()
    verdict: Verdict | None = None
    tried = [query]
    for round_left in range(settings.max_rewrites, -1, -1):
        fresh = yield from recall(tried[-1], seen, run, first=len(tried) == 1)
        if fresh is None:
            break
        beside = (yield from meanwhile(query, fresh, run, again=len(tried) > 1)) if fresh else None
        seen += yield from graded(query, fresh, "grade", run, beside=beside)
        verdict = run.decide(seen)
        if verdict != "incorrect" or not round_left or (len(tried) > 1 and not fresh):
            break
        written = yield from rewritten(query, run, tried=tried, sparing=1)
        if not written or fold(written) in map(fold, tried):
            break
        tried.append(written)
    return arrange(seen), verdict
