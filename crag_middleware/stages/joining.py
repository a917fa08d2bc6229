"""Chunks of one document made one passage again, by where they lie in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crag_middleware.stages.vectors import mean
from crag_middleware.stages.versions import document
from crag_middleware.types import Hit, Passage

MAX_CHARS = 2_000
"""No passage that `join` makes is longer, unless one of its chunks is."""

MAX_GAP = 4
"""So many characters between two chunks are taken for white space that was lost when the document was split."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a document: where it begins, and what stands there."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.text)

    @classmethod
    def of(cls, passage: Passage) -> "Stretch | None":
        """Where a passage lies by its `start` and `end`; None if it does not say, or they do not fit its text."""
        start, end = (_whole(passage.metadata.get(name)) for name in ("start", "end"))
        return cls(start, passage.text) if passage.text and start is not None and end == start + len(passage.text) else None

    def with_(self, other: "Stretch", *, gap: int = 0) -> "Stretch | None":
        """Both as one; None if there are more than `gap` characters between them, or they differ where they overlap."""
        first, second = sorted((self, other), key=lambda s: s.start)
        between = second.start - first.end
        if between > 0:
            space = " " if between == 1 else "\n" * between
            return Stretch(first.start, first.text + space + second.text) if between <= gap else None
        shared = min(-between, len(second.text))
        at = second.start - first.start
        return Stretch(first.start, first.text + second.text[shared:]) if first.text[at : at + shared] == second.text[:shared] else None


def join(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """The passages, where chunks of one document that overlap or touch are one.

    They are chunks of one document if they have the same origin, name the same document (`doc_id`, else address or source, and title) and version, and the same
    page if both say one. `start` and `end` tell where they lie; where they do not fit the text they count for nothing, and what overlaps must be the very same
    text. Chunks that only touch must name their document by more than a source, and be of the same `created_at` if both say one. A passage grows from the
    best chunk outwards, to `MAX_CHARS` at most.

    Args:
        passages: Best first.

    Returns:
        Each passage in the place of its best chunk, with that one's id and data but for: `start` and `end` in the metadata, and `joined`, the ids of the chunks
        in the document's order; the hits of all; the least trust and the most suspicion of any; the vector that lies between theirs.
    """
    left = [(passage, Stretch.of(passage)) for passage in passages]
    result = []
    while left:
        best, span = left.pop(0)
        chunks = [best]
        while span and (found := _adjoining(chunks, span, left)):
            place, span = found
            chunks.append(left.pop(place)[0])
        result.append(_joined(best, chunks, span) if span and len(chunks) > 1 else best)
    return tuple(result)


def widened(passage: Passage, neighbours: Sequence[Passage], *, limit_chars: int) -> Passage:
    """The passage with the chunks that stand around it in its document.

    The nearest come first, the following before the preceding; one that does not fit, or has nothing beside it to stand next to, is left out, and so is one of
    another document or version. `start` and `end` tell where they lie: what overlaps stands there once, and must be the same text; up to `MAX_GAP` lost
    characters become white space. Where the passage or all of them lack these, `chunk_index` does, and an empty line stands between two chunks.

    Args:
        passage: Its own text is always in the result, however long.
        neighbours: Chunks of its document, in any order.
        limit_chars: Longest text of the result, in characters.

    Returns:
        The passage itself if nothing was added, else with the data that `join` says; without `start` and `end` if they are not known.
    """
    kin = [n for n in neighbours if _kin(passage, n)]
    own, placed = Stretch.of(passage), [(n, its) for n in kin if (its := Stretch.of(n))]
    if own and placed:
        return _by_offsets(passage, own, placed, limit_chars)
    return _by_index(passage, kin, limit_chars)


def _by_offsets(passage: Passage, own: Stretch, placed: Sequence[tuple[Passage, Stretch]], limit_chars: int) -> Passage:
    span, chunks = own, [passage]
    for neighbour, its in sorted(placed, key=lambda p: (max(p[1].start - own.end, own.start - p[1].end), p[1].start < own.start, p[0].id)):
        if span.start <= its.start and its.end <= span.end:
            continue
        both = span.with_(its, gap=MAX_GAP)
        if both and len(both.text) <= limit_chars:
            span = both
            chunks.append(neighbour)
    return _joined(passage, chunks, span) if len(chunks) > 1 else passage


def _by_index(passage: Passage, kin: Sequence[Passage], limit_chars: int) -> Passage:
    own = _index(passage)
    if own is None:
        return passage
    first = last = own
    text, chunks = passage.text, [passage]
    indexed = [(i, n) for n in kin if (i := _index(n)) is not None]
    for i, neighbour in sorted(indexed, key=lambda n: (abs(n[0] - own), n[0] < own, n[1].id)):
        both = f"{text}\n\n{neighbour.text}" if i == last + 1 else f"{neighbour.text}\n\n{text}" if i == first - 1 else ""
        if neighbour.text and both and len(both) <= limit_chars:
            text, first, last = both, min(first, i), max(last, i)
            chunks.append(neighbour)
    return _joined(passage, chunks, text) if len(chunks) > 1 else passage


def _adjoining(chunks: Sequence[Passage], span: Stretch, left: Sequence[tuple[Passage, Stretch | None]]) -> tuple[int, Stretch] | None:
    """The best chunk that goes on where the span begins or ends: its place, and the two as one."""
    best = chunks[0]
    for place, (other, its) in enumerate(left):
        if its is None or its.end < span.start or span.end < its.start:
            continue
        if not document(best) or not _kin(best, other) or not _on_one_page((*chunks, other)):
            continue
        if (its.end == span.start or span.end == its.start) and not _surely_kin(best, other):
            continue
        both = span.with_(its)
        if both and len(both.text) <= max(MAX_CHARS, len(span.text), len(its.text)):
            return place, both
    return None


def _kin(one: Passage, other: Passage) -> bool:
    """Whether both are of the same document and version, as far as they say."""
    return (
        one.origin == other.origin
        and document(one) == document(other)
        and (one.metadata.get("version") or "") == (other.metadata.get("version") or "")
    )


def _on_one_page(chunks: Sequence[Passage]) -> bool:
    """Whether no two say different pages."""
    pages = [page for chunk in chunks if (page := chunk.metadata.get("page")) is not None]
    return all(page == pages[0] for page in pages)


def _surely_kin(one: Passage, other: Passage) -> bool:
    """Whether nothing but the names of their document need vouch for it."""
    named = bool(one.metadata.get("doc_id") or (one.title and document(one)[1]))
    return named and (one.created_at is None or other.created_at is None or one.created_at == other.created_at)


def _joined(best: Passage, chunks: Sequence[Passage], made: Stretch | str) -> Passage:
    """One passage of several, with the best one's data."""
    metadata = {name: value for name, value in best.metadata.items() if name not in ("start", "end")}
    if isinstance(made, Stretch):
        metadata |= {"start": made.start, "end": made.end}
    metadata["joined"] = [id_ for chunk in sorted(chunks, key=_place) for id_ in parts(chunk)]
    return replace(
        best,
        text=made.text if isinstance(made, Stretch) else made,
        hits=all_hits(chunks),
        confidence=_least(chunk.confidence for chunk in chunks),
        evidence_score=_least(chunk.evidence_score for chunk in chunks),
        injection_score=max(chunk.injection_score for chunk in chunks),
        vector=mean(chunk.vector for chunk in chunks),
        metadata=metadata,
    )


def all_hits(passages: Iterable[Passage]) -> tuple[Hit, ...]:
    """The hits of all, each once, by query, route and rank."""
    return tuple(
        sorted({h for p in passages for h in p.hits}, key=lambda h: (h.query, h.route, h.rank, h.id, h.score is not None, h.score or 0.0))
    )


def parts(passage: Passage) -> tuple[str, ...]:
    """The ids of the chunks that a passage was joined of, in the document's order; its own if it was not."""
    joined = passage.metadata.get("joined")
    return tuple(map(str, joined)) if isinstance(joined, list | tuple) and joined else (passage.id,)


def _least(numbers: Iterable[float | None]) -> float | None:
    return min((n for n in numbers if n is not None), default=None)


def _place(chunk: Passage) -> tuple[int, int, str]:
    span = Stretch.of(chunk)
    return (span.start if span else -1, _index(chunk) or 0, chunk.id)


def _index(chunk: Passage) -> int | None:
    return _whole(chunk.metadata.get("chunk_index"))


def _whole(value: Any) -> int | None:
    """A place counted from 0; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
