"""What of the grounds a model is shown of some claims: whole ones as far as they fit, else those that bear most on the claims."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from crag_middleware.stages.citations import mend
from crag_middleware.stages.fences import seen
from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import finder, terms
from crag_middleware.types import Claim, Ground

PIECE_CHARS = 1500
"""A longer ground, most often a tool's result, is cut between sentences into pieces of about this length."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a ground; the whole, if that is not long.

    Attributes:
        text: What it says.
        place: Its ground's place in the list of grounds.
        ground: The ground that it is of.
    """

    text: str
    place: int
    ground: Ground

    def is_cited(self, claims: Iterable[Claim]) -> bool:
        """Whether one of the claims cites the source that it is of."""
        return self.ground.number is not None and any(self.ground.number in claim.cited for claim in claims)


def askable(claims: Sequence[Claim]) -> tuple[tuple[int, Claim], ...]:
    """The claims with their places, as a model is asked about them: without citations, whose numbers mean nothing to it, and blank ones left out."""
    bare = (replace(claim, text=mend(seen(claim.text), {}).text) for claim in claims)
    return tuple((place, claim) for place, claim in enumerate(bare) if claim.text.strip())


def pieces(grounds: Sequence[Ground]) -> tuple[Piece, ...]:
    """The grounds in order, long ones in several pieces, blank ones left out."""
    return tuple(Piece(part, place, ground) for place, ground in enumerate(grounds) for part in _parts(ground.text) if seen(part).strip())


def choose(claims: Sequence[Claim], among: Sequence[Piece], *, max_chars: int, max_pieces: int) -> tuple[Piece, ...]:
    """The pieces to show of some claims: those of sources that they cite first, then the others, each in their own order.

    Args:
        claims: What is to be checked together.
        among: The pieces that there are.
        max_chars: How many characters are shown; at least `PIECE_CHARS`.
        max_pieces: How many pieces are shown.

    Returns:
        All of them if they fit; else each claim in its turn gets the next one that it cites, or that shares most rare words with it.
    """
    places: Sequence[int] = range(len(among))
    if len(among) > max_pieces or sum(len(piece.text) for piece in among) > max_chars:
        shares = [shared([claim], among) for claim in claims]
        ranked = [
            sorted(places, key=lambda at: (not among[at].is_cited([claim]), -share[at]))
            for claim, share in zip(claims, shares, strict=True)
        ]
        chosen, room = set[int](), max_chars
        for at in dict.fromkeys(at for turn in zip(*ranked, strict=True) for at in turn):
            if len(among[at].text) <= room and len(chosen) < max_pieces:
                chosen.add(at)
                room -= len(among[at].text)
        places = sorted(chosen)
    return tuple(sorted((among[at] for at in places), key=lambda piece: not piece.is_cited(claims)))


def shared(claims: Sequence[Claim], among: Sequence[Piece]) -> list[float]:
    """How much each piece shares with the claims: the sum over common terms, each counted by how few of the pieces have it."""
    find = finder(frozenset(term for claim in claims for term in terms(claim.text)))
    found = [find(piece.text) for piece in among]
    spread = Counter(term for terms_ in found for term in terms_)
    return [sum(1 / spread[term] for term in sorted(terms_)) for terms_ in found]


def _parts(text: str) -> Iterator[str]:
    """The text, in pieces if it is long; a block of code that is longer than a piece is cut anywhere."""
    if len(text) <= PIECE_CHARS:
        yield text
        return
    start = end = 0
    for strip in split(text):
        if strip.end - start > PIECE_CHARS and end > start:
            yield from _cut(text[start:end])
            start = strip.start
        end = strip.end
    yield from _cut(text[start:end])


def _cut(text: str) -> Iterator[str]:
    return (text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS))
