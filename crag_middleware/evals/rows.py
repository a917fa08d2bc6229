"""What a run of an evaluator found out, one row a question. Rows hold ids and numbers, never a question or a passage."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from crag_middleware.evals.row_file import Kept, RowFile
from crag_middleware.types import EvaluatorKey, Label

Probability = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Kept):
    """One question's grades as the evaluator gave them, before any calibration.

    Attributes:
        weak: The labels were not given passage by passage by a person.
        answerable: Whether the passages together answer the question; None if unknown.
        labels: For each passage whether it is relevant; None if unknown.
        probabilities: For each passage what the evaluator said; None if it could not say. Empty if it failed.
        stated: For each passage the evaluator's own label. Empty if it failed.
    """

    weak: bool
    answerable: bool | None
    labels: tuple[bool | None, ...]
    probabilities: tuple[Probability | None, ...] = ()
    stated: tuple[Label, ...] = ()


def read(path: Path) -> tuple[EvaluatorKey, Mapping[str, Row]]:
    """Whose grades a file holds, and its rows by question id.

    Raises:
        ConfigError: There is no such file, or it holds something else.
    """
    return GRADES.read(path)


def shown(key: EvaluatorKey) -> str:
    """Whose numbers these are, for people."""
    return " ".join(filter(None, (key.evaluator, repr(key.model) if key.model else "", f"(prompt {key.prompt!r})" if key.prompt else "")))


def _wrong(row: Row) -> str:
    fits = row.error or len(row.labels) == len(row.probabilities) == len(row.stated)
    return "" if fits else "`labels`, `probabilities` and `stated` must be of one length"


GRADES = RowFile("crag eval relevance", "grades", EvaluatorKey, Row, shown, _wrong)
"""The files that hold them."""
