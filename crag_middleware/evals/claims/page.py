"""The report of a claim checker's run as one HTML page."""

from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.evals.claims.plot import curves, probabilities
from crag_middleware.evals.claims.report import ClaimReport, ClaimSet, baseline_numbers, claim_numbers
from crag_middleware.evals.html import brief, document, figures, paragraph, table
from crag_middleware.evals.numbers import lines

COUNTED = "Only claims labelled supported count as supported; partially_supported and generic count as not supported."
"""How labels are read, for people."""


def render(report: ClaimReport) -> str:
    """The page."""
    run = report.run
    facts = [run.checker, f"model {run.model}" if run.model else "", f"prompt {run.prompt}" if run.prompt else ""]
    parts = [
        paragraph("Claims report", tag="h1"),
        paragraph(", ".join((*filter(None, facts), f"threshold {run.threshold:g}"))),
        paragraph(
            f"Each claim was checked by itself against its evidence. {COUNTED} A claim with a probability below the threshold is flagged, any other passes, "
            "also one of which the checker could not say anything."
        ),
        paragraph(
            f"In brackets: {report.level:.0%} bootstrap intervals, {report.resamples} resamples; claims on the same evidence are drawn together. Sets and "
            "languages are never pooled.",
            "soft",
        ),
        _summary(report) if len(report.sets) > 1 else "",
        *(_set(one, run.threshold) for one in report.sets),
    ]
    return document(f"Claims report: {run.checker}", parts)


def _summary(report: ClaimReport) -> str:
    numbers = claim_numbers(report.run.threshold)
    rows = (
        [f"{one.name}, {one.questions}", *(brief(one.numbers[n.name]) for n in numbers), *(brief(one.baselines[b.name]) for b in BASELINES)]
        for one in report.sets
    )
    return table("All sets, with their claims", ["Set", *(n.title for n in numbers), *(f"AUC of {b.title}" for b in BASELINES)], rows)


def _set(one: ClaimSet, threshold: float) -> str:
    labels = ", ".join(f"{count} {label}" for label, count in one.labels.items())
    rows = [*lines(claim_numbers(threshold), one.numbers), *lines(baseline_numbers(), one.baselines)]
    parts = (
        paragraph(one.name, tag="h2"),
        paragraph(f"{one.questions} claims: {labels}."),
        paragraph(one.left_out, "warning") if one.failed else "",
        paragraph(f"The checker could not say anything of {one.undecided} claims; they pass.", "warning") if one.undecided else "",
        figures(
            [
                (curves(one), "Supported claims against others above every cut. The dot is the checker at its threshold."),
                (probabilities(one, threshold), "P(supported) by what people said; dashed: the threshold."),
            ]
        ),
        table("Numbers", ["", "Value", "Meaning"], rows, words=2),
        paragraph(one.cost, "soft"),
    )
    return "\n".join(filter(None, parts))
