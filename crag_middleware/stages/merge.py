"""One list of passages out of several: copies become one, chunks of a document are joined, ranks fuse, the newest version leads."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, groupby
from typing import Any

from crag_middleware.stages.fusion import MergeRules as MergeRules
from crag_middleware.stages.fusion import finite, fused, strength
from crag_middleware.stages.joining import all_hits, join, parts
from crag_middleware.stages.sameness import Looks
from crag_middleware.stages.vectors import Vector, cosine, unit
from crag_middleware.stages.versions import newest_first
from crag_middleware.types import Graded, Hit, Label, Passage

ALIKE = 0.9
"""The share of trigrams from which two passages are copies where their meaning can't be compared."""

_ROUNDING = 1e-9
_ORDER: dict[Label, int] = {"relevant": 0, "ambiguous": 1, "ungraded": 2, "incorrect": 3}


def marked(passages: Iterable[Passage], route: str, query: int) -> tuple[Passage, ...]:
    """The passages of one list, each with its place in it as its only hit.

    Args:
        passages: Best first.
        route: Who found them.
        query: Which of the turn's queries was asked, counted from 0.
    """
    return tuple(
        replace(passage, hits=(Hit(route, query, rank, passage.id, finite(passage.score)),))
        for rank, passage in enumerate(passages, start=1)
    )


def merge(passages: Iterable[Passage], rules: MergeRules) -> tuple[Passage, ...]:
    """One best-first list of what all lists found, by the passages' hits and nothing else.

    Copies become one: passages of the same text but for its formatting; those to which one route gave one id; and near-copies, whose vectors are
    at least as near as `rules.near` (without two vectors of one length: whose texts share `ALIKE` of their trigrams) and that tell no other fact
    (`Look.says_other`). The copy that stays is the best-scored, with the hits of all; a near-copy of an older version goes into the newer. Knowledge and
    web are no copies of each other, nor are different texts to which two routes gave one id: the worse of these is given another. Then chunks of one
    document are joined (`join`).

    Laws:

    - Order-free: the order of the input changes nothing.
    - Idempotent: `merge(merge(x)) == merge(x)`, and `merge([*x, *x]) == merge(x)`.
    - Bounded: never more passages than went in, and at least one if any did.
    - Ties are broken by the evidence score, then the newer, then text and id.
    - Incremental: `merge([*merge(x), *y])` is `merge([*x, *y])`, as long as no near-copies, joined chunks, or ids that stand for several texts are
      among them: what was taken for a copy of one passage may be nearer to a later one.

    Args:
        passages: From `marked`, or merged before; of one turn.
        rules: Weights, half-lives, and what counts as near.

    Returns:
        With `fused_score` (see `fused`) and ranks from 1. A version that is superseded by a later one of its document has changed places and scores
        with it.
    """
    looks = Looks()
    pool: Sequence[Passage] = tuple(passages)
    while True:
        distinct = _without_near_copies(_without_copies(pool, rules, looks), rules, looks)
        fewer = join(_best_first(distinct, rules))
        settled, pool = len(fewer) == len(pool), fewer
        if settled:
            break
    ordered = pool  # Best first: nothing was joined in the last round.
    scores = sorted(fused(ordered, rules), reverse=True)
    leading = newest_first(ordered, ordered, looks)
    return _with_own_ids(
        [replace(p, fused_score=score, rank=rank) for rank, (p, score) in enumerate(zip(leading, scores, strict=True), start=1)]
    )


def _without_copies(passages: Sequence[Passage], rules: MergeRules, looks: Looks) -> list[Passage]:
    """One passage for each group that text or id connects: one that was joined, else the one whose own id was best found."""
    distinct = []
    for copies in _groups([_names(passage, looks) for passage in passages]):
        hits = all_hits(passages[i] for i in copies)
        own: defaultdict[str, list[Hit]] = defaultdict(list)
        for hit in hits:
            own[hit.id].append(hit)
        keyed = [(-len(parts(p)), -strength(p, own[p.id], rules), *_tie(p), i) for i in copies for p in (passages[i],)]
        ranked = [passages[key[-1]] for key in sorted(keyed)]
        best = ranked[0]
        vectors = (p.vector for p in ranked if unit(p.vector) and looks.same(p.text) == looks.same(best.text))
        vector = next(vectors, None)
        distinct.append(best if hits == best.hits and vector is best.vector else replace(best, hits=hits, vector=vector))
    return distinct


def _names(passage: Passage, looks: Looks) -> list[tuple[str, ...]]:
    """What makes copies of passages that have it in common."""
    return [(passage.origin, looks.same(passage.text)), *((passage.origin, hit.route, hit.id) for hit in passage.hits)]


def _groups(names: Sequence[Iterable[Hashable]]) -> list[list[int]]:
    """The numbers of those that names connect, one list for each group."""
    above = list(range(len(names)))

    def top(i: int) -> int:
        while above[i] != i:
            above[i] = i = above[above[i]]
        return i

    first: dict[Hashable, int] = {}
    for i, own in enumerate(names):
        for name in own:
            above[top(i)] = top(first.setdefault(name, i))
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for i in range(len(names)):
        groups[top(i)].append(i)
    return list(groups.values())


class _Compared:
    """A passage as it is compared with others, and those that were found to be near-copies of it."""

    def __init__(self, passage: Passage, looks: Looks) -> None:
        self.passage, self.look, self.copies = passage, looks[passage.text], [passage]

    @cached_property
    def vector(self) -> Vector | None:
        """Of length 1."""
        return unit(self.passage.vector)

    def is_near(self, other: "_Compared", near: float | None) -> bool:
        """Whether two texts are near-copies. The cheaper comparison comes first: hardly any two passages pass it."""
        look, its_look, its_vector = self.look, other.look, other.vector
        if near is not None and self.vector and its_vector and len(self.vector) == len(its_vector):
            return cosine(self.vector, its_vector) >= near - _ROUNDING and not look.says_other(its_look)
        return look.marks == its_look.marks and look.share(its_look) >= ALIKE and not look.says_other(its_look)


def _without_near_copies(passages: Sequence[Passage], rules: MergeRules, looks: Looks) -> list[Passage]:
    """From the best on, each passage that is no near-copy of one before it; compared with those that stay, so that no chain leads from one text to another."""
    ordered = _best_first(passages, rules)
    kept: list[_Compared] = []
    comparable: defaultdict[tuple[str, bytes], list[_Compared]] = defaultdict(list)
    for passage in newest_first(ordered, ordered, looks):
        one = _Compared(passage, looks)
        rivals = comparable[passage.origin, one.look.digits]
        for stays in rivals:
            if one.is_near(stays, rules.near):
                stays.copies.append(passage)
                break
        else:
            kept.append(one)
            rivals.append(one)
    return [replace(one.passage, hits=all_hits(one.copies)) if len(one.copies) > 1 else one.passage for one in kept]


def _best_first(passages: Sequence[Passage], rules: MergeRules) -> list[Passage]:
    scored = sorted(zip(fused(passages, rules), passages, strict=True), key=lambda s: (-s[0], *_tie(s[1])))
    return [passage for _, passage in scored]


def _tie(passage: Passage) -> tuple[Any, ...]:
    """What puts passages of equal worth in order; no two that differ are equal in it."""
    trust, created = finite(passage.evidence_score), finite(passage.created_at)
    return (
        -(trust or 0.0),
        created is None,
        -(created or 0),
        passage.text,
        passage.id,
        passage.origin,
        _Last(passage),
    )


class _Last:
    """What decides last between passages; few come so far, and it is costly to make."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Last) and self._key == other._key

    def __lt__(self, other: "_Last") -> bool:
        return self._key < other._key

    __hash__ = None  # type: ignore[assignment]  # compared only

    @cached_property
    def _key(self) -> tuple[str, Vector]:
        return repr(self._passage), unit(self._passage.vector) or ()


def _with_own_ids(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages, where of two with one id the second has another: grades and citations are told apart by it."""
    taken: set[tuple[str, str]] = set()
    result = []
    for passage in passages:
        if (passage.origin, passage.id) in taken:
            passage = replace(passage, id=f"{passage.id}~{sha256(passage.text.encode(errors='replace')).hexdigest()[:8]}")
        taken.add((passage.origin, passage.id))
        result.append(passage)
    return tuple(result)


def fold(text: str) -> str:
    """The text as it is compared for sameness: case and white space do not count."""
    return " ".join(text.casefold().split())


def arrange(graded: Sequence[Graded]) -> tuple[Graded, ...]:
    """Best first: by label, then in the given order; versions of one page swap places so that the newest leads (`newest_first`).

    Neighbours with the same label and probability are a tie, which the evidence score breaks.
    """
    ordered: list[Graded] = []
    for _, tied in groupby(sorted(graded, key=lambda g: _ORDER[g.grade.label]), key=lambda g: (g.grade.label, g.grade.probability)):
        ordered += sorted(tied, key=lambda g: -(g.passage.evidence_score or 0.0))
    looks = Looks()
    return tuple(chain.from_iterable(_newest_first([g for g in ordered if g.grade.label == label], looks) for label in _ORDER))


def _newest_first(graded: Sequence[Graded], looks: Looks) -> tuple[Graded, ...]:
    return newest_first(graded, [g.passage for g in graded], looks)
