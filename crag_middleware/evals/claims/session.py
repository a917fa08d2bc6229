"""A whole measurement of a claim checker: from files of claims to a directory with rows, report and page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from crag_middleware.errors import ClaimCheckError
from crag_middleware.evals.claims.items import load_claims
from crag_middleware.evals.claims.page import render
from crag_middleware.evals.claims.report import ClaimReport, make_claim_report
from crag_middleware.evals.claims.run import check_each, owner_of
from crag_middleware.evals.compare import ROWS_FILE
from crag_middleware.evals.datasets import select
from crag_middleware.evals.runner import Progress, check_any_done
from crag_middleware.evals.session import write
from crag_middleware.ports import AsyncClaimChecker, ClaimChecker


def measure_claims(
    data: Sequence[str | Path],
    checker: ClaimChecker | AsyncClaimChecker,
    *,
    folder: Path,
    languages: Sequence[str] = (),
    limit: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
) -> ClaimReport:
    """Checks labelled claims and writes the run into a directory.

    Args:
        data: JSONL files of claims with their evidence, see `evals/claims/items.py`.
        checker: Who checks.
        folder: Gets `rows.jsonl` while it runs, and `report.json` and `report.html` at the end.
        languages: Only claims in these; empty for all.
        limit: Claims of each data set and language at most.
        resume: Goes on with the run in that directory.
        progress: Told after each claim.

    Raises:
        ConfigError: The data, the checker or the directory can't be used.
        ClaimCheckError: Not one claim could be checked.
    """
    items = select(load_claims(data), languages=languages, limit=limit)
    rows = check_each(items, checker, path=folder / ROWS_FILE, resume=resume, progress=progress)
    check_any_done(rows, ClaimCheckError, "checked")
    report = make_claim_report(rows, owner_of(checker))
    write(folder, report.to_json(), render(report))
    return report
