"""A bar on standard error while something long runs; nothing where that is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from crag_middleware.cli.shared import console


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A function to be told how many are done, of how many, and what goes on.

    Args:
        what: Is counted, such as `files`.
    """
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}", markup=False))
    shown = console(stderr=True)
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
        task = progress.add_task("", total=None, note="")

        def tell(done: int, total: int, note: str) -> None:
            progress.update(task, completed=done, total=total, note=note)

        yield tell
