"""The report of a refiner's run in a terminal."""

from collections.abc import Iterator

from rich.console import Console

from crag_middleware.evals.refinement.page import left_out
from crag_middleware.evals.refinement.plot import TITLES
from crag_middleware.evals.refinement.report import ENOUGH, REFINER, RefinementReport, RefinementSet
from crag_middleware.evals.show import open_table, short

SHARES = (10, 25, 33, 47, 51, 75)
"""The kept shares that there is room for, in percent."""


def show_refinement(report: RefinementReport, console: Console) -> None:
    """The report in short."""
    console.print(f"{report.run.refiner} {report.run.model}".strip())
    table = open_table(
        "set", "ranking", "area", *(f"{share}%" for share in SHARES), f"{ENOUGH:.0%} at", "keeps", "finds", "s/question", words=2
    )
    for one in report.sets:
        for row in _rows(one):
            table.add_row(*row)
    console.print(table)
    console.print(
        "area: under the curve of recall of gold sentences against the kept share of characters; 10%, ...: recall at that share; "
        f"{ENOUGH:.0%} at: the smallest share with that recall; keeps, finds: the share of characters that the refiner really keeps, and the recall of that."
    )
    for line in (*(f"{one.name}: {one.left_out}" for one in report.sets if one.failed), *left_out(report)):
        console.print(line)


def _rows(one: RefinementSet) -> Iterator[list[str]]:
    """A row for what the refiner keeps and its ranking, and one for each baseline."""
    own = [short(one.point.kept), short(one.point.recall)] if one.point else ["–", "–"]
    own.append(f"{one.seconds / max(one.questions, 1):.2f}")
    for ranking in dict.fromkeys([REFINER, *one.rankings]):
        found = one.rankings.get(ranking)
        numbers = [found.area, *map(found.at, SHARES), found.enough] if found else [None] * (len(SHARES) + 2)
        first = ranking == REFINER
        yield [
            f"{one.name}, {one.questions}" if first else "",
            TITLES[ranking] if found else "refiner",
            *map(short, numbers),
            *(own if first else []),
        ]
