"""`crag explain` and `crag replay`: a saved receipt told to a person, and tried against today's settings."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from crag_middleware.cli.answering import CalibrationFile, EvaluatorChoice, SettingsFile
from crag_middleware.cli.collections import DEFAULT_COLLECTION, DEFAULT_URI, Collection, Database, IsolationName, Token, Uri, existing
from crag_middleware.cli.measuring import BaseUrl, Model
from crag_middleware.cli.shared import AsJson, console, name_own_modules, print_json, read_text
from crag_middleware.errors import ConfigError
from crag_middleware.types import Thresholds

ReceiptFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Receipts as JSON or JSON Lines, or what `crag ask --json` printed; - reads standard input.",
        show_default="standard input",
    ),
]
_STANDARD_INPUT = Path("-")
_NOBODY = "crag-replay"
"""The tenant of texts that the receipt holds itself: no rows are read for it."""


def explain(
    path: ReceiptFile = _STANDARD_INPUT,
    calibration: CalibrationFile = None,
    lower: Annotated[
        float | None, typer.Option(metavar="P", min=0, max=1, help="The lower threshold that was in force.", show_default=False)
    ] = None,
    upper: Annotated[float | None, typer.Option(metavar="P", min=0, max=1, help="The upper threshold.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Tell a saved receipt to a person: what was found and done, and what would have changed the verdict."""
    from crag_middleware.calibration import load_calibration, read_calibrations
    from crag_middleware.replay import because, read_receipts, told

    if (lower is None) != (upper is None) or (lower is not None and upper is not None and lower > upper):
        msg = "--lower and --upper must be given together, and in order"
        raise ConfigError(msg)
    thresholds = Thresholds(lower, upper) if lower is not None and upper is not None else None
    known = [
        *([load_calibration(calibration)] if calibration else []),
        *read_calibrations(files("crag_middleware") / "calibrations").values(),
    ]
    found = [
        (told(saved), because(saved, thresholds=thresholds, calibrations=known))
        for saved in read_receipts(read_text(path), origin=_shown(path))
    ]
    if as_json:
        print_json([{"told": text.splitlines(), **why.to_json()} for text, why in found])
        return
    for number, (text, why) in enumerate(found):
        typer.echo(("\n" if number else "") + "\n".join((text, *why.lines())))


def replay(
    path: ReceiptFile = _STANDARD_INPUT,
    agent_id: Annotated[
        str | None,
        typer.Option(
            "--agent-id",
            "-a",
            metavar="ID",
            help="The tenant: the passages are fetched again as this one.",
            show_default="the texts that a receipt of full detail holds",
        ),
    ] = None,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    evaluator: EvaluatorChoice = None,
    model: Model = None,
    base_url: BaseUrl = None,
    calibration: CalibrationFile = None,
    settings: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Grade a saved receipt's passages again, decide anew, and show the differences. Exit code 1 if a verdict is another one."""
    from crag_middleware.cli.agent import Choices
    from crag_middleware.replay import fetched, own_texts, read_receipts
    from crag_middleware.replay import replay as replayed

    name_own_modules()
    receipts = read_receipts(read_text(path), origin=_shown(path))
    grading = Choices(model=model, base_url=base_url, evaluator=evaluator, calibration=calibration, settings=settings).grading(
        answering=evaluator is None and model is not None
    )
    knowledge = existing(uri, token, database, collection, isolation) if agent_id is not None else None
    found = []
    for saved in receipts:
        texts = own_texts(saved) if knowledge is None or agent_id is None else fetched(saved, knowledge, agent_id=agent_id)
        found.append(replayed(saved, texts, agent_id=agent_id or _NOBODY, collection=collection if knowledge else "", **grading))
    if as_json:
        print_json([one.to_json() for one in found])
    else:
        for one in found:
            _show(one)
    if any(one.differs for one in found):
        raise typer.Exit(1)


def _shown(path: Path) -> str:
    return "standard input" if str(path) == "-" else repr(str(path))


def _show(one: Any) -> None:
    out = console()
    now = one.verdict_now if one.differs else "the same"
    out.print(f"verdict: {one.verdict}, now {now}", soft_wrap=True)
    if one.calibration != one.calibration_now:
        out.print(f"calibration: {one.calibration or 'none'}, now {one.calibration_now or 'none'}", soft_wrap=True)
    out.print(f"thresholds now: {one.thresholds_now[0]:.3f} and {one.thresholds_now[1]:.3f}")
    table = Table("passage", "then", "now", "text", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[0].overflow = "fold"
    for p in one.passages:
        table.add_row(p.named, _grade(p.label, p.probability), _grade(p.label_now, p.probability_now), p.text)
    if one.passages:
        out.print(table)
    for trouble in one.troubles:
        out.print(f"without: {trouble.step} failed: {trouble.reason}", soft_wrap=True)


def _grade(label: str | None, probability: float | None) -> str:
    return "-" if label is None else label if probability is None else f"{label} {probability:.3f}"
