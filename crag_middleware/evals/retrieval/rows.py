"""What a run of retrieval found out, one row a question. Rows hold ids and numbers, never a question or a document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from crag_middleware.evals.retrieval.ways import TITLES
from crag_middleware.evals.row_file import Kept, RowFile

Cosine = Annotated[float, Field(ge=-1.000001, le=1.000001)]


@dataclass(frozen=True, slots=True)
class RetrievalRun:
    """Whose run it is.

    Attributes:
        embeddings: The name of the embeddings' model.
        reranker: The reranker with its model; empty without one.
        candidates: What each leg brought into the fusion.
        rrf_k: The constant of the fusion.
        near_duplicate: From which cosine on passages were merged before reranking and MMR; None if by text only.
    """

    embeddings: str
    reranker: str
    candidates: int
    rrf_k: int
    near_duplicate: float | None

    def __str__(self) -> str:
        reranker = f"reranker {self.reranker}" if self.reranker else "no reranker"
        merged = "by text" if self.near_duplicate is None else f"from {self.near_duplicate:g} on"
        return f"embeddings {self.embeddings!r}, {reranker}, {self.candidates} candidates a leg, rrf_k {self.rrf_k}, copies merged {merged}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalRow(Kept):
    """What each way found for one question.

    Attributes:
        grades: How relevant a document is, by id, as people judged.
        ranked: By way, the ids of what it found, best first; empty if a search failed.
        redundancy: By way, how alike the first five are; a way that found fewer than two is missing.
    """

    grades: Mapping[str, int]
    ranked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    redundancy: Mapping[str, Cosine] = field(default_factory=dict)


def _wrong(row: RetrievalRow) -> str:
    if not any(grade > 0 for grade in row.grades.values()):
        return "`grades` must have one above 0"
    if unknown := sorted({*row.ranked, *row.redundancy} - TITLES.keys()):
        return f"there is no way to retrieve {unknown[0]!r}"
    return ""


RETRIEVALS = RowFile("crag eval retrieval", "rows", RetrievalRun, RetrievalRow, str, _wrong)
"""The files that hold them."""
