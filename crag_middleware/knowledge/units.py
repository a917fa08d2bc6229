"""What a text is cut between: sentences, list items, rows, blocks of code and records, and their parts where they are longer than a chunk."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from crag_middleware.stages.blocks import Piece
from crag_middleware.stages.markup import Kind
from crag_middleware.stages.sentences import pieces
from crag_middleware.stages.webquery import cut

MAX_SIGN = 32
"""A sign written with several characters, such as an emoji of a family, is kept whole up to so many."""

_AHEAD = 20
"""So many characters after the place of a cut help jieba to tell the words there."""

_LINE = re.compile(r"\S[^\n]*")
_SIGN = re.compile(r"\S")
_COLONS = (":", "：")
_FLOWING = frozenset({"prose", "item", "rule"})

_JOINER = "\u200d"
_EXTENDS = re.compile("[\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
"""The joiner, the shades of skin, and tags, which make the flags of regions."""

_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""Two of them make a flag."""


class Unit(NamedTuple):
    """A part of a text that fits into a chunk, with no white space around it."""

    start: int
    end: int
    kind: Kind
    begins: bool
    """Whether it is the first part of its sentence or line, mostly the only one."""

    parts: bool
    """Whether a paragraph begins with it, or a table, a block of code or a record."""

    leads: bool
    """Whether it is a heading, or announces what follows with a colon."""


def units(text: str, size: int) -> Iterator[Unit]:
    """The units of a text in order, none longer than `size`."""
    return _measured(text, pieces(text), size)


def record_units(text: str, size: int) -> Iterator[Unit]:
    """The units of records that empty lines part: their lines."""
    return _measured(text, _lines(text, 0, len(text), "row"), size)


def _measured(text: str, found: Iterable[Piece], size: int) -> Iterator[Unit]:
    """The pieces, those of one line or sentence together where they fit, and in parts where one does not."""
    end = 0
    before: Kind = "prose"
    for _, group in groupby(_mended(text, found), lambda piece: piece.whole):
        run = [*group]
        start, kind = run[0].start, run[0].kind
        gap = text[end:start]
        parts = max(gap.count("\n"), gap.count("\r")) > 1 or kind == "heading" or (kind != before and not {kind, before} <= _FLOWING)
        before, end = kind, run[-1].end
        for place in [(start, end)] if end - start <= size else _parts(text, run, size):
            begins = place[0] == start
            leads = kind == "heading" or (kind in _FLOWING and text[place[1] - 1] in _COLONS)
            yield Unit(*place, kind, begins, begins and parts, leads)


def _mended(text: str, found: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces, with those that were cut apart inside a word or a sign put together again."""
    last: Piece | None = None
    for piece in found:
        if last and last.end == piece.start and (_is_inside(text, last.start, last.end) or _is_word_cut(text, last, piece)):
            last = last._replace(end=piece.end)
            continue
        if last:
            yield last
        last = piece
    if last:
        yield last


def _is_word_cut(text: str, before: Piece, after: Piece) -> bool:
    return before.whole == after.whole and unicodedata.category(text[before.end - 1])[0] != "P"


def _parts(text: str, run: Sequence[Piece], size: int) -> Iterator[tuple[int, int]]:
    """The parts of what is too long: lines of code, sentences of a line, clauses of a sentence, and what fits of them."""
    start, end, kind, *_ = run[0]
    found: Iterable[Piece] = run
    if kind == "code":
        found = _lines(text, start, end, kind)
    elif len(run) == 1:
        found = _mended(text, (piece._replace(start=start + piece.start, end=start + piece.end) for piece in pieces(text[start:end])))
    for piece in found:
        yield from _cut(text, piece.start, piece.end, size)


def _lines(text: str, start: int, end: int, kind: Kind) -> Iterator[Piece]:
    for line in _LINE.finditer(text, start, end):
        yield Piece(line.start(), line.start() + len(line.group().rstrip()), kind, line.start())


def _cut(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a stretch that are no longer than `size`, which end with a clause or a word where there is one."""
    while end - start > size:
        stop = start + len(cut(text[start : min(start + size + _AHEAD, end)], size))
        whole = next((place for place in range(stop, max(start, stop - MAX_SIGN), -1) if not _is_inside(text, start, place)), stop)
        yield start, start + len(text[start:whole].rstrip())
        if sign := _SIGN.search(text, whole, end):
            start = sign.start()
    yield start, end


def _is_inside(text: str, start: int, place: int) -> bool:
    """Whether `place` lies inside a sign that is written with several characters; nothing before `start` is looked at.

    Source: the rules of Unicode Standard Annex 29, section 3.1.1, that concern marks, joiners, emoji and flags.
    """
    after = text[place]
    if after in _FLAG_LETTERS:
        before = text[max(start, place - MAX_SIGN) : place]
        return (len(before) - len(before.rstrip(_FLAG_LETTERS))) % 2 == 1
    return text[place - 1] == _JOINER or _EXTENDS.match(after) is not None or unicodedata.category(after)[0] == "M"
