"""What every group of commands needs: how it prints, how it ends, and lists of words."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crag_middleware.errors import ConfigError

WIDTH = 140
"""Columns where standard output is no terminal."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def console(*, stderr: bool = False) -> Console:
    """Texts are printed as they are: no markup, no colours by guess."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDTH
    return made


def print_json(value: Any) -> None:
    """A value on standard output, as JSON for programs: not escaped, not coloured, not wrapped."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def complain(message: str) -> None:
    """One line on standard error."""
    console(stderr=True).print(f"crag: {' '.join(message.split())}", soft_wrap=True)


@contextmanager
def stoppable(advice: str) -> Iterator[None]:
    """A stopped run ends in one line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        complain(f"stopped; {advice}")
        raise typer.Exit(1) from None


def name_own_modules() -> None:
    """Lets modules of the current directory be named, as `python -m` does."""
    sys.path.insert(0, "")


def names(listed: str) -> list[str]:
    """The names of a list with commas."""
    return [name.strip() for name in listed.split(",") if name.strip()]


def read_text(path: Path) -> str:
    """A file's text, or that of standard input for `-`.

    Raises:
        ConfigError: It can't be read.
    """
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        msg = f"{str(path)!r} can't be read: {why}"
        raise ConfigError(msg) from None
