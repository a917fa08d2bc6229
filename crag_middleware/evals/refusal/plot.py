"""The drawings of one data set, as SVG for a page."""

import matplotlib

from crag_middleware.evals.plots import COLOURS, INK, STYLE, figure, svg
from crag_middleware.evals.refusal.report import NUMBERS, RefusalSet

_REFUSED, _ANSWERED = COLOURS["incorrect"], COLOURS["relevant"]


def refusals(one: RefusalSet) -> str:
    """How many answerable and unanswerable questions were refused."""
    kinds = {"unanswerable": one.unanswerable, "answerable": one.answerable}
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(4.2, 1.8)
        for height, (kind, total) in enumerate(kinds.items()):
            refused = one.refused[kind]
            first = not height
            axes.barh(height, refused, color=_REFUSED, height=0.6, label="refused" if first else None)
            axes.barh(height, total - refused, left=refused, color=_ANSWERED, height=0.6, label="answered" if first else None)
        axes.set_yticks(range(len(kinds)), list(kinds))
        axes.set(xlim=(0, max(*kinds.values(), 1)), xlabel="questions")
        axes.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.4, 1.0), handlelength=1)
        said = "; ".join(f"{one.refused[kind]} of {total} {kind} questions refused" for kind, total in kinds.items())
        return svg(drawn, f"Refusals in {one.name}: {said}.")


def shares(one: RefusalSet) -> str:
    """Each number with its interval."""
    known = [(number.title, value) for number in NUMBERS if (value := one.numbers[number.name])]
    with matplotlib.rc_context(STYLE):
        drawn, axes = figure(4.4, 0.9 + 0.3 * len(known))
        for height, (_, value) in enumerate(reversed(known)):
            axes.barh(height, value.value, color=COLOURS["ambiguous"], height=0.6)
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [height, height], color=INK, linewidth=1.2)
        axes.set_yticks(range(len(known)), [title for title, _ in reversed(known)])
        axes.set(xlim=(0, 1), xlabel="share")
        said = "; ".join(f"{title} {value.value:.2f}" for title, value in known)
        return svg(drawn, f"Refusals and citations in {one.name}. {said or 'Every answer failed'}.")
