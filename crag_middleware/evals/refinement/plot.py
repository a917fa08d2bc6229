"""The curves of one data set, as SVG for a page."""

import matplotlib

from crag_middleware.evals.plots import INK, STYLE, figure, svg
from crag_middleware.evals.refinement.baselines import BASELINES
from crag_middleware.evals.refinement.curve import STEPS
from crag_middleware.evals.refinement.report import REFINER, RefinementSet

OWN = "#4a90d9"
LINES = {
    "whole": ("#9aa4ae", ":"),
    "first": ("#9aa4ae", "-"),
    "keywords": ("#c9a227", "-"),
    "overlap": ("#e08a2e", "-"),
    "embedding": ("#3a9d6e", "-"),
}
"""Colours seen on white and on near-black, and the strokes."""

TITLES = {REFINER: "refiner, ranked"} | {baseline.name: baseline.title for baseline in BASELINES}
"""The names of rankings, for people."""


def curves(one: RefinementSet) -> str:
    """Recall of gold sentences against the kept share of characters: the refiner's ranking with its interval, the baselines, and what the refiner keeps."""
    shares = [n / STEPS for n in range(STEPS + 1)]
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(6.4, 3.9)
        for ranking, (colour, stroke) in LINES.items():
            if ranking in one.rankings:
                axes.plot(shares, one.rankings[ranking].recall, color=colour, linestyle=stroke, linewidth=1.2, label=TITLES[ranking])
        if own := one.rankings.get(REFINER):
            if own.low:
                axes.fill_between(shares, own.low, own.high, color=OWN, alpha=0.2, linewidth=0)
            axes.plot(shares, own.recall, color=OWN, linewidth=2.2, label=TITLES[REFINER])
        if point := one.point:
            axes.scatter(
                [point.kept.value], [point.recall.value], s=42, color=OWN, edgecolors=INK, linewidths=1, zorder=5, label="what it keeps"
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of characters kept", ylabel="recall of gold sentences")
        axes.grid(alpha=0.25, linewidth=0.6)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
        said = [
            f"{TITLES[ranking]}: area {found.area.value:.2f}, recall {found.recall[25]:.2f} at 25%"
            for ranking, found in one.rankings.items()
        ]
        if point:
            said.append(
                f"what the refiner keeps: {point.kept.value:.0%} of the characters with {point.recall.value:.0%} of the gold sentences"
            )
        return svg(drawn, f"Recall of gold sentences against kept share in {one.name}. {'; '.join(said) or 'Every question failed'}.")
