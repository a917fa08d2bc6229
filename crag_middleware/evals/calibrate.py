"""A whole calibration: from files of questions to the calibration's file."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from crag_middleware.adapters.given import evaluator_key
from crag_middleware.errors import ConfigError
from crag_middleware.evals.aims import Aims
from crag_middleware.evals.datasets import Item, load, select
from crag_middleware.evals.fit import Fitted, fit
from crag_middleware.evals.labelling import Labelling, judge_pairs
from crag_middleware.evals.rows import Row
from crag_middleware.evals.runner import Progress, evaluate
from crag_middleware.ports import AsyncEvaluator, Evaluator
from crag_middleware.tenancy import check_agent_id


def calibrate(
    data: Sequence[Path],
    evaluator: Evaluator | AsyncEvaluator,
    *,
    out: Path,
    judge: Evaluator | AsyncEvaluator | None = None,
    aims: Aims | None = None,
    collection: str = "",
    tenant: str | None = None,
    languages: Sequence[str] = (),
    limit: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Fitted:
    """Grades the questions, fits a calibration to the grades and writes it.

    Args:
        data: JSONL files, see `schemas.py`.
        evaluator: Who grades.
        out: The calibration's file; one that is there is replaced. The grades are kept beside it, in `<out>.rows.jsonl` and `<out>.judge.jsonl`.
        judge: Labels passages of which nobody said whether they are relevant; None if there is none.
        aims: What the thresholds are chosen for.
        collection: The collection that the calibration is for; empty for any.
        tenant: The tenant that it is for; None for any.
        languages: Only questions in these; empty for all.
        limit: Questions of each data set and language at most.
        resume: Goes on with the grades beside the file.
        progress: Told after each question, first of the judge's, then of the evaluator's.

    Raises:
        ConfigError: The data, the file or its neighbours can't be used, or there is too little to fit.
        TenantError: `tenant` is no usable tenant id.
    """
    if out.is_dir():
        msg = f"{str(out)!r} is a directory; name a file for the calibration"
        raise ConfigError(msg)
    if tenant is not None:
        check_agent_id(tenant)
    items = select(load(data), languages=languages, limit=limit)
    labelled: Labelling | None = None
    if judge is not None:
        path = out.with_name(f"{out.name}.judge.jsonl")
        labelled = judge_pairs(items, judge, path=path, resume=resume and path.exists(), progress=progress)
    path = out.with_name(f"{out.name}.rows.jsonl")
    rows = evaluate(labelled.items if labelled else items, evaluator, path=path, resume=resume and path.exists(), progress=progress)
    described = _described(items)
    if labelled is not None and judge is not None:
        key = evaluator_key(judge)
        described += f"; {labelled.relevant + labelled.incorrect} passages labelled by {' '.join(filter(None, (key.evaluator, key.model)))}"
    fitted = fit(rows, key=evaluator_key(evaluator), fitted_on=described, aims=aims, collection=collection, tenant=tenant)
    fitted.calibration.save(out)
    return replace(fitted, notes=(*fitted.notes, *_notes(rows, labelled)))


def summary(fitted: Fitted) -> Iterator[str]:
    """What was fitted and how far the aims are reached, in lines for a person."""
    one = fitted.calibration
    yield one.described
    yield f"map: {one.map.kind}; thresholds {one.thresholds[0]:.3f} and {one.thresholds[1]:.3f}"
    if one.sets:
        yield f"set: thresholds {one.sets.thresholds[0]:.3f} and {one.sets.thresholds[1]:.3f}"
    if one.prior is not None:
        share = f", {one.sets.prior:.0%} of the questions answerable" if one.sets and one.sets.prior is not None else ""
        yield f"right where {one.prior:.0%} of the passages are relevant{share}"
    for reached in fitted.reached:
        yield f"{'warning' if reached.why_not else 'aim'}: {reached}"
    if fitted.ungraded or fitted.left_out:
        yield f"note: {fitted.ungraded} passages could not be graded; {fitted.left_out} questions are left out of the thresholds"
    for note in fitted.notes:
        yield f"note: {note}"


def _described(items: Sequence[Item]) -> str:
    counts = Counter((item.source, item.lang) for item in items)
    return ", ".join(f"{source} ({lang}, {count})" for (source, lang), count in counts.items())


def _notes(rows: Sequence[Row], labelled: Labelling | None) -> Iterator[str]:
    if failed := Counter(row.error for row in rows if row.error):
        yield f"{failed.total()} of {len(rows)} questions failed: {', '.join(f'{n} {reason}' for reason, n in failed.most_common(5))}"
    if labelled:
        yield f"the judge labelled {labelled.relevant} passages relevant and {labelled.incorrect} incorrect, and left {labelled.dropped} open"
