"""The drawings of one data set, as SVG for a page."""

import matplotlib

from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.evals.claims.report import CHECKER, ClaimSet
from crag_middleware.evals.plots import COLOURS, INK, STYLE, figure, svg
from crag_middleware.evals.report import HISTOGRAM_BINS

TITLES = {CHECKER: "checker"} | {baseline.name: baseline.title for baseline in BASELINES}
"""The names of curves, for people."""

_LINES = {CHECKER: (COLOURS["relevant"], 2.2), "coverage": (COLOURS["ambiguous"], 1.2), "with_numbers": (COLOURS["incorrect"], 1.2)}
_KINDS = {"other": COLOURS["incorrect"], "supported": COLOURS["relevant"]}


def curves(one: ClaimSet) -> str:
    """The share of supported claims against that of others above every cut, of the checker and the baselines; the dot is the checker's threshold."""
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(4.2, 3.4)
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
        for name, points in reversed(list(one.roc.items())):
            colour, width = _LINES[name]
            axes.plot([x for x, _ in points], [y for _, y in points], color=colour, linewidth=width, label=TITLES[name])
        alarms, caught = one.numbers["false_alarms"], one.numbers["caught"]
        if alarms and caught:
            axes.scatter(
                [1 - caught.value], [1 - alarms.value], s=42, color=COLOURS["relevant"], edgecolors=INK, zorder=5, label="its threshold"
            )
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="other claims that pass", ylabel="supported claims that pass")
        if one.roc:
            axes.legend(loc="lower right", reverse=True)
        found = {CHECKER: one.numbers["auc"], **one.baselines}
        said = "; ".join(f"{TITLES[name]}: AUC {value.value:.2f}" for name, value in found.items() if value)
        return svg(drawn, f"ROC curves in {one.name}. {said or 'Claims of only one kind'}.")


def probabilities(one: ClaimSet, threshold: float) -> str:
    """How many supported and other claims got which probability, with the threshold."""
    left = [n / HISTOGRAM_BINS for n in range(HISTOGRAM_BINS)]
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(3.6, 3.1)
        for kind, counts in reversed(list(one.histogram.items())):
            heights = [100 * n / max(sum(counts), 1) for n in counts]
            label = f"{kind} ({sum(counts)})"
            axes.bar(left, heights, width=1 / HISTOGRAM_BINS, align="edge", color=_KINDS[kind], alpha=0.65, label=label)
        axes.axvline(threshold, color=INK, linewidth=0.9, linestyle="--")
        axes.set(xlim=(0, 1), xlabel="probability", ylabel="% of claims of that kind")
        axes.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.16), handlelength=1)
        return svg(drawn, f"Histogram of the probabilities of supported and other claims of {one.name}; threshold {threshold:g}.")
