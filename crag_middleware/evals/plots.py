"""The plots of a report, as SVG for a page: text stays text, and what is drawn in the page's text colour follows it from light to dark."""

import io
import re
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crag_middleware.evals.measures import VERDICTS
from crag_middleware.evals.report import HISTOGRAM_BINS, SetReport
from crag_middleware.types import Thresholds

COLOURS = {"relevant": "#4a90d9", "ambiguous": "#9aa4ae", "incorrect": "#e08a2e"}
"""Seen on white and on near-black, told apart by colour-blind people, and light enough for dark text on them."""

_ON_COLOUR = "#101418"

INK = "#010203"
"""Stands for the page's text colour until the SVG is written."""

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "crag",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
}
"""For `matplotlib.rc_context`."""

_RULES = {"paper": "all", "paper_negatives": "negatives", "set": "set: all", "set_negatives": "set: negatives"}


def reliability(one: SetReport) -> str:
    """Probability against the share of relevant passages, with the diagonal of a calibrated evaluator; larger dots for more passages."""
    most = max((point.passages for point in one.reliability), default=1)
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(3.2, 2.9)
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
        axes.plot([p.probability for p in one.reliability], [p.relevant for p in one.reliability], color=COLOURS["relevant"], linewidth=1)
        sizes = [12 + 90 * p.passages / most for p in one.reliability]
        axes.scatter(
            [p.probability for p in one.reliability], [p.relevant for p in one.reliability], s=sizes, color=COLOURS["relevant"], alpha=0.85
        )
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="probability", ylabel="share of relevant passages")
        said = "; ".join(f"{p.probability:.2f} said, {p.relevant:.2f} relevant of {p.passages}" for p in one.reliability)
        return svg(drawn, f"Reliability diagram of {one.name}: {said or 'no labelled passage was graded'}.")


def histogram(one: SetReport, thresholds: Thresholds) -> str:
    """How many relevant and incorrect passages got which probability, with the thresholds."""
    left = [n / HISTOGRAM_BINS for n in range(HISTOGRAM_BINS)]
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(3.6, 2.9)
        for kind in ("incorrect", "relevant"):
            counts = one.histogram[kind]
            total = max(sum(counts), 1)
            heights = [100 * n / total for n in counts]
            axes.bar(
                left, heights, width=1 / HISTOGRAM_BINS, align="edge", color=COLOURS[kind], alpha=0.65, label=f"{kind} ({sum(counts)})"
            )
        for cut in (thresholds.lower, thresholds.upper):
            axes.axvline(cut, color=INK, linewidth=0.9, linestyle="--")
        axes.set(xlim=(0, 1), xlabel="probability", ylabel="% of passages so labelled")
        axes.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.16), handlelength=1)
        cuts = f"thresholds at {thresholds.lower:g} and {thresholds.upper:g}"
        return svg(drawn, f"Histogram of the probabilities of relevant and incorrect passages of {one.name}; {cuts}.")


def verdicts(one: SetReport) -> str:
    """The mix of verdicts, by rule, for all passages and for only the negatives."""
    rows = [(title, one.verdicts[rule]) for rule, title in _RULES.items() if rule in one.verdicts]
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(3.9, 0.95 + 0.4 * len(rows))
        for height, (_, counts) in enumerate(reversed(rows)):
            begun, total = 0.0, max(sum(counts.values()), 1)
            for verdict in VERDICTS:
                width = 100 * counts[verdict] / total
                axes.barh(height, width, left=begun, color=COLOURS[verdict], height=0.65, label=verdict if height == 0 else None)
                if width >= 9:
                    axes.text(begun + width / 2, height, f"{width:.0f}", ha="center", va="center", color=_ON_COLOUR)
                begun += width
        axes.set_yticks(range(len(rows)), [title for title, _ in reversed(rows)])
        axes.set(xlim=(0, 100), xlabel="% of questions")
        if rows:
            axes.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.4, 1.0), handlelength=1)
        said = "; ".join(f"{title}: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) for title, counts in rows)
        return svg(drawn, f"Verdicts of {one.name}. {said or 'No question was graded'}.")


def figure(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty drawing of this size, in inches."""
    drawn = Figure(figsize=(width, height), layout="constrained")
    return drawn, drawn.add_subplot()


def svg(drawn: Figure, text: str) -> str:
    """The figure as an element that stands in a page, with its text for those who don't see it."""
    held = io.StringIO()
    drawn.savefig(held, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    element = held.getvalue()
    element = re.sub(r"<metadata>.*?</metadata>", "", element[element.index("<svg") :], flags=re.DOTALL).replace(INK, "currentColor")
    return element.replace("<svg", f'<svg role="img" aria-label="{escape(text)}"', 1)
