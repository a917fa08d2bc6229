"""A whole measurement of answers: from files of them to a directory with rows, report and page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from crag_middleware.errors import ClaimCheckError
from crag_middleware.evals.claims.run import owner_of
from crag_middleware.evals.compare import ROWS_FILE
from crag_middleware.evals.datasets import select
from crag_middleware.evals.refusal.items import load_answers
from crag_middleware.evals.refusal.page import render
from crag_middleware.evals.refusal.report import RefusalReport, make_refusal_report
from crag_middleware.evals.refusal.run import judge_each
from crag_middleware.evals.runner import Progress, check_any_done
from crag_middleware.evals.session import write
from crag_middleware.ports import AsyncClaimChecker, ClaimChecker


def measure_refusal(
    data: Sequence[str | Path],
    checker: ClaimChecker | AsyncClaimChecker,
    *,
    folder: Path,
    languages: Sequence[str] = (),
    limit: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
) -> RefusalReport:
    """Looks at answers and writes the run into a directory.

    Args:
        data: JSONL files of answers, see `evals/refusal/items.py`.
        checker: Who says whether what a statement cites supports it; asked only about answers with passages.
        folder: Gets `rows.jsonl` while it runs, and `report.json` and `report.html` at the end.
        languages: Only answers in these; empty for all.
        limit: Answers of each data set and language at most.
        resume: Goes on with the run in that directory.
        progress: Told after each answer.

    Raises:
        ConfigError: The data, the checker or the directory can't be used.
        ClaimCheckError: Of not one answer the citations could be checked.
    """
    items = select(load_answers(data), languages=languages, limit=limit)
    rows = judge_each(items, checker, path=folder / ROWS_FILE, resume=resume, progress=progress)
    check_any_done(rows, ClaimCheckError, "checked")
    report = make_refusal_report(rows, owner_of(checker))
    write(folder, report.to_json(), render(report))
    return report
