"""Grading and refining passages, and what happens when either fails."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from crag_middleware.errors import CRAGError
from crag_middleware.ledger import Run
from crag_middleware.stages.assemble import Kept
from crag_middleware.stages.decide import calibrated, label
from crag_middleware.stages.injection import injection_score
from crag_middleware.stages.provenance import evidence_score
from crag_middleware.stages.sentences import split
from crag_middleware.steps import Call, Plan, Stage, Together, grade, refine
from crag_middleware.types import Grade, Graded, Passage, Strip, Trouble, WebFound


def weighed(passages: Sequence[Passage], run: Run) -> tuple[Passage, ...]:
    """Passages of the knowledge with what their source is worth and how much of them reads like orders."""
    scored = (replace(passage, injection_score=injection_score(passage.text)) for passage in passages)
    return tuple(replace(passage, evidence_score=evidence_score(passage, run.web.scores, trust=run.trust(passage))) for passage in scored)


def graded(
    query: str, passages: tuple[Passage, ...], step: str, run: Run, *, beside: Call[WebFound] | None = None
) -> Plan[tuple[Graded, ...]]:
    """Each passage with its grade; `ungraded`, and told, where the evaluator gives none.

    Args:
        query: What was asked.
        passages: What was found.
        step: What a failure is told as.
        run: The run.
        beside: A web search that goes on meanwhile; its outcome is the run's `early`.
    """
    if not passages:
        return ()
    yield Stage("grading")
    if not run.may_ask():
        run.missed(Trouble(step, "budget"))
        return tuple(Graded(passage=p, grade=Grade(passage_id=p.id, probability=None, label="ungraded")) for p in passages)
    run.count("evaluator")
    asked: tuple[Call[Any], ...] = (grade(query, passages, run.scope, timeout_s=run.settings.grade_timeout_s),)
    outcome, *early = yield Together((*asked, beside) if beside else asked)
    if early:
        run.early = early[0]
        run.attempted(early[0])
    if isinstance(outcome, CRAGError):
        run.trouble(step, outcome)
        grades = tuple(Grade(passage_id=p.id, probability=None, label="ungraded") for p in passages)
    else:
        grades = outcome
        if any(g.label == "ungraded" for g in grades):
            run.troubles.append(Trouble(step, "incomplete"))
    scale = run.scale
    mapped = (label(calibrated(g, scale.calibration), scale.thresholds) for g in grades)
    return tuple(Graded(passage=p, grade=g) for p, g in zip(passages, mapped, strict=True))


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
