"""What was found in answers, one row an answer. Rows hold ids and counts, never a question, an answer or a passage."""

from dataclasses import dataclass

from crag_middleware.evals.claims.rows import CheckerRun
from crag_middleware.evals.row_file import Count, Kept, RowFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRow(Kept):
    """What was found in one answer.

    Attributes:
        answerable: Whether the question can be answered.
        refused: Whether the answer refuses.
        statements: How many there are; 0 where there are no passages to cite.
        supported: How many of them what they cite supports.
        citations: How many, those of sources that do not exist among them.
        contributing: How many of them contribute.
    """

    answerable: bool
    refused: bool
    statements: Count = 0
    supported: Count = 0
    citations: Count = 0
    contributing: Count = 0


def _wrong(row: RefusalRow) -> str:
    fits = row.supported <= row.statements and row.contributing <= row.citations and (row.statements or not row.citations)
    return "" if fits else "more is supported or contributes than there is"


REFUSALS = RowFile("crag eval refusal", "rows", CheckerRun, RefusalRow, str, _wrong)
"""The files that hold them; the run is that of the checker of citations."""
