"""Rows with the same text, as they come of documents stored more than once: each text gets one place in a list, as if it were stored once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from crag_middleware.stages.sameness import Looks
from crag_middleware.stages.versions import newest_first
from crag_middleware.types import Passage

MAX_DEPTH = 1000
"""Rows that a leg is asked for at most to see past copies, unless it has more candidates anyway."""

SAME_TEXT = "same_text"
"""The metadata key for the ids of the other rows with a passage's text."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands in one leg.

    Attributes:
        rank: Among the leg's texts, counted from 1.
        score: Of the row that it stands at.
    """

    rank: int
    score: float | None


def most_copies(passages: Sequence[Passage], looks: Looks) -> int:
    """In how many rows the most repeated text was found; 1 without any passage."""
    return max(Counter(looks.same(p.text) for p in passages).values(), default=1)


def depth(candidates: int, copies: int) -> int:
    """How many rows a leg is asked for, so that it brings about as many texts as candidates.

    Twice as many as the copies seen would fill: those that are set differently may stand far below.
    """
    return candidates if copies == 1 else max(candidates, min(MAX_DEPTH, 2 * candidates * copies))


def ordered(passages: Sequence[Passage], looks: Looks) -> list[Passage]:
    """Best first, ranked from 1; equal scores in the order of their texts, which a store leaves to chance."""
    by_score = (list(tied) for _, tied in groupby(sorted(passages, key=_below), key=_below))
    best_first = (p for tied in by_score for p in (tied if len(tied) == 1 else sorted(tied, key=lambda p: looks[p.text].normal)))
    return [replace(passage, rank=rank) for rank, passage in enumerate(best_first, 1)]


def places(legs: Mapping[str, Sequence[Passage]], candidates: int, looks: Looks) -> dict[str, dict[str, Place]]:
    """Where each text stands in each leg, by leg and text; the first `candidates` texts of a leg.

    A text stands where the middle one of its rows stands, the upper of two: the best one would be the better the more often a text is stored, while a row
    that is set differently from most moves the middle little. Rows that another leg found and this one did not are below all that it found.

    Args:
        legs: What each leg found, best first.
        candidates: How many texts of each leg count.
        looks: How texts are compared.
    """
    rows: dict[str, set[str]] = {}
    for passage in (p for found in legs.values() for p in found):
        rows.setdefault(looks[passage.text].normal, set()).add(passage.id)
    standing = {}
    for leg, found in legs.items():
        by_text: dict[str, list[int]] = {}
        for i, passage in enumerate(found):
            by_text.setdefault(looks[passage.text].normal, []).append(i)
        middle = {text: at[min((len(rows[text]) - 1) // 2, len(at) - 1)] for text, at in by_text.items()}
        texts = sorted(middle, key=middle.__getitem__)[:candidates]
        standing[leg] = {text: Place(rank, found[middle[text]].score) for rank, text in enumerate(texts, 1)}
    return standing


def fused(
    legs: Mapping[str, Sequence[Passage]], standing: Mapping[str, Mapping[str, Place]], *, rrf_k: int, limit: int, looks: Looks
) -> list[Passage]:
    """One passage for each text, best first, at most `limit`: reciprocal ranks of several legs added up, the score of a single one.

    Source: Cormack et al., SIGIR 2009, doi:10.1145/1571941.1572114.
    """
    rows: dict[str, dict[str, Passage]] = {}
    for passage in (p for found in legs.values() for p in found):
        rows.setdefault(looks[passage.text].normal, {}).setdefault(passage.id, passage)
    texts = dict.fromkeys(text for leg in standing.values() for text in leg)
    passages = []
    for text in texts:
        at = [leg[text] for leg in standing.values() if text in leg]
        score = at[0].score if len(standing) == 1 else sum(1 / (rrf_k + place.rank) for place in at)
        passages.append(replace(_speaker([*rows[text].values()], looks), score=score))
    return ordered(passages, looks)[:limit]


def _speaker(rows: Sequence[Passage], looks: Looks) -> Passage:
    """The row that stands for all with its text, with the ids of the others: set as most of them are, the newest of these, of the document's last version."""
    settings = Counter(p.text for p in rows)
    preferred = sorted(rows, key=lambda p: (-settings[p.text], -(p.created_at or 0), p.id))
    speaker = newest_first(preferred, preferred, looks)[0]
    others = sorted(p.id for p in rows if p.id != speaker.id)
    return replace(speaker, metadata={**speaker.metadata, SAME_TEXT: others}) if others else speaker


def _below(passage: Passage) -> float:
    """Less for a better score, of which six digits count: two sums of the same reciprocals differ in the last ones of 32 bits."""
    return -float(f"{passage.score or 0.0:.6g}")
