"""The report of a run over answers as one HTML page."""

from crag_middleware.evals.html import brief, document, figures, paragraph, table
from crag_middleware.evals.numbers import lines
from crag_middleware.evals.refusal.citations import MAX_CITED, MAX_STATEMENTS
from crag_middleware.evals.refusal.plot import refusals, shares
from crag_middleware.evals.refusal.report import NUMBERS, RefusalReport, RefusalSet


def render(report: RefusalReport) -> str:
    """The page."""
    parts = [
        paragraph("Refusal report", tag="h1"),
        paragraph(f"Citations checked by {report.run}"),
        paragraph(
            "An answer refuses if it says that it can't answer, and states nothing. Citations as in ALCE (Gao et al. 2023), with the claim checker in "
            f"the place of its NLI model; of each answer the first {MAX_STATEMENTS} statements, of each statement the first {MAX_CITED} citations. They are "
            "only as good as the checker is."
        ),
        paragraph(
            f"In brackets: {report.level:.0%} bootstrap intervals over answers, {report.resamples} resamples. Sets and languages are never pooled.",
            "soft",
        ),
        _summary(report) if len(report.sets) > 1 else "",
        *map(_set, report.sets),
    ]
    return document("Refusal report", parts)


def _summary(report: RefusalReport) -> str:
    rows = ([f"{one.name}, {one.questions}", *(brief(one.numbers[n.name]) for n in NUMBERS)] for one in report.sets)
    return table("All sets, with their answers", ["Set", *(n.title for n in NUMBERS)], rows)


def _set(one: RefusalSet) -> str:
    told = f"{one.questions} answers to {one.answerable} answerable and {one.unanswerable} unanswerable questions"
    parts = (
        paragraph(one.name, tag="h2"),
        paragraph(f"{told}; {one.statements} statements with {one.citations} citations."),
        paragraph(one.left_out, "warning") if one.failed else "",
        figures([(refusals(one), "Who was refused."), (shares(one), "All numbers, with their intervals.")]),
        table("Numbers", ["", "Value", "Meaning"], lines(NUMBERS, one.numbers), words=2),
        paragraph(one.cost, "soft"),
    )
    return "\n".join(filter(None, parts))
