"""Running a refiner and the baselines over questions with gold sentences."""

from collections.abc import Callable, Sequence
from contextlib import closing
from math import isfinite
from numbers import Real
from pathlib import Path

from crag_middleware import steps
from crag_middleware.adapters.given import evaluator_key
from crag_middleware.errors import RefineError
from crag_middleware.evals.refinement.baselines import BASELINES, rank
from crag_middleware.evals.refinement.curve import found_by_share, kept_and_found
from crag_middleware.evals.refinement.questions import EvidenceItem
from crag_middleware.evals.refinement.rows import REFINEMENTS, Curve, RefinementRow, RefinerRun
from crag_middleware.evals.runner import TENANT, TIMEOUT_S, Caller, Meter, Progress, each
from crag_middleware.ports import AsyncRefiner, Bound, Refiner, bind
from crag_middleware.tenancy import Scope
from crag_middleware.types import Memo, Strip

Picked = tuple[tuple[Strip, ...], ...]
"""The strips of each passage."""


def refine_each(
    items: Sequence[EvidenceItem],
    refiner: Refiner | AsyncRefiner,
    *,
    baselines: bool = True,
    path: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[RefinementRow, ...]:
    """Refines each question's passages in one call, and ranks their strips in another if the refiner can.

    Both calls of a question share one memo. Time, model calls and tokens are those of the first. It can't be called where an event loop is running if the
    refiner has only an async form; call it in a thread there.

    Args:
        items: The questions; each has a gold sentence.
        refiner: Who refines.
        baselines: Whether the baselines are measured on the same questions.
        path: The file that each row is written to as it comes; None for none.
        resume: Whether that file holds the beginning of this run; its failed rows are tried again.
        progress: Told at the beginning and after each question.
        timeout_s: Deadline for each of a question's calls.

    Returns:
        A row for each question, in order; one that failed has the reason in it.

    Raises:
        ConfigError: The object can't refine; or the file exists, or, resuming, it doesn't, or belongs to another run; or a baseline needs a package that is
            not installed.
    """
    refine, ranking = bind(refiner, "refine"), _ranking(refiner)
    with closing(Caller()) as caller:

        def measured(item: EvidenceItem) -> RefinementRow:
            memo: Memo = {}
            meter = Meter()
            kept, found, reason = 0, 0, ""
            curve: Curve = ()
            try:
                picked = caller.call(refine, _refine(item, memo, timeout_s), meter)
                kept, found = kept_and_found(item, picked)
                if ranking is not None:
                    curve = _curve(item, caller, ranking, memo, timeout_s)
            except RefineError as error:
                kept, found, reason = 0, 0, error.reason
            lines = (
                {} if reason or not baselines else {b.name: found_by_share(item, rank(b, item.question, item.passages)) for b in BASELINES}
            )
            return RefinementRow(
                id=item.id,
                digest=item.digest,
                source=item.source,
                lang=item.lang,
                gold=len(item.gold),
                characters=item.characters,
                kept=kept,
                found=found,
                curve=curve,
                baselines=lines,
                error=reason,
                **meter.spent(),
            )

        return each(items, measured, REFINEMENTS, owner_of(refiner, baselines=baselines), path=path, resume=resume, progress=progress)


def owner_of(refiner: object, *, baselines: bool) -> RefinerRun:
    """Whose run it is: the refiner's own `key`, an `EvaluatorKey`, or its class name if it exposes none.

    Raises:
        ConfigError: Its `key` is something else.
    """
    key = evaluator_key(refiner)
    return RefinerRun(key.evaluator, key.model, key.prompt, baselines)


def _ranking(refiner: object) -> Bound | None:
    """The refiner's `rank`; None if it has none."""
    has = any(callable(getattr(refiner, name, None)) for name in ("rank", "arank"))
    return bind(refiner, "rank") if has else None


def _refine(item: EvidenceItem, memo: Memo, timeout_s: float) -> steps.Call[Picked]:
    return steps.refine(item.question, item.passages, Scope(TENANT), timeout_s=timeout_s, memo=memo)


def _curve(item: EvidenceItem, caller: Caller, ranking: Bound, memo: Memo, timeout_s: float) -> Curve:
    """The curve of a ranking; what that costs is on no meter.

    Raises:
        RefineError: It failed, or a strip has no worth.
    """
    ranked = caller.call(ranking, _refine(item, memo, timeout_s), Meter())
    if not all(isinstance(strip.worth, Real) and isfinite(strip.worth) for strips in ranked for strip in strips):
        msg = "`rank` must give every strip a `worth`, a finite number"
        raise RefineError(msg, reason="invalid_reply")
    return found_by_share(item, ranked)
