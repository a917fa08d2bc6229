"""A text cut into blocks: headings, list items, table rows, code, rules and paragraphs, in Markdown, HTML and plain text."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from crag_middleware.stages.markup import Kind, Stretch, between_tags, is_tagged, only_shuts
from crag_middleware.stages.stops import HAN, OPENERS, TAIL_CHARS, ends, last_sign

WRAP_COLUMN = 40
"""A line at least this wide that ends without a stop is taken to go on in the next one; Chinese characters count double."""

MAX_TITLE = 100
"""A line longer than this is no heading, though it is underlined."""

_NEWLINE = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE = re.compile(rf"\S[^{_NEWLINE}]*")
_FENCE = re.compile(rf"(?:\A|(?<=[{_NEWLINE}]))[^\S{_NEWLINE}]*(`{{3,}}(?=[^`{_NEWLINE}]*(?:[{_NEWLINE}]|\Z))|~{{3,}})")
_MARK = re.compile(
    rf"""
    (?P<heading>\#{{1,6}}\s | 第[零一二三四五六七八九十百\d]{{1,6}}[章节](?=[\s：:]))
  | (?P<row>\||:?-+:?\s*\|[-:|\s]+$)
  | (?P<rule>[-=*_+\s]{{3,}}$)
  | (?P<item>[-*+·–—>]\s | [•‣◦▪●○■□◆①-⒛] | \d{{1,3}}、 | \d{{1,3}}[.)）](?=\s|[{HAN}]) | [a-z][.)]\s | [A-Z]\)\s
      | [(（](?:\d{{1,3}}|[a-z]|[一二三四五六七八九十]{{1,3}})[)）] | [一二三四五六七八九十]{{1,3}}[、．.]
      | 第[零一二三四五六七八九十百\d]{{1,6}}[条款项](?=[\s：:]))
    """,
    re.VERBOSE,
)
_BLANK = re.compile(r"\n[ \t\r]*\n")
_UNDERLINE = re.compile(r"=+|-+")
_DELIMITER = re.compile(r"[|\s:+=-]+")
_KEY = re.compile(r"[\w.-]+\s?[:=]")
_HAN_CHARACTER = re.compile(f"[{HAN}]")


class Piece(NamedTuple):
    """A block or a strip by its place and kind, before its text is taken out."""

    start: int
    end: int
    kind: Kind
    whole: int
    """Where the line or sentence begins that it is a part of: its own start, unless that was too long for one strip."""
    level: int = 0
    """How far a list item is indented."""


def is_delimiter(row: str) -> bool:
    """Whether a table row is the line of signs under a header."""
    return _DELIMITER.fullmatch(row) is not None


def blocks(text: str) -> Iterator[Piece]:
    """The blocks of a text in order, with nothing but white space around and between them; a paragraph's lines are one block."""
    block: Piece | None = None
    line_start = line_end = 0
    in_table = False
    for start, end, tagged, level, first in _lines(text):
        between = text[line_end:start]
        near = block is not None and not first and between.count("\n") < 2 and between.count("\r") < 2
        line_end = end
        if block and only_shuts(text, start, end):
            block = block._replace(end=end)
            continue
        kind: Kind
        if tagged:
            kind = tagged
        else:
            mark = _MARK.match(text, start, end)
            words = text[start:end]
            kind = mark.lastgroup if mark else "row" if " | " in words or "\t" in words else "prose"  # type: ignore[assignment]  # group names are kinds
            if kind == "item":
                level = len(between) - len(between.rstrip(" \t\u3000"))
            in_table = near and in_table and "|" in words
            if in_table:
                kind = "row"
            if block and near:
                alone = block.kind == "prose" and block.start == line_start
                if kind == "row" and is_delimiter(words):
                    in_table = True
                    if alone and "|" in text[line_start : block.end]:
                        block = block._replace(kind="row")
                elif kind == "rule":
                    if block.kind == "row":
                        kind = "row"  # A table drawn with plus signs.
                    elif alone and _UNDERLINE.fullmatch(words) and _is_title(text, block):
                        block = block._replace(end=end, kind="heading")
                        continue
                elif kind == "prose" and block.kind in ("prose", "item") and _goes_on(text, line_start, block.end, start):
                    block = block._replace(end=end)
                    line_start = start
                    continue
        if block:
            yield block
        block = Piece(start, end, kind, start, level)
        line_start = start
    if block:
        yield block


def _lines(text: str) -> Iterator[tuple[int, int, Kind | None, int, bool]]:
    """The lines of a text: start, end, what its tags say it is, how many lists are open, and whether a tag parts it from the line before.

    A fenced block of code is one line, and so is what stands between tags, up to an empty line.
    """
    tagged = is_tagged(text)
    start = 0
    for fence_start, fence_end in _fences(text):
        for stretch in between_tags(text, start, fence_start) if tagged else (Stretch(start, start, fence_start, None, 0),):
            position, first = stretch.start, tagged
            if stretch.kind:
                blank = None if stretch.kind in ("row", "code") else _BLANK.search(text, stretch.inner, stretch.end)
                position = blank.start() if blank else stretch.end
                yield stretch.start, stretch.start + len(text[stretch.start : position].rstrip()), stretch.kind, stretch.level, True
            for line in _LINE.finditer(text, position, stretch.end):
                begin = line.start()
                yield begin, begin + len(line.group().rstrip()), None, 0, first
                first = False
        if fence_start < fence_end:
            yield fence_start, fence_end, "code", 0, False
        start = fence_end


def _fences(text: str) -> Iterator[tuple[int, int]]:
    """Where each fenced block of code begins and ends, and at last an empty one at the end of the text."""
    position = 0
    if "```" in text or "~~~" in text:
        while fence := _FENCE.search(text, position):
            start = fence.start(1)
            sign, length = text[start], fence.end(1) - start
            for line in islice(_LINE.finditer(text, start), 1, None):
                words = line.group().rstrip()
                if words[0] == sign and len(words) >= length and not words.strip(sign):
                    position = line.start() + len(words)
                    break
            else:
                position = len(text.rstrip())
            yield start, position
    yield len(text), len(text)


def _is_title(text: str, block: Piece) -> bool:
    """Whether an underlined line is a heading, and no sentence with a rule under it."""
    return block.end - block.start <= MAX_TITLE and last_sign(text[block.start : block.end]) not in ".。;；,，:："


def _goes_on(text: str, line_start: int, line_end: int, next_start: int) -> bool:
    """Whether the line break between two lines of text is mere wrapping."""
    last, first = text[line_end - 1], text[next_start]
    ending = last_sign(text[max(line_start, line_end - TAIL_CHARS) : line_end])
    if ending == ".":
        return last == "." and not ends(text, line_start, line_end - 1, next_start)
    if ending in "。！？｡!?…:：;；":
        return False
    if last in ",，、" or first in ",，、；。)）":
        return True
    if first.islower():
        return not _KEY.match(text, next_start)
    width = (line_end - line_start) * (2 if _HAN_CHARACTER.match(last) else 1)
    return width >= WRAP_COLUMN and (first.isalnum() or first in f"{OPENERS}`")
