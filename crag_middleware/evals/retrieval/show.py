"""The report of a run of retrieval in a terminal."""

from rich.console import Console

from crag_middleware.evals.retrieval.page import left_out, over
from crag_middleware.evals.retrieval.report import DEPTHS, JUDGED_DEPTH, RetrievalReport
from crag_middleware.evals.retrieval.search import SHOWN
from crag_middleware.evals.retrieval.ways import TITLES
from crag_middleware.evals.show import open_table, short
from crag_middleware.evals.statistics import LEVEL


def show_retrieval(report: RetrievalReport, console: Console) -> None:
    """The report in short."""
    console.print(str(report.run))
    recalls = [f"R@{k}" for k in DEPTHS]
    table = open_table(
        "set", "way", *recalls, f"nDCG@{JUDGED_DEPTH}", f"over RRF [{LEVEL:.0%}]", f"MRR@{JUDGED_DEPTH}", "alike", "s/question", words=2
    )
    for one in report.sets:
        first = [f"{one.name}, {one.questions}", f"{one.seconds / max(one.questions, 1):.2f}"]
        if not one.ways:
            table.add_row(first[0], "–", *["–"] * (len(recalls) + 4), first[1])
        for way, found in one.ways.items():
            numbers = [*(short(found.recall[k]) for k in DEPTHS), f"{found.ndcg.value:.3f}", over(found.over_rrf)]
            table.add_row(first[0], TITLES[way], *numbers, f"{found.mrr.value:.3f}", short(found.redundancy), first[1])
            first = ["", ""]
    console.print(table)
    console.print(
        f"R@k: the share of relevant documents among the first k; over RRF: points of nDCG@{JUDGED_DEPTH} above the fusion's; "
        f"alike: the mean cosine between the first {SHOWN}; s/question: all ways together."
    )
    for line in (*(f"{one.name}: {one.left_out}" for one in report.sets if one.failed), *left_out(report)):
        console.print(line)
