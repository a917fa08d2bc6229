"""What came of an attack."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["held", "leaked", "could_not_run"]
"""The boundary held; something of another tenant came through; or nothing can be said, which is no pass."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of the audit's table; it holds no text, question or tenant id of anybody.

    Attributes:
        attack: Its name.
        tried: What was tried, in a sentence.
        outcome: What came of it.
        detail: What leaked, or why it could not run; empty if it held.
    """

    attack: str
    tried: str
    outcome: Verdict
    detail: str = ""


class Leak(Exception):
    """Something of another tenant came through; the text says where, and never quotes it."""


class Blind(Exception):
    """An attack would see no leak if there was one; the text says why."""


@contextmanager
def must_refuse(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Passes if one of these errors is raised within.

    Raises:
        Leak: None is: `what` was served.
    """
    try:
        yield
    except errors:
        return
    msg = f"{what} was served"
    raise Leak(msg)
