"""The report of a claim checker's run in a terminal."""

from rich.console import Console

from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.evals.claims.page import COUNTED
from crag_middleware.evals.claims.report import ClaimReport
from crag_middleware.evals.html import brief
from crag_middleware.evals.show import open_table, short

_COLUMNS = {"balanced": "accuracy", "false alarms": "false_alarms", "caught": "caught", "contradicted": "contradicted_recall"}


def show_claims(report: ClaimReport, console: Console) -> None:
    """The report in short."""
    console.print(str(report.run))
    table = open_table("set", "claims", "failed", "AUC", *_COLUMNS, *(baseline.name for baseline in BASELINES), "s/claim")
    for one in report.sets:
        table.add_row(
            one.name,
            str(one.questions),
            str(sum(one.failed.values()) or ""),
            brief(one.numbers["auc"]),
            *(short(one.numbers[name]) for name in _COLUMNS.values()),
            *(short(one.baselines[baseline.name]) for baseline in BASELINES),
            f"{one.seconds / max(one.questions, 1):.2f}",
        )
    console.print(table)
    console.print(
        "AUC: of supported claims against all others, with its interval; balanced: accuracy at the threshold; false alarms: supported claims below it; "
        "caught: others below it; contradicted: claims so labelled that the checker calls so; "
        + "; ".join(f"{baseline.name}: AUC of {baseline.title}" for baseline in BASELINES)
        + f". {COUNTED}"
    )
    for one in report.sets:
        if one.failed:
            console.print(f"{one.name}: {one.left_out}")
        if one.undecided:
            console.print(f"{one.name}: the checker could not say anything of {one.undecided} claims; they pass.")
