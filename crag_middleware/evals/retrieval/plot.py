"""The drawings of one data set, as SVG for a page."""

import matplotlib

from crag_middleware.evals.plots import INK, STYLE, figure, svg
from crag_middleware.evals.retrieval.report import DEPTHS, RetrievalSet
from crag_middleware.evals.retrieval.ways import BM25, DENSE, MMR, RERANK, RRF, TITLES

COLOURS = {DENSE: "#e08a2e", BM25: "#9aa4ae", RRF: "#4a90d9", RERANK: "#3a9d6e"} | dict.fromkeys(MMR, "#c9a227")
"""Seen on white and on near-black."""

_CURVES = (DENSE, BM25, RRF, RERANK)


def gains(one: RetrievalSet) -> str:
    """nDCG@10 of each way, with its interval."""
    ways = list(one.ways)
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(4.6, 0.9 + 0.28 * len(ways))
        for height, way in enumerate(reversed(ways)):
            value = one.ways[way].ndcg
            axes.barh(height, value.value, color=COLOURS[way], height=0.65)
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [height, height], color=INK, linewidth=1.2)
        axes.set_yticks(range(len(ways)), [TITLES[way] for way in reversed(ways)])
        axes.set(xlim=(0, 1), xlabel="nDCG@10")
        said = "; ".join(f"{TITLES[way]} {one.ways[way].ndcg.value:.2f}" for way in ways)
        return svg(drawn, f"nDCG@10 in {one.name}. {said or 'Every question failed'}.")


def recalls(one: RetrievalSet) -> str:
    """Recall against rank, of the legs, their fusion and the reranker."""
    ways = [way for way in _CURVES if way in one.ways]
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(4.6, 3.0)
        for way in ways:
            axes.plot(
                DEPTHS, [one.ways[way].recall[k].value for k in DEPTHS], marker="o", markersize=4, color=COLOURS[way], label=TITLES[way]
            )
        axes.set(xscale="log", ylim=(0, 1.02), xlabel="rank", ylabel="share of relevant documents found")
        axes.set_xticks(DEPTHS, [str(k) for k in DEPTHS], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.25, linewidth=0.6)
        if ways:
            axes.legend(loc="lower right")
        said = "; ".join(f"{TITLES[way]} " + ", ".join(f"{one.ways[way].recall[k].value:.2f} at {k}" for k in DEPTHS) for way in ways)
        return svg(drawn, f"Recall by rank in {one.name}. {said or 'Every question failed'}.")


def variety(one: RetrievalSet) -> str:
    """What each lambda of MMR gains in variety and loses in recall: nDCG@10 and recall@5 against redundancy."""
    points = [
        (found.redundancy.value, found, mmr_lambda) for way, mmr_lambda in MMR.items() if (found := one.ways.get(way)) and found.redundancy
    ]
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(4.2, 3.0)
        for label, colour, heights in (
            ("nDCG@10", COLOURS[RRF], [found.ndcg.value for _, found, _ in points]),
            ("recall@5", COLOURS[RERANK], [found.recall[5].value for _, found, _ in points]),
        ):
            axes.plot([x for x, _, _ in points], heights, marker="o", markersize=4, color=colour, label=label)
            for (x, _, mmr_lambda), height in zip(points, heights, strict=True):
                axes.annotate(f"{mmr_lambda:g}", (x, height), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=7)
        axes.set(ylim=(0, 1.05), xlabel="redundancy of the first five (mean cosine)", ylabel="nDCG@10, recall@5")
        axes.grid(alpha=0.25, linewidth=0.6)
        if points:
            axes.legend(loc="lower right")
        said = "; ".join(
            f"lambda {mmr_lambda:g}: redundancy {x:.2f}, nDCG@10 {found.ndcg.value:.2f}, recall@5 {found.recall[5].value:.2f}"
            for x, found, mmr_lambda in points
        )
        return svg(drawn, f"MMR in {one.name}. {said or 'No passages to compare'}.")
