"""The report of a run over answers in a terminal."""

from rich.console import Console

from crag_middleware.evals.html import brief
from crag_middleware.evals.refusal.report import NUMBERS, RefusalReport
from crag_middleware.evals.show import open_table

_HEADS = ("refusal precision", "refusal recall", "false refusals", "citation recall", "citation precision")


def show_refusal(report: RefusalReport, console: Console) -> None:
    """The report in short."""
    console.print(f"citations checked by {report.run}")
    table = open_table("set", "answers", "unanswerable", "failed", *_HEADS)
    for one in report.sets:
        failed = str(sum(one.failed.values()) or "")
        values = [brief(one.numbers[number.name]) for number in NUMBERS]
        table.add_row(one.name, str(one.questions), str(one.unanswerable), failed, *values)
    console.print(table)
    console.print(
        "refusal precision: refusals whose question can't be answered; refusal recall: unanswerable questions that are refused; false refusals: answerable "
        "ones that are; citation recall: statements that what they cite supports; citation precision: citations that contribute. An answer refuses if it says "
        "so and states nothing."
    )
    for one in report.sets:
        if one.failed:
            console.print(f"{one.name}: {one.left_out}")
