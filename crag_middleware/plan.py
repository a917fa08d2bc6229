"""The corrective pass of one turn, as one generator: read this first.

It asks the world for things by yielding steps and decides everything else itself; `drive.run` and `drive.arun` perform the steps.
Here stands what happens when a step fails: the turn goes on with what is left, and the evidence says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crag_middleware.calibration import Scale
from crag_middleware.errors import CRAGError, GradingError, RetrievalError, RewriteError
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.assemble import Kept, assemble
from crag_middleware.stages.decide import calibrated, could_not_grade, decide, label, sufficiency
from crag_middleware.stages.merge import arrange, fold, unseen
from crag_middleware.stages.question import LEAD_IN, has_words, shorten
from crag_middleware.stages.screen import screen
from crag_middleware.stages.sentences import split
from crag_middleware.stages.webquery import compose
from crag_middleware.stages.words import language
from crag_middleware.steps import Call, Plan, Stage, Timings, Together, ask, grade, refine, retrieve, rewrite, search_web
from crag_middleware.tenancy import Scope
from crag_middleware.types import (
    Evidence,
    Exchange,
    Grade,
    Graded,
    Memo,
    Passage,
    Question,
    Status,
    Strip,
    Trouble,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one middleware instance is set to and what it has at hand.

    Attributes:
        settings: Every number and choice.
        scales: What the evaluator's numbers go through, by tenant; under None for every tenant without its own.
        has_rewriter: Whether there is a rewriter.
        has_web_search: Whether there is a web search.
        count_tokens: Counts a text's tokens.
    """

    settings: CRAGSettings
    scales: Mapping[str | None, Scale]
    has_rewriter: bool
    has_web_search: bool
    count_tokens: Callable[[str], int]


@dataclass(slots=True)
class _Run:
    """One run of the plan: for whom, under which policy, and what it did so far."""

    scope: Scope
    policy: Policy
    queries: list[str] = field(default_factory=list)
    web_queries: list[str] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    memo: Memo = field(default_factory=dict)

    @property
    def settings(self) -> CRAGSettings:
        return self.policy.settings

    @property
    def scale(self) -> Scale:
        return self.policy.scales.get(self.scope.agent_id) or self.policy.scales[None]

    def decide(self, graded: Sequence[Graded]) -> Verdict:
        return decide([g.grade for g in graded], rule=self.settings.verdict_rule, calibration=self.scale.calibration)

    def count(self, port: str) -> None:
        self.calls[port] = self.calls.get(port, 0) + 1

    def trouble(self, step: str, error: CRAGError) -> None:
        self.troubles.append(Trouble(step, error.reason))


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
    settings, run = policy.settings, _Run(scope, policy)
    calibration = run.scale.calibration
    query = yield from _standalone(question, run)

    known, verdict = yield from _consult(query, run)
    kept = tuple(g for g in known if g.grade.label != "incorrect" and verdict != "incorrect")
    web_query = compose(query) if _wants_web(verdict, known, run) else ""
    if web_query and has_words(web_query):
        kept_known, web, kept_web = yield from _add_web(query, web_query, kept, known, run)
    else:
        yield Stage("refining")
        kept_known, web, kept_web = (yield from _refine(query, kept, run)), (), ()

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
        troubles=tuple(run.troubles),
        notes=tuple(run.notes),
        calls=run.calls,
        timings_ms=timings,
    )


def _standalone(question: Question, run: _Run) -> Plan[str]:
    """The question made understandable on its own if it has a history; its own words if that can't be had."""
    own = shorten(question.text, run.settings.max_question_chars)
    if not question.history or not run.settings.standalone_questions:
        return own
    return (yield from _rewrite(own, run, history=question.history)) or own


def _rewrite(text: str, run: _Run, *, history: tuple[Exchange, ...] = (), tried: Sequence[str] = ()) -> Plan[str]:
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


def _consult(query: str, run: _Run) -> Plan[tuple[tuple[Graded, ...], Verdict | None]]:
    """Searches and grades the knowledge, again with another query while the verdict is `incorrect` and rounds are left.

    Returns:
        All passages seen, best first, and the verdict on them; no verdict if the first search failed.
    """
    settings = run.settings
    graded: tuple[Graded, ...] = ()
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
        fresh = unseen(found, [g.passage for g in graded])
        graded += yield from _grade(query, fresh, "grade", run)
        verdict = run.decide(graded)
        if verdict != "incorrect" or not round_left or (len(tried) > 1 and not fresh):
            break
        written = yield from _rewrite(query, run, tried=tried)
        if not written or fold(written) in map(fold, tried):
            break
        tried.append(written)
    return arrange(graded), verdict


def _grade(query: str, passages: tuple[Passage, ...], step: str, run: _Run) -> Plan[tuple[Graded, ...]]:
    """Each passage with its grade; `ungraded`, and told, where the evaluator gives none."""
    if not passages:
        return ()
    yield Stage("grading")
    run.count("evaluator")
    try:
        grades = yield from ask(grade(query, passages, run.scope, timeout_s=run.settings.grade_timeout_s))
    except GradingError as error:
        run.trouble(step, error)
        grades = tuple(Grade(passage_id=p.id, probability=None, label="ungraded") for p in passages)
    else:
        if any(g.label == "ungraded" for g in grades):
            run.troubles.append(Trouble(step, "incomplete"))
    scale = run.scale
    mapped = (label(calibrated(g, scale.calibration), scale.thresholds) for g in grades)
    return tuple(Graded(passage=p, grade=g) for p, g in zip(passages, mapped, strict=True))


def _wants_web(verdict: Verdict | None, known: Sequence[Graded], run: _Run) -> bool:
    """Whether the web is the next source."""
    if verdict == "relevant":
        return False
    if not run.policy.has_web_search:
        run.notes.append("no_web_search")
        return False
    if verdict is None:
        return run.settings.web_on_retrieval_failure
    if could_not_grade([g.grade for g in known]):
        return run.settings.web_on_evaluator_failure
    return True


def _add_web(
    query: str, web_query: str, kept: tuple[Graded, ...], known: Sequence[Graded], run: _Run
) -> Plan[tuple[tuple[Kept, ...], tuple[Graded, ...], tuple[Kept, ...]]]:
    """Searches the web while the knowledge is refined; then screens, grades and refines what the web gave.

    Returns:
        The knowledge's strips, all web passages, the web's strips.
    """
    settings = run.settings
    yield Stage("searching the web")
    run.count("web_search")
    run.web_queries.append(web_query)
    search = search_web(web_query, run.scope, limit=settings.web_results, timeout_s=settings.web_timeout_s, options=settings.web_options)
    calls: tuple[Call[Any], ...] = (search,)
    if kept:
        run.count("refiner")
        calls = (search, refine(query, tuple(g.passage for g in kept), run.scope, timeout_s=settings.refine_timeout_s, memo=run.memo))
    found, *picked = yield Together(calls)
    kept_known = _keep(kept, picked[0], run) if picked else ()
    if isinstance(found, CRAGError):
        run.trouble("search_web", found)
        found = ()
    pages = screen(found, [g.passage for g in known])
    web = arrange((yield from _grade(query, pages, "grade_web", run)))
    useful = tuple(g for g in web if g.grade.label != "incorrect")
    if useful:
        yield Stage("refining")
    return kept_known, web, (yield from _refine(query, useful, run))


def _refine(query: str, graded: tuple[Graded, ...], run: _Run) -> Plan[tuple[Kept, ...]]:
    """The strips of each passage that bear on the question."""
    if not graded:
        return ()
    run.count("refiner")
    texts = tuple(g.passage for g in graded)
    (picked,) = yield Together((refine(query, texts, run.scope, timeout_s=run.settings.refine_timeout_s, memo=run.memo),))
    return _keep(graded, picked, run)


def _keep(graded: tuple[Graded, ...], picked: tuple[tuple[Strip, ...], ...] | CRAGError, run: _Run) -> tuple[Kept, ...]:
    """The picked strips; all strips of a passage of which none was picked, or of every passage if the refiner failed."""
    if isinstance(picked, CRAGError):
        run.trouble("refine", picked)
        picked = ((),) * len(graded)
    kept = (strips or _whole(g.passage) for g, strips in zip(graded, picked, strict=True))
    return tuple(Kept(g, strips) for g, strips in zip(graded, kept, strict=True) if strips)


def _whole(passage: Passage) -> tuple[Strip, ...]:
    return tuple(replace(strip, why="whole") for strip in split(passage.text))
