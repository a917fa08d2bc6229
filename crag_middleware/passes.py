"""Grading and refining passages, and what happens when either fails."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from crag_middleware.calibration import Scale
from crag_middleware.errors import CRAGError, GradingError, WebSearchError
from crag_middleware.findings import Trouble, WebFound
from crag_middleware.ledger import Run
from crag_middleware.stages.assemble import Kept
from crag_middleware.stages.budget import SHORT
from crag_middleware.stages.decide import calibrated, label
from crag_middleware.stages.injection import injection_score
from crag_middleware.stages.provenance import evidence_score
from crag_middleware.stages.sentences import split
from crag_middleware.steps import Call, Plan, Stage, Together, grade, refine
from crag_middleware.types import Grade, Graded, Passage, Strip


def weighed(passages: Sequence[Passage], run: Run) -> tuple[Passage, ...]:
    """Passages of the knowledge with what their source is worth and how much of them reads like orders."""
    scored = (replace(passage, injection_score=injection_score(passage.text)) for passage in passages)
    return tuple(replace(passage, evidence_score=evidence_score(passage, run.web.scores, trust=run.trust(passage))) for passage in scored)


def graded(query: str, passages: tuple[Passage, ...], step: str, run: Run, *, beside: Call[Any] | None = None) -> Plan[tuple[Graded, ...]]:
    """Each passage with its grade; `ungraded`, and told, where neither the evaluator nor the fallback gives one.

    Args:
        query: What was asked.
        passages: What was found.
        step: What a failure is told as.
        run: The run.
        beside: What goes on meanwhile for the web: a search, whose outcome is the run's `early`, or the draft of a query, the run's `drafted`.
    """
    if not passages:
        return ()
    yield Stage("grading")
    outcome: Any = GradingError("no model call was left for it", reason="budget")
    if (yield from run.may_ask()):
        run.count("evaluator")
        asked: tuple[Call[Any], ...] = (grade(query, passages, run.scope, timeout_s=run.settings.grade_timeout_s),)
        outcome, *meanwhile = yield Together((*asked, beside) if beside else asked)
        if meanwhile:
            _take(meanwhile[0], run)
    scale = run.scale
    if isinstance(outcome, GradingError):
        run.trouble(step, outcome)
        outcome, scale = (yield from _graded_cheaply(query, passages, step, run)) or (outcome, scale)
    if isinstance(outcome, CRAGError):
        if outcome.reason in SHORT:
            run.without("plain_passages")
        outcome = tuple(Grade(passage_id=p.id, probability=None, label="ungraded") for p in passages)
    elif any(g.label == "ungraded" for g in outcome):
        run.troubles.append(Trouble(step, "incomplete"))
    mapped = (label(calibrated(g, scale.calibration), scale.thresholds) for g in outcome)
    return tuple(Graded(passage=p, grade=g) for p, g in zip(passages, mapped, strict=True))


def _take(outcome: Any, run: Run) -> None:
    """Remember what went on beside the grading."""
    if isinstance(outcome, WebFound | WebSearchError):
        run.early = outcome
        run.attempted(outcome)
    else:
        run.drafted = outcome


def _graded_cheaply(query: str, passages: tuple[Passage, ...], step: str, run: Run) -> Plan[tuple[tuple[Grade, ...], Scale] | None]:
    """The fallback evaluator's grades, and what they go through; None if there is none, or it failed too."""
    scale = run.policy.fallback
    if scale is None:
        return None
    run.count("fallback_evaluator")
    call = grade(query, passages, run.scope, timeout_s=run.settings.grade_timeout_s, port="fallback_evaluator")
    (outcome,) = yield Together((call,))
    if isinstance(outcome, CRAGError):
        run.trouble(f"fallback_{step}", outcome)
        return None
    run.without("cheap_evaluator")
    run.fell_back = run.fell_back or step == "grade"
    return outcome, scale


def refined(query: str, graded: tuple[Graded, ...], run: Run) -> Plan[tuple[Kept, ...]]:
    """The strips of each passage that bear on the question."""
    if not graded:
        return ()
    run.count("refiner")
    texts = tuple(g.passage for g in graded)
    (picked,) = yield Together((refine(query, texts, run.scope, timeout_s=run.settings.refine_timeout_s, memo=run.memo),))
    return keep(graded, picked, run)


def keep(graded: tuple[Graded, ...], picked: tuple[tuple[Strip, ...], ...] | CRAGError, run: Run) -> tuple[Kept, ...]:
    """The picked strips; all strips of a passage of which none was picked, or of every passage if the refiner failed."""
    if isinstance(picked, CRAGError):
        run.trouble("refine", picked)
        picked = ((),) * len(graded)
    kept = (strips or _whole(g.passage) for g, strips in zip(graded, picked, strict=True))
    return tuple(Kept(g, strips) for g, strips in zip(graded, kept, strict=True) if strips)


def _whole(passage: Passage) -> tuple[Strip, ...]:
    return tuple(replace(strip, why="whole") for strip in split(passage.text))
