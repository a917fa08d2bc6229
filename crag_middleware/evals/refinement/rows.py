"""What a run of a refiner found out, one row a question. Rows hold ids and counts, never a question or a passage."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from crag_middleware.evals.refinement.curve import STEPS
from crag_middleware.evals.row_file import Count, Kept, RowFile
from crag_middleware.evals.rows import shown
from crag_middleware.types import EvaluatorKey

Curve = tuple[Count, ...]
"""How many gold sentences were found at each share, from 0 to 1; empty if there is no ranking."""


@dataclass(frozen=True, slots=True)
class RefinerRun:
    """Whose run it is.

    Attributes:
        refiner: The refiner's class name.
        model: The model behind it; empty if it has none, or it is unknown.
        prompt: The version of its prompt, or of its features; empty if it has neither.
        baselines: The baselines were measured on the same questions.
    """

    refiner: str
    model: str
    prompt: str
    baselines: bool

    def __str__(self) -> str:
        return f"{shown(EvaluatorKey(self.refiner, self.model, self.prompt))} {'with' if self.baselines else 'without'} baselines"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinementRow(Kept):
    """What a refiner and the baselines found in one question's passages.

    Attributes:
        gold: How many gold sentences there are.
        characters: Of all passages together.
        kept: How many of them the refiner kept.
        found: How many gold sentences stand in what it kept.
        curve: Of its ranking; empty if it has none, or failed.
        baselines: By name, the curve of each; empty without baselines, or if the refiner failed.
    """

    gold: Annotated[int, Field(ge=1)]
    characters: Annotated[int, Field(ge=1)]
    kept: Count = 0
    found: Count = 0
    curve: Curve = ()
    baselines: Mapping[str, Curve] = field(default_factory=dict)


def _wrong(row: RefinementRow) -> str:
    curves = [curve for curve in (row.curve, *row.baselines.values()) if curve]
    if any(len(curve) != STEPS + 1 for curve in curves):
        return f"a curve must have {STEPS + 1} counts"
    if max(row.found, *(max(curve) for curve in curves), 0) > row.gold or row.kept > row.characters:
        return "more was found or kept than there is"
    return ""


REFINEMENTS = RowFile("crag eval refinement", "rows", RefinerRun, RefinementRow, str, _wrong)
"""The files that hold them."""
