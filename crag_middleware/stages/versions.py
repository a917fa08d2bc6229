"""Which of two passages is of a later version of the same document."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from crag_middleware.stages.sameness import Looks
from crag_middleware.types import Passage

T = TypeVar("T")
ALIKE = 0.5
"""The share of trigrams that an edited page has in common with the old one, and another chunk of the document has not."""

_NUMBER = re.compile(r"\d{1,18}")  # int() refuses thousands of digits


def newest_first(items: Sequence[T], passages: Sequence[Passage], looks: Looks) -> tuple[T, ...]:
    """The items, where each one that is superseded by a later one changes places with it.

    Two passages are versions of one page if they name the same document (`doc_id`, else address or source, and title) and differ in `version`, or
    lack versions, say nearly the same and differ in `created_at`.

    Args:
        items: Best first.
        passages: The passage of each item.
        looks: Where texts are compared.
    """
    places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, passage in enumerate(passages):
        places[document(passage)].append(i)
    places.pop((), None)
    order, versions = list(range(len(items))), [version(passage) for passage in passages]

    def supersedes(new: int, old: int) -> bool:
        if versions[new] and versions[old]:
            return versions[new] > versions[old]
        created, before = passages[new].created_at, passages[old].created_at
        if created is None or before is None or created <= before:
            return False
        return looks[passages[new].text].share(looks[passages[old].text]) >= ALIKE

    for same in places.values():
        if len({(versions[i], passages[i].created_at) for i in same}) > 1:
            for a, i in enumerate(same):
                for j in same[a + 1 :]:
                    if supersedes(order[j], order[i]):
                        order[i], order[j] = order[j], order[i]
    return tuple(items[i] for i in order)


def document(passage: Passage) -> tuple[str, ...]:
    """What names the document; empty if nothing does."""
    name = str(passage.metadata.get("doc_id") or "")
    if name:
        return ("doc", name)
    names = (passage.url or passage.source, passage.title)
    return ("page", *names) if any(names) else ()


def version(passage: Passage) -> tuple[int, ...]:
    """The numbers of the version, so that 2.10 is later than 2.9; empty without a version."""
    return tuple(int(n) for n in _NUMBER.findall(str(passage.metadata.get("version") or "")))
