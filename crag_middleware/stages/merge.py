"""One list of passages out of several: no text twice, the newest version of a page first."""

import re
from collections.abc import Sequence
from itertools import groupby

from crag_middleware.types import Graded, Label, Passage

_ORDER: dict[Label, int] = {"relevant": 0, "ambiguous": 1, "ungraded": 2, "incorrect": 3}
_NUMBER = re.compile(r"\d{1,18}")  # int() refuses thousands of digits


def fold(text: str) -> str:
    """The text as it is compared for sameness: case and white space do not count."""
    return " ".join(text.casefold().split())


def unseen(passages: Sequence[Passage], seen: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages whose id and text are neither in `seen` nor earlier in the list, in order."""
    ids = {p.id for p in seen}
    texts = {fold(p.text) for p in seen}
    fresh = []
    for passage in passages:
        text = fold(passage.text)
        if passage.id in ids or text in texts:
            continue
        ids.add(passage.id)
        texts.add(text)
        fresh.append(passage)
    return tuple(fresh)


def arrange(graded: Sequence[Graded]) -> tuple[Graded, ...]:
    """Best first: by label, then in the given order; versions of one page swap places so that the newest leads.

    Neighbours with the same label and probability are a tie, which the evidence score breaks.

    Two passages are versions of one page if they name the same document (`doc_id`, else source and title) and differ in `version`,
    or lack versions, say nearly the same and differ in `created_at`.
    """
    ordered: list[Graded] = []
    for _, tied in groupby(sorted(graded, key=lambda g: _ORDER[g.grade.label]), key=lambda g: (g.grade.label, g.grade.probability)):
        ordered += sorted(tied, key=lambda g: -(g.passage.evidence_score or 0.0))
    for label in _ORDER:
        places = [i for i, g in enumerate(ordered) if g.grade.label == label]
        for place, item in zip(places, _newest_first([ordered[i] for i in places]), strict=True):
            ordered[place] = item
    return tuple(ordered)


def _newest_first(items: list[Graded]) -> list[Graded]:
    """The items, where each one that is superseded by a later one changes places with it."""
    result = list(items)
    for i in range(len(result)):
        for j in range(i + 1, len(result)):
            if _supersedes(result[j].passage, result[i].passage):
                result[i], result[j] = result[j], result[i]
    return result


def _supersedes(new: Passage, old: Passage) -> bool:
    """Whether `new` is a later version of the page that `old` is from."""
    page = _page(new)
    if not page or page != _page(old):
        return False
    versions = _version(new), _version(old)
    if all(versions):
        return versions[0] > versions[1]
    if new.created_at is None or old.created_at is None:
        return False
    return new.created_at > old.created_at and _alike(new.text, old.text)


def _page(passage: Passage) -> tuple[str, ...]:
    """What names the document; empty if nothing does."""
    document = str(passage.metadata.get("doc_id") or "")
    if document:
        return ("doc", document)
    names = (passage.url or passage.source, passage.title)
    return ("page", *names) if any(names) else ()


def _version(passage: Passage) -> tuple[int, ...]:
    """The numbers of the version, so that 2.10 is later than 2.9; empty without a version."""
    return tuple(int(n) for n in _NUMBER.findall(str(passage.metadata.get("version") or "")))


def _alike(one: str, other: str, *, share: float = 0.5) -> bool:
    """Whether two texts have at least this share of their character trigrams in common (Jaccard): an edited page has, another chunk has not."""
    a, b = (_trigrams(fold(text)) for text in (one, other))
    return len(a & b) >= share * len(a | b)


def _trigrams(text: str) -> frozenset[str]:
    return frozenset(text[i : i + 3] for i in range(max(1, len(text) - 2)))
