"""`crag shadow`: what receipts of shadow mode say together."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from crag_middleware.cli.shared import AsJson, console, print_json
from crag_middleware.errors import ConfigError
from crag_middleware.shadow_report import read_receipts, shadow_report

shadow = typer.Typer(name="shadow", help="Look at what shadow mode found out.", no_args_is_help=True)


@shadow.callback()
def _group() -> None:
    """Nothing of its own: the commands are below it."""


@shadow.command()
def report(
    files: Annotated[list[Path], typer.Argument(help="Saved receipts, one as JSON in each line; - for standard input.")],
    as_json: AsJson = False,
) -> None:
    """Verdicts, tokens, latency and answers that would have been flagged, of all tenants and of each."""
    found = shadow_report(receipt for file in files for receipt in _receipts(file))
    if not found.all.turns:
        msg = f"there is no receipt of shadow mode in these files, and {found.live} of turns that were live; they come from CRAGMiddleware(mode='shadow')"
        raise ConfigError(msg)
    if as_json:
        print_json(found.told())
        return
    parts = [f"all tenants\n{found.all}"]
    parts += [f"tenant {tenant[:12] or 'unknown'}\n{summary}" for tenant, summary in found.tenants.items() if len(found.tenants) > 1]
    parts += [f"left out: {found.live} receipts of live turns"] if found.live else []
    console().print("\n\n".join(parts), soft_wrap=True)


def _receipts(file: Path) -> Iterator[dict[str, Any]]:
    if str(file) == "-":
        yield from read_receipts(sys.stdin, where="standard input")
        return
    try:
        with file.open(encoding="utf-8") as lines:
            yield from read_receipts(lines, where=str(file))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file} can't be read: {error.strerror if isinstance(error, OSError) else 'it is not UTF-8'}"
        raise ConfigError(msg) from None
