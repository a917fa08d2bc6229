"""A whole measurement of a refiner: from files of questions to a directory with rows, report and page."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from crag_middleware.errors import ConfigError, RefineError
from crag_middleware.evals.compare import ROWS_FILE
from crag_middleware.evals.datasets import select
from crag_middleware.evals.refinement.page import render
from crag_middleware.evals.refinement.questions import load_evidence
from crag_middleware.evals.refinement.report import RefinementReport, make_refinement_report
from crag_middleware.evals.refinement.run import owner_of, refine_each
from crag_middleware.evals.runner import Progress, check_any_done
from crag_middleware.evals.session import write
from crag_middleware.ports import AsyncRefiner, Refiner


def measure_refinement(
    data: Sequence[str | Path],
    refiner: Refiner | AsyncRefiner,
    *,
    folder: Path,
    baselines: bool = True,
    languages: Sequence[str] = (),
    limit: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
) -> RefinementReport:
    """Refines the questions' passages and writes the run into a directory.

    Args:
        data: JSONL files of questions with gold sentences, see `evals/schemas.py`; questions without any are left out and counted.
        refiner: Who refines. One with `rank` or `arank` gets a curve, any other only a point.
        folder: Gets `rows.jsonl` while it runs, and `report.json` and `report.html` at the end.
        baselines: Measures the baselines on the same questions; the embedding filter needs the extra `local`.
        languages: Only questions in these; empty for all.
        limit: Questions of each data set and language at most.
        resume: Goes on with the run in that directory.
        progress: Told after each question.

    Raises:
        ConfigError: The data, the refiner or the directory can't be used.
        RefineError: Not one question could be refined.
    """
    items = load_evidence(data)
    telling = [item for item in items if item.gold]
    if not telling:
        msg = f"none of {len(items)} questions has a gold sentence"
        raise ConfigError(msg, reason="bad_data")
    asked = select(telling, languages=languages, limit=limit)
    missing = Counter((item.source, item.lang) for item in items if not item.gold and (not languages or item.lang in languages))
    rows = refine_each(asked, refiner, baselines=baselines, path=folder / ROWS_FILE, resume=resume, progress=progress)
    check_any_done(rows, RefineError, "refined")
    report = make_refinement_report(rows, owner_of(refiner, baselines=baselines), without_gold=missing)
    write(folder, report.to_json(), render(report))
    return report
