"""From rows and documents to passages."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from langchain_core.documents import Document

from crag_middleware.adapters.milvus_copies import SAME_TEXT
from crag_middleware.adapters.milvus_schema import Layout
from crag_middleware.types import Passage

NAMED = ("source", "title", "url", "confidence", "created_at")
"""Fields that a passage has a place for; all others go into its metadata."""


def from_hit(hit: Mapping[str, Any], layout: Layout, *, rank: int, score: float | None) -> Passage:
    """A search hit as a passage.

    A field is taken from its column, else from the JSON column or the dynamic fields. Null fields, vectors and the tenant are left out.
    """
    entity = hit["entity"]
    keys = entity.get(layout.json_field) if layout.json_field else None
    fields = dict(keys) if isinstance(keys, Mapping) else {}
    fields |= {name: value for name, value in entity.items() if name != layout.json_field and value is not None}
    hidden = (layout.primary, layout.text, layout.tenant.key or layout.tenant.column)
    return _passage(str(hit[layout.primary]), str(entity.get(layout.text) or ""), fields, hidden, rank, score)


def from_document(document: Document, *, rank: int, tenant_field: str | None) -> Passage:
    """A LangChain document as a passage; without an id of its own it gets the text's SHA-256."""
    fields = document.metadata
    known = (document.id, fields.get("id"), fields.get("pk"))
    key = next((str(value) for value in known if value is not None), sha256(document.page_content.encode()).hexdigest())
    return _passage(key, document.page_content, fields, ("id", "pk", tenant_field), rank, None)


LEGS = "legs"
"""What `explain` adds to a passage's metadata; a row's own key of that name would pass for it and is left out."""


OWNER = "agent_id"
"""Says whose a row is and is no fact about it; a passage that still has it is checked against the turn's tenant."""


def _passage(key: str, text: str, fields: Mapping[str, Any], hidden: Iterable[str | None], rank: int, score: float | None) -> Passage:
    created_at = _number(fields.get("created_at"))
    return Passage(
        id=key,
        text=text,
        source=_text(fields.get("source")),
        title=_text(fields.get("title")),
        url=_text(fields.get("url")),
        score=score,
        rank=rank,
        confidence=_number(fields.get("confidence")),
        created_at=None if created_at is None else int(created_at),
        metadata={
            name: _plain(value)
            for name, value in fields.items()
            if name not in (*NAMED, LEGS, SAME_TEXT, OWNER, *hidden) and value is not None
        },
    )


def similarity(distance: float, metric: str) -> float:
    """A distance of the metric as a score: higher is better. BM25 is negative in Milvus Lite and positive on a server."""
    match metric:
        case "L2" | "HAMMING" | "JACCARD":
            return -distance
        case "BM25":
            return abs(distance)
        case _:
            return distance


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _plain(value: Any) -> Any:
    """Array fields as lists."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else value
