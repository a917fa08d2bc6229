"""`crag ask` and `crag chat`: an agent over one tenant's knowledge, with its receipt."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crag_middleware.cli.collections import (
    DEFAULT_COLLECTION,
    DEFAULT_URI,
    AgentId,
    Collection,
    Database,
    EmbeddingsName,
    IsolationName,
    Token,
    Uri,
    searchable,
)
from crag_middleware.cli.measuring import BaseUrl
from crag_middleware.cli.shared import AsJson, complain, name_own_modules, print_json, stoppable
from crag_middleware.cli.web import Providers
from crag_middleware.errors import ConfigError, CRAGError, TenantError
from crag_middleware.receipt import explain

if TYPE_CHECKING:  # at run time agents are imported by the commands that need them: they take a second to load
    from crag_middleware.cli.agent import Asking, Turn

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PROVIDER:NAME",
        help="The chat model that answers and, for evaluators that ask one, grades; quoting to answer with quotations, offline.",
        show_default="as CRAG_MODEL says; quoting without its key",
    ),
]
EvaluatorChoice = Annotated[
    str | None,
    typer.Option(
        "--evaluator",
        metavar="NAME",
        help="embedding, e5, chat, token, cascade, or one's own as package.module:attribute.",
        show_default="chat with a chat model, else embedding",
    ),
]
CheckerChoice = Annotated[
    str | None,
    typer.Option(
        "--checker", "-c", metavar="NAME", help="Checks the answer's claims: words, chat, token, or one's own.", show_default="none"
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="What the grades go through.", show_default="the evaluator's own, if any"),
]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", metavar="FILE", help="Settings by name, as a JSON object.", show_default="the defaults")
]
ReceiptsFile = Annotated[
    Path | None,
    typer.Option("--receipts", metavar="FILE", help="Add each receipt to this file, one a line.", show_default=False),
]

QUIT = ("/quit", "/exit")
RECEIPT = "/receipt"


def ask(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="As a user would ask it; - reads it from standard input.", show_default=False)
    ],
    agent_id: AgentId,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    embeddings: EmbeddingsName = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    evaluator: EvaluatorChoice = None,
    calibration: CalibrationFile = None,
    checker: CheckerChoice = None,
    provider: Providers = None,
    settings: SettingsFile = None,
    receipts: ReceiptsFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask a tenant's knowledge: the answer as it is written, then the receipt. Exit code 1 if nothing was found that answers."""
    from crag_middleware.cli.agent import Asking, Choices, keep_receipt

    name_own_modules()
    chosen = Choices(
        model=model,
        base_url=base_url,
        evaluator=evaluator,
        checker=checker,
        providers=provider or (),
        calibration=calibration,
        settings=settings,
    )
    text = sys.stdin.read() if question == "-" else question
    if not text.strip():
        msg = "the question must not be blank"
        raise ConfigError(msg)
    with stoppable("the answer is not whole"):
        knowledge = searchable(uri, token, database, collection, embeddings, isolation)
        with Asking(knowledge, agent_id, chosen) as asking:
            turn = _asked(asking, text, quiet=as_json)
    keep_receipt(receipts, turn.receipt)
    if as_json:
        print_json({"question": text, "answer": turn.answer, "receipt": turn.receipt})
    elif turn.receipt:
        typer.echo("\n" + explain(turn.receipt))
    if turn.receipt.get("status") not in ("grounded", "skipped"):
        raise typer.Exit(1)


def chat(
    agent_id: AgentId,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    embeddings: EmbeddingsName = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    evaluator: EvaluatorChoice = None,
    calibration: CalibrationFile = None,
    checker: CheckerChoice = None,
    provider: Providers = None,
    settings: SettingsFile = None,
    receipts: ReceiptsFile = None,
    as_json: AsJson = False,
) -> None:
    """Talk with a tenant's knowledge over several turns, which are forgotten at the end. /receipt shows the last receipt, /quit or Ctrl-D ends it.

    Each line of standard input is a turn. With --json each turn is a line of JSON. Exit code 1 if a turn failed.
    """
    from crag_middleware.cli.agent import Asking, Choices, keep_receipt

    name_own_modules()
    chosen = Choices(
        model=model,
        base_url=base_url,
        evaluator=evaluator,
        checker=checker,
        providers=provider or (),
        calibration=calibration,
        settings=settings,
    )
    knowledge, last, failed = searchable(uri, token, database, collection, embeddings, isolation), None, False
    with Asking(knowledge, agent_id, chosen) as asking:
        while (line := _line()) is not None and line not in QUIT:
            if line == RECEIPT:
                typer.echo(explain(last.receipt) if last else "there is no receipt yet")
            elif line:
                try:
                    turn = _turn(asking, line, quiet=as_json)
                except TenantError:
                    raise
                except CRAGError as error:
                    complain(str(error))
                    failed, turn = True, None
                if turn:
                    last = turn
                    keep_receipt(receipts, turn.receipt)
                    _shown(turn, line, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def _line() -> str | None:
    """The next line that is typed, stripped; None at the end, and at Ctrl-C."""
    is_typed = sys.stdin.isatty()
    if is_typed:
        with suppress(ImportError):
            import readline  # noqa: F401  # lets lines be edited, where there is such a module
    try:
        return input("> " if is_typed else "").strip()
    except (EOFError, KeyboardInterrupt):
        if is_typed:
            typer.echo()
        return None


def _turn(asking: "Asking", line: str, *, quiet: bool) -> "Turn | None":
    """A turn of the chat; None if it was stopped, which is told."""
    try:
        return _asked(asking, line, quiet=quiet)
    except KeyboardInterrupt:
        typer.echo()
        complain("this answer was stopped; Ctrl-C again, or /quit, ends the chat")
        return None


def _shown(turn: "Turn", line: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"question": line, "answer": turn.answer, "receipt": turn.receipt}, ensure_ascii=False))
    elif turn.receipt:
        sources = len(turn.receipt["sources"])
        typer.echo(f"({turn.receipt['verdict'] or turn.receipt['status']}, {sources} source{'' if sources == 1 else 's'})\n")


def _asked(asking: "Asking", question: str, *, quiet: bool) -> "Turn":
    """A turn, whose answer is written to standard output as it comes unless `quiet`."""
    from crag_middleware.cli.agent import told_stages

    with told_stages() as (stage, done):

        def show(piece: str) -> None:
            done()
            if not quiet:
                typer.echo(piece, nl=False)
                sys.stdout.flush()

        turn = asking.ask(question, show=show, stage=stage)
    if not quiet:
        typer.echo()
    return turn
