"""What a strip is read under, further away than the sentence before it: a heading, a list's lead-in, a table's header, the clause its sentence begins with."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from crag_middleware.stages.blocks import Piece, is_delimiter
from crag_middleware.stages.markup import Kind

MAX_DEPTH = 8
"""How far outwards is looked: of a list in a list in a list, or of headings."""

MAX_HEADER = 4
"""How many rows at the top of a table, with its caption, are its header."""

_GOVERNS = re.compile(
    r"\b(?:not|no|never|none|without|cannot|only|if|when|unless|until|before|after|except\w*|exclu\w+|exempt\w*|deprecated|obsolete)\b|n't\b|non-"
    r"|\w.*\d|[不没无未勿非仅除禁]|例外|只|如果|若|废|旧版",
    re.DOTALL,
)
"""A heading, in small letters and without the number it begins with, that changes what is said under it."""

_HEADING_NUMBER = re.compile(r"[^\w<]*(?:<[^<>]*>\s*)*[\d.]*[\s.、]*")
_HEADING_LEVEL = re.compile(r"(?:<[^<>]*>\s*)*<h([1-6])|(#{1,6})\s|第[^章节\s]+(?:(章)|节)", re.IGNORECASE)

_ORDINAL = re.compile(r"[(（]?(?:\d{1,3}|[a-zA-Z]|[一二三四五六七八九十]{1,3})[.)）、．]|[①-⒛]|第[^条款项\s]{1,6}[条款项]")
_STYLE = str.maketrans({
    **dict.fromkeys("0123456789", "1"),
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", "a"),
    **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "A"),
    **dict.fromkeys("零一二三四五六七八九十百", "一"),
    **dict.fromkeys(map(chr, range(ord("①"), ord("⒛") + 1)), "①"),
    **dict(zip("（）．、", "()..", strict=True)),
})  # fmt: skip
_REPEATED = re.compile(r"(.)\1+")
_FIRST = re.compile(r"[(（]?(?:1|a|A|一)[.)）、．]|[①⑴⒈]|第[1一][条款项]")

_TABLE = re.compile(r"<table\b", re.IGNORECASE)
_HEADER_CELL = re.compile(r"<th\b", re.IGNORECASE)
_CELL = re.compile(r"<td\b", re.IGNORECASE)

Over = defaultdict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Outline:
    """What stands over and under the strips of a page; strips that have nothing there are missing."""

    over: Mapping[int, tuple[int, ...]]
    """The strips that a strip is read under; those may have strips over them in turn."""

    under: Mapping[int, int]
    """The strip after a list or a table, or the last clause of a sentence: what it takes back, it takes back from every item, row or clause."""

    def above(self, i: int) -> Iterator[int]:
        """All that strip `i` is read under, nearest first."""
        found: set[int] = set()
        near = [i]
        for _ in range(MAX_DEPTH):
            near = [j for k in near for j in self.over.get(k, ()) if j not in found]
            if not near:
                return
            found.update(near)
            yield from near


def outline(text: str, pieces: Sequence[Piece], strips: Sequence[str], signs: Sequence[str]) -> Outline:
    """The outline of a page, in time in proportion to its length."""
    over: Over = defaultdict(tuple)
    under: dict[int, int] = {}
    kinds = {piece.kind for piece in pieces}
    if any(piece.whole != piece.start for piece in pieces):
        _parts(pieces, signs, over, under)
    if "row" in kinds:
        _rows(text, pieces, strips, over, under)
    if "item" in kinds:
        _items(pieces, strips, over)
        _notes(pieces, _runs(pieces, "item"), under)
    if ":" in signs or "：" in signs:
        _announced(text, pieces, signs, over)
    if "heading" in kinds:
        _headings(pieces, strips, over)
    return Outline(over, under)


def _parts(pieces: Sequence[Piece], signs: Sequence[str], over: Over, under: dict[int, int]) -> None:
    """The parts of a long line go with its first one, which says what it is about, and so do the clauses of a long sentence."""
    first = 0
    clauses: list[int] = []
    for i, piece in enumerate(pieces):
        if piece.whole == piece.start:
            first = i
            clauses = []
        elif piece.kind != "prose" or signs[i - 1] == "；":
            over[i] = (first,)
            clauses.append(i - 1)
        if clauses and (i + 1 == len(pieces) or pieces[i + 1].whole == pieces[i + 1].start):
            under.update(dict.fromkeys(clauses, i))


def _rows(text: str, pieces: Sequence[Piece], strips: Sequence[str], over: Over, under: dict[int, int]) -> None:
    """A row goes with its table's caption and header, and with the header in mid-table that it stands under."""
    tables = [*_tables(text, pieces, strips)]
    _notes(pieces, tables, under)
    for top, end in tables:
        header: tuple[int, ...] = (top - 1, top) if top and pieces[top - 1].kind == "heading" and _TABLE.match(strips[top - 1]) else (top,)
        section: tuple[int, ...] = ()
        for row in range(top + 1, end):
            if pieces[row].whole != pieces[row].start:
                continue
            over[row] = header + section
            if (
                row == header[-1] + 1
                and len(header) < MAX_HEADER
                and (is_delimiter(strips[row]) or (_is_header(strips[row]) and _is_header(strips[row - 1])))
            ):
                header += (row,)
            elif _is_header(strips[row]):
                over[row] = header
                section = (row,)


def _tables(text: str, pieces: Sequence[Piece], strips: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where each table begins and ends; an empty line or a tag parts it from the one before."""
    for start, end in _runs(pieces, "row"):
        top = start
        for row in range(start + 1, end):
            in_html = strips[row][0] == "<"
            if _TABLE.match(strips[row]) if in_html else text.count("\n", pieces[row - 1].end, pieces[row].start) > 1:
                yield top, row
                top = row
        yield top, end


def _is_header(row: str) -> bool:
    """Whether a row has cells of a header only."""
    return row[0] == "<" and _HEADER_CELL.search(row) is not None and _CELL.search(row) is None


def _items(pieces: Sequence[Piece], strips: Sequence[str], over: Over) -> None:
    """An item goes with the item it is nested in, or with the line before its list.

    Nested means further in, or numbered anew in another style: `（一）` under `一、`. A numbered list goes on after code or text between its items.
    """
    stack: list[tuple[int, str, int]] = []  # Level, style and number of the items that the next one may stand under.
    lead_in: tuple[int, ...] = ()
    for i, piece in enumerate(pieces):
        if piece.kind == "heading":
            stack.clear()
        if piece.kind != "item" or piece.whole != piece.start:
            continue
        mark = _ORDINAL.match(strips[i])
        style = _REPEATED.sub(r"\1", mark.group().translate(_STYLE)) if mark else ""
        begins = not mark or _FIRST.match(strips[i]) is not None
        if not i or (pieces[i - 1].kind != "item" and (begins or not stack)):
            stack.clear()
            lead_in = (i - 1,) if i and pieces[i - 1].kind in ("prose", "heading") else ()
        while stack and stack[-1][0] > piece.level:
            stack.pop()
        del stack[:-MAX_DEPTH]
        beside = [depth for depth, (level, other, _) in enumerate(stack) if level == piece.level and other == style]
        if beside:
            del stack[beside[0] :]
        elif not (begins and stack and stack[-1][1]):
            while stack and stack[-1][0] == piece.level:
                stack.pop()
        over[i] = (stack[-1][2],) if stack else lead_in
        stack.append((piece.level, style, i))


def _notes(pieces: Sequence[Piece], groups: Iterable[tuple[int, int]], under: dict[int, int]) -> None:
    """The strip after a list or a table may be about all of it."""
    for start, end in groups:
        if end < len(pieces) and pieces[end].kind in ("prose", "item"):
            for i in range(start, end):
                under.setdefault(i, end)


def _runs(pieces: Sequence[Piece], kind: Kind) -> Iterator[tuple[int, int]]:
    """Where each run of strips of one kind begins and ends."""
    end = 0
    for same, run in groupby(pieces, lambda piece: piece.kind == kind):
        start, end = end, end + sum(1 for _ in run)
        if same:
            yield start, end


def _announced(text: str, pieces: Sequence[Piece], signs: Sequence[str], over: Over) -> None:
    """Lines under one that ends with a colon are a list without marks, up to an empty line."""
    announcer: tuple[int, ...] = ()
    for i in range(1, len(pieces)):
        between = text[pieces[i - 1].end : pieces[i].start]
        if pieces[i].kind != "prose" or between.count("\n") > 1:
            announcer = ()
        elif "\n" in between:
            if signs[i - 1] in ":：":
                announcer = (i - 1,)
            if announcer:
                over[i] += announcer


def _headings(pieces: Sequence[Piece], strips: Sequence[str], over: Over) -> None:
    """What stands under a heading goes with it where the heading changes what is said: `Not covered`, `Until v2.1`."""
    open_ones: list[tuple[int, int]] = []  # Level and number.
    governing: tuple[int, ...] = ()
    for i, piece in enumerate(pieces):
        if piece.kind == "heading":
            level = _level(strips[i])
            while open_ones and open_ones[-1][0] >= level:
                open_ones.pop()
            open_ones.append((level, i))
            governing = tuple(j for _, j in open_ones if _GOVERNS.search(_HEADING_NUMBER.sub("", strips[j].lower(), count=1)))
        elif governing and piece.whole == piece.start:
            over[i] += governing


def _level(heading: str) -> int:
    """How deep a heading is, the deepest where it does not say."""
    mark = _HEADING_LEVEL.match(heading)
    if mark is None:
        return {"=": 1, "-": 2}.get(heading[-1], MAX_DEPTH)
    digit, signs, chapter = mark.groups()
    return int(digit) if digit else len(signs) if signs else 1 if chapter else 2
