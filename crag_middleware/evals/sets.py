"""What is told of every data set, whatever was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from crag_middleware.evals.row_file import Kept
from crag_middleware.evals.runner import failures


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSet:
    """One data set in one language, and what it took to measure it.

    Attributes:
        source: The data set.
        lang: The language.
        questions: All of them.
        failed: Those that failed, by reason; no number that was measured knows of them, except the cost.
        calls: Model calls, as far as LangChain sees them.
        input_tokens: Tokens that models read, where they tell.
        output_tokens: Tokens that models wrote, where they tell.
        seconds: Spent in the calls that were measured.
    """

    unit: ClassVar[str] = "question"
    """What `questions` are, for people."""

    source: str
    lang: str
    questions: int
    failed: Mapping[str, int]
    calls: int
    input_tokens: int
    output_tokens: int
    seconds: float

    @property
    def name(self) -> str:
        """The data set with its language, for people."""
        return f"{self.source} ({self.lang})"

    @property
    def left_out(self) -> str:
        """How many questions failed, with which reasons, for people; empty if none."""
        reasons = ", ".join(f"{n} with {reason}" for reason, n in self.failed.items())
        return f"{sum(self.failed.values())} {self.unit}s failed and are left out: {reasons}." if reasons else ""

    @property
    def cost(self) -> str:
        """Time, model calls and tokens, of all and by question, for people."""
        each = max(self.questions, 1)
        return (
            f"Cost: {self.seconds:.1f} s ({self.seconds / each:.2f} s a {self.unit}), {self.calls} model calls ({self.calls / each:.1f} a {self.unit}), "
            f"{self.input_tokens} tokens read, {self.output_tokens} written."
        )


def totals(rows: Sequence[Kept]) -> dict[str, Any]:
    """The fields of a `MeasuredSet`, from its rows; there is at least one."""
    return {
        "source": rows[0].source,
        "lang": rows[0].lang,
        "questions": len(rows),
        "failed": dict(failures(rows).most_common()),
        "calls": sum(row.calls for row in rows),
        "input_tokens": sum(row.input_tokens for row in rows),
        "output_tokens": sum(row.output_tokens for row in rows),
        "seconds": round(sum(row.seconds for row in rows), 4),
    }
