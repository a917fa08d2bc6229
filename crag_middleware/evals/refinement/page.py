"""The report of a refiner's run as one HTML page."""

from collections.abc import Iterator

from crag_middleware.evals.html import brief, document, figures, paragraph, table
from crag_middleware.evals.refinement.baselines import BASELINES
from crag_middleware.evals.refinement.curve import FOUND
from crag_middleware.evals.refinement.plot import TITLES, curves
from crag_middleware.evals.refinement.report import ENOUGH, RefinementReport, RefinementSet

SHARES = (5, 10, 15, 20, 25, 33, 40, 47, 51, 60, 75, 90, 100)
"""The kept shares whose recall is in the tables, in percent."""


def render(report: RefinementReport) -> str:
    """The page."""
    run = report.run
    facts = [run.refiner, f"model {run.model}" if run.model else "", f"prompt {run.prompt}" if run.prompt else ""]
    parts = [
        paragraph("Refinement report", tag="h1"),
        paragraph(", ".join(filter(None, facts))),
        paragraph(
            "How many of the sentences that bear on the answer, the gold sentences, are found in a part of the passages. A ranking is taken from its "
            f"best strip down, as far as the share of characters allows. A gold sentence is found if at least {FOUND}% of it, white space aside, stands in "
            "kept strips; "
            "recall is the share of a question's gold sentences, averaged over questions."
        ),
        paragraph(
            f"In brackets: {report.level:.0%} bootstrap intervals over questions, {report.resamples} resamples. Sets and languages are never pooled.",
            "soft",
        ),
        *(paragraph(line, "warning") for line in left_out(report)),
        _summary(report) if len(report.sets) > 1 else "",
        *map(_set, report.sets),
        _baselines() if run.baselines else "",
    ]
    return document(f"Refinement report: {run.refiner}", parts)


def left_out(report: RefinementReport) -> Iterator[str]:
    """What was left out for want of gold sentences, in a sentence, if anything was."""
    if report.without_gold:
        counts = ", ".join(f"{n} of {source} ({lang})" for (source, lang), n in report.without_gold.items())
        yield f"Questions without words, or without a known gold sentence, are left out: {counts}."


def _summary(report: RefinementReport) -> str:
    names = list(dict.fromkeys(ranking for one in report.sets for ranking in one.rankings))
    rows = (
        [f"{one.name}, {one.questions}", *_kept(one), *(brief(one.rankings[n].area if n in one.rankings else None) for n in names)]
        for one in report.sets
    )
    caption = "All sets, with their questions: what the refiner keeps, of characters and of gold sentences, and the area under each ranking's curve"
    return table(caption, ["Set", "keeps", "finds", *(TITLES[ranking] for ranking in names)], rows)


def _kept(one: RefinementSet) -> tuple[str, str]:
    return (brief(one.point.kept), brief(one.point.recall)) if one.point else ("–", "–")


def _set(one: RefinementSet) -> str:
    kept, found = _kept(one)
    rankings = one.rankings.values()
    rows = [
        ["area under the curve", *(brief(ranking.area) for ranking in rankings)],
        [f"smallest share that keeps {ENOUGH:.0%}", *(brief(ranking.enough) for ranking in rankings)],
        *([f"recall at {share}%", *(brief(ranking.at(share)) for ranking in rankings)] for share in SHARES),
    ]
    return "\n".join(
        filter(
            None,
            (
                paragraph(one.name, tag="h2"),
                paragraph(
                    f"{one.questions} questions with {one.gold} gold sentences in {one.characters} characters. "
                    + (f"The refiner keeps {kept} of the characters and {found} of the gold sentences." if one.point else "")
                ),
                paragraph(one.left_out, "warning") if one.failed else "",
                figures(
                    [
                        (
                            curves(one),
                            "Recall of gold sentences. The band is the interval of the refiner's ranking; the dot is what the refiner really keeps.",
                        )
                    ]
                ),
                table("Rankings", ["", *(TITLES[ranking] for ranking in one.rankings)], rows) if rankings else "",
                paragraph(one.cost, "soft"),
            ),
        )
    )


def _baselines() -> str:
    rows = [[baseline.title, baseline.meaning] for baseline in BASELINES]
    return "\n".join(
        (
            paragraph("The baselines", tag="h2"),
            table("Sentences are the package's own strips in all of them", ["Baseline", "Its ranking"], rows, words=1),
        )
    )
