"""The chunks that stand beside a passage in its document: which rows to ask for, and which of them belong to whom."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crag_middleware.errors import ConfigError
from crag_middleware.tenancy import Fields, row_expression
from crag_middleware.types import Passage

MAX_ROWS = 16_384
"""The most rows that a Milvus server returns to one query."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in one version of a document.

    Attributes:
        field: What names the document: `doc_id`, else `source`.
        document: Its name there.
        version: Its version; None for a document without one.
        index: The chunk's place in it, from 0.
    """

    field: str
    document: str | int
    version: str | int | float | None
    index: int

    @property
    def page(self) -> tuple[object, ...]:
        """The version of the document."""
        return self.field, self.document, self.version


def spot(passage: Passage) -> Spot | None:
    """Where the passage stands; None if it does not say."""
    index, named, version = (passage.metadata.get(name) for name in ("chunk_index", "doc_id", "version"))
    if isinstance(index, float) and index.is_integer():  # a JSON number
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        return None
    if named not in (None, ""):
        field, document = "doc_id", named
    else:
        field, document = "source", passage.source
    if not isinstance(document, str | int) or document == "" or not isinstance(version, str | int | float | None):
        return None
    return Spot(field, document, version, index)


def rows_beside(passages: Iterable[Passage], reach: int, fields: Fields) -> str | None:
    """The condition for all rows that stand at most `reach` places before or after one of the passages; None if there can be none."""
    wanted: dict[tuple[str, str | int], set[int]] = {}
    for passage in passages:
        if at := spot(passage):
            beside = range(max(0, at.index - reach), at.index + reach + 1)
            wanted.setdefault((at.field, at.document), set()).update(set(beside) - {at.index})
    terms = []
    for (field, document), indexes in wanted.items():
        try:
            term = row_expression({field: document, "chunk_index": {"in": sorted(indexes)}}, None, fields)
        except ConfigError:  # a collection without these fields, or a value that none of its rows can have
            continue
        terms.append(f"({term})")
    return " or ".join(terms) or None


def beside(passages: Sequence[Passage], rows: Sequence[Passage], reach: int) -> list[list[Passage]]:
    """For each passage, the rows of its document and version at most `reach` places before or after it, in the document's order.

    Of several rows at one place, as copies have them, the newest stays.
    """
    chunks: dict[tuple[object, ...], dict[int, Passage]] = {}
    for row in sorted(rows, key=lambda row: (row.created_at or 0, row.id)):
        if at := spot(row):
            chunks.setdefault(at.page, {})[at.index] = row
    found = []
    for passage in passages:
        at = spot(passage)
        near = chunks.get(at.page, {}) if at else {}
        found.append([near[index] for index in sorted(near) if at and 0 < abs(index - at.index) <= reach])
    return found
