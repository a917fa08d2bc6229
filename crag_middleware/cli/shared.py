"""What every group of commands needs: how it prints, how it ends, and lists of words."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

WIDTH = 140
"""Columns where standard output is no terminal."""


def console(*, stderr: bool = False) -> Console:
    """Texts are printed as they are: no markup, no colours by guess."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = WIDTH
    return made


@contextmanager
def stoppable(advice: str) -> Iterator[None]:
    """A stopped run ends in one line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        console(stderr=True).print(f"crag: stopped; {advice}")
        raise typer.Exit(1) from None


def name_own_modules() -> None:
    """Lets modules of the current directory be named, as `python -m` does."""
    sys.path.insert(0, "")


def names(listed: str) -> list[str]:
    """The names of a list with commas."""
    return [name.strip() for name in listed.split(",") if name.strip()]
