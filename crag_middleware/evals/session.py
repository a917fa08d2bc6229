"""A whole measurement: from files of questions to a directory with rows, report and page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from crag_middleware.adapters.given import evaluator_key
from crag_middleware.calibration import Calibration
from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.evals.compare import PAGE_FILE, REPORT_FILE, ROWS_FILE
from crag_middleware.evals.datasets import load, only_negatives, select
from crag_middleware.evals.judge import scale_of
from crag_middleware.evals.page import render
from crag_middleware.evals.report import Report, make_report
from crag_middleware.evals.runner import Progress, check_any_done, evaluate
from crag_middleware.ports import AsyncEvaluator, Evaluator


def measure(
    data: Sequence[Path],
    evaluator: Evaluator | AsyncEvaluator,
    *,
    folder: Path,
    calibration: Calibration | None = None,
    languages: Sequence[str] = (),
    limit: int | None = None,
    negatives_only: bool = False,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Report:
    """Grades the questions and writes the run into a directory.

    Args:
        data: JSONL files, see `schemas.py`.
        evaluator: Who grades.
        folder: Gets `rows.jsonl` while it runs, and `report.json` and `report.html` at the end.
        calibration: What the grades go through; None for the evaluator's own.
        languages: Only questions in these; empty for all.
        limit: Questions of each data set and language at most.
        negatives_only: Shows the evaluator only those passages that are known not to answer.
        resume: Goes on with the run in that directory.
        progress: Told after each question.

    Raises:
        ConfigError: The data, the calibration or the directory can't be used.
        GradingError: Not one question could be graded.
    """
    items = select(load(data), languages=languages, limit=limit)
    if negatives_only:
        items = only_negatives(items)
    if not items:
        msg = "no question has a passage that is known not to answer it"
        raise ConfigError(msg, reason="bad_data")
    key, scale = evaluator_key(evaluator), scale_of(evaluator, calibration)
    rows = evaluate(items, evaluator, path=folder / ROWS_FILE, resume=resume, progress=progress)
    check_any_done(rows, GradingError, "graded")
    report = make_report(rows, key, scale, negatives_only=negatives_only)
    write(folder, report.to_json(), render(report))
    return report


def write(folder: Path, report: str, page: str) -> None:
    """Puts a report, as JSON, and its page into a run's directory."""
    (folder / REPORT_FILE).write_text(report, encoding="utf-8")
    (folder / PAGE_FILE).write_text(page, encoding="utf-8")
