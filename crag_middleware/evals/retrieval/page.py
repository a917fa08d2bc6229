"""The report of a run of retrieval as one HTML page."""

from collections.abc import Iterator

from crag_middleware.evals.html import brief, document, figures, paragraph, table
from crag_middleware.evals.retrieval.plot import gains, recalls, variety
from crag_middleware.evals.retrieval.report import DEPTHS, JUDGED_DEPTH, RetrievalReport, RetrievalSet, WayReport
from crag_middleware.evals.retrieval.search import SHOWN
from crag_middleware.evals.retrieval.ways import TITLES, WAYS
from crag_middleware.evals.statistics import Difference


def render(report: RetrievalReport) -> str:
    """The page."""
    run = report.run
    parts = [
        paragraph("Retrieval report", tag="h1"),
        paragraph(f"{str(run).capitalize()}."),
        paragraph(
            f"recall@k: the share of a question's relevant documents among the first k. nDCG@{JUDGED_DEPTH}: gains are the grades, discounted by the "
            f"logarithm of the rank, divided by those of the best order. MRR@{JUDGED_DEPTH}: one over the rank of the first relevant document. Redundancy: the "
            f"mean cosine between the vectors of the first {SHOWN}; less is more varied. All averaged over questions. A document that nobody judged counts as "
            "not relevant."
        ),
        paragraph(
            f"In brackets: {report.level:.0%} bootstrap intervals over questions, {report.resamples} resamples. Sets and languages are never pooled.",
            "soft",
        ),
        *(paragraph(line, "warning") for line in left_out(report)),
        *map(_set, report.sets),
        table("The ways to retrieve", ["Way", "What it is"], [[way.title, way.meaning] for way in WAYS], words=1),
    ]
    return document(f"Retrieval report: {run.embeddings}", parts)


def left_out(report: RetrievalReport) -> Iterator[str]:
    """What was left out for want of relevant documents, in a sentence, if anything was."""
    if report.without_relevant:
        counts = ", ".join(f"{n} of {source} ({lang})" for (source, lang), n in report.without_relevant.items())
        yield f"Questions without a relevant document are left out: {counts}."


def over(difference: Difference | None) -> str:
    """How much a way's nDCG exceeds the fusion's, in points, for a table."""
    if difference is None:
        return "–"
    return f"{100 * difference.value:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def _set(one: RetrievalSet) -> str:
    head = ["Way", *(f"recall@{k}" for k in DEPTHS), f"nDCG@{JUDGED_DEPTH}", "points over RRF", f"MRR@{JUDGED_DEPTH}", "redundancy"]
    rows = [[TITLES[way], *_numbers(found)] for way, found in one.ways.items()]
    drawn = (
        (gains(one), "The whole bar is the value, the line its interval."),
        (recalls(one), "How far down one must look."),
        (variety(one), "What each lambda of MMR gains in variety, to the left, and loses."),
    )
    return "\n".join(
        filter(
            None,
            (
                paragraph(one.name, tag="h2"),
                paragraph(f"{one.questions} questions with {one.relevant} relevant documents, among {one.documents}."),
                paragraph(one.left_out, "warning") if one.failed else "",
                figures(drawn) if one.ways else "",
                table("What each way finds", head, rows) if one.ways else "",
                paragraph(one.cost, "soft"),
            ),
        )
    )


def _numbers(found: WayReport) -> list[str]:
    return [*(brief(found.recall[k]) for k in DEPTHS), brief(found.ndcg), over(found.over_rrf), brief(found.mrr), brief(found.redundancy)]
