"""What a run of a claim checker found out, one row a claim. Rows hold ids, labels and numbers, never a claim or what it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.evals.claims.items import Label
from crag_middleware.evals.row_file import Kept, RowFile
from crag_middleware.evals.rows import Probability, shown
from crag_middleware.types import ClaimLabel, EvaluatorKey


@dataclass(frozen=True, slots=True)
class CheckerRun:
    """Whose run it is.

    Attributes:
        checker: The claim checker's class name.
        model: The model behind it; empty if it has none, or it is unknown.
        prompt: The version of its prompt; empty if it has none.
        threshold: Claims with a probability below it count as unsupported.
    """

    checker: str
    model: str
    prompt: str
    threshold: Probability

    def __str__(self) -> str:
        return f"{shown(EvaluatorKey(self.checker, self.model, self.prompt))} with the threshold {self.threshold:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow(Kept):
    """What a checker and the baselines said of one claim.

    Attributes:
        evidence: A digest that claims on the same evidence have in common.
        label: What people said.
        said: What the checker said; None if it failed.
        probability: Its P(supported); None if it could not say, or failed.
        baselines: By name, the score of each.
    """

    evidence: str
    label: Label
    said: ClaimLabel | None = None
    probability: Probability | None = None
    baselines: Mapping[str, Probability] = field(default_factory=dict)

    @property
    def is_supported(self) -> bool:
        """Whether people called it supported, in full."""
        return self.label == "supported"


def _wrong(row: ClaimRow) -> str:
    if not row.error and row.said is None:
        return "`said` is missing"
    return "" if row.baselines.keys() == {baseline.name for baseline in BASELINES} else "`baselines` must have a score of each"


CLAIMS = RowFile("crag eval claims", "rows", CheckerRun, ClaimRow, str, _wrong)
"""The files that hold them."""
