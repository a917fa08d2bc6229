"""A text cut into strips: sentences, list items, table rows, headings, code blocks, each with its exact place.

Lines give the structure, stops give the sentences. Every choice errs on the side of not cutting: a strip that is too long costs a few tokens, half a
sentence changes what is said.
"""

import re
from collections.abc import Iterator

from crag_middleware.stages.blocks import Piece, blocks
from crag_middleware.stages.stops import CLOSERS, HAN, HAN_OPENERS, HAN_STOPS, ends, stands_free
from crag_middleware.types import Strip

MAX_CHARS = 400
"""Structure lines longer than this are split like prose; text without stops is cut at about this length."""

MAX_SENTENCE = 600
"""A sentence up to this length stays whole; only a longer one is cut at `MAX_CHARS`."""

MAX_CLAUSES = 80
"""A Chinese sentence longer than this is cut at its semicolons."""

MAX_REST = 20
"""Signs after the last sentence of a block, up to this many, are no sentence of their own."""

_BOTH_WAYS = frozenset('"*_`~')
"""Signs that open and close alike; before white space they close."""

_TITLE_CLOSERS = "》〉"
"""A stop inside them belongs to a title, which is seldom the end of its sentence."""

_EXCLAIMS = re.compile("[!?]")

_SHUT = rf"(?:[{re.escape(CLOSERS)}]|\[\d{{1,3}}\]|</[a-z]\w{{0,9}}>)*+"
"""Quotes, brackets, footnote marks and closing tags that belong to the stop before them."""

_STOP = re.compile(rf"[.!?…。！？｡](?<![.!?…。！？｡][.!?…。！？｡])[.!?…。！？｡]*+(?:(?<=[。！？｡])|(?={_SHUT}(?:[^!-~]|\Z)))({_SHUT})\s*+")
"""A run of stops; a Latin one only where no visible ASCII sign follows, as it does inside a number, an address, a name.

The look back keeps the search from starting again inside a run, which would take quadratic time.
"""

_HAN_START = re.compile(f"[{HAN}{HAN_OPENERS}]")
_BREAK = re.compile(r".*(?:[，、；：,;:](?!\d)|\s)", re.DOTALL)
_SEMICOLONS = re.compile(r"；+")
_SIGN = re.compile(r"\S")
_WORD = re.compile(r"\w")


def split(text: str) -> tuple[Strip, ...]:
    """The strips of a text in order: `text[s.start:s.end] == s.text`, with nothing but white space around and between them.

    Splits Chinese, English and both in one sentence. Abbreviations, numbers, versions, addresses and file names stay whole; a list item, a heading and a
    table row, in Markdown or HTML, are one strip each unless very long, a fenced code block always is. An unclosed fence runs to the end, as in Markdown.

    Returns:
        Empty for a blank text. Takes time in proportion to the text's length, whatever is in it.
    """
    return tuple(Strip(text[start:end], start, end) for start, end, *_ in pieces(text))


def pieces(text: str) -> list[Piece]:
    """The strips of a text by place and kind; see `split`."""
    found: list[Piece] = []
    for block in blocks(text):
        if block.kind == "code" or (block.kind != "prose" and block.end - block.start <= MAX_CHARS):
            found.append(block)
        else:
            found.extend(_sentences(text, block))
    return found


def _sentences(text: str, block: Piece) -> list[Piece]:
    """The sentences of one block; those too long in parts."""
    found: list[Piece] = []
    start, end, kind, line, level = block
    is_line = kind != "prose"
    for stop in _STOP.finditer(text, start, end):
        following = stop.end()
        if following == end:
            break
        shut, after = stop.span(1)
        sign = text[shut - 1]
        if sign in HAN_STOPS:
            if after > shut and (text[following] in "，、；：,;:" or (after == following and text[after - 1] in _TITLE_CLOSERS)):
                continue
        elif after == following and not _HAN_START.match(text, following):
            continue
        elif text[following] in ".!?…":
            continue  # Dots with spaces between them: `wait . . . and then`.
        elif stands_free(text, start, stop.start(), following):
            pass
        elif sign == "." and stop.start() == shut - 1:
            if not ends(text, start, shut - 1, following):
                continue
        elif (first := text[following]).islower() or not (first.isupper() or _EXCLAIMS.search(text, stop.start(), shut)):
            continue
        if shut < after == following and (opening := _opening(text, start, shut, after)) is not None:
            after = following = opening
        length = after - start
        if length <= MAX_CLAUSES or (length <= MAX_SENTENCE and text.find("；", start, after) < 0):
            found.append(tuple.__new__(Piece, (start, after, kind, line if is_line else start, level)))  # Half the time of `Piece(...)`.
        else:
            found.extend(_parts(text, Piece(start, after, kind, line if is_line else start, level)))
        start = following
    if found and end - start <= MAX_REST and not _WORD.search(text, start, end):
        found[-1] = found[-1]._replace(end=end)
    else:
        found.extend(_parts(text, Piece(start, end, kind, line if is_line else start, level)))
    return found


def _opening(text: str, start: int, shut: int, after: int) -> int | None:
    """Where, among the signs after a stop, one opens the next sentence instead of closing this one; None if all close."""
    while shut < after:
        sign = text[shut]
        run = shut + 1
        while run < after and text[run] == sign:
            run += 1
        # Looks back a bounded way, so that a text full of quotes stays linear.
        if sign in _BOTH_WAYS and text.count(text[shut:run], max(start, shut - MAX_SENTENCE), shut) % 2 == 0:
            return shut
        shut = run
    return None


def _parts(text: str, sentence: Piece) -> Iterator[Piece]:
    """One sentence, or what it is cut into where it is too long: clauses, then stretches that end at commas, spaces or, failing those, anywhere."""
    start, end, kind, whole, level = sentence
    if end - start > MAX_CLAUSES:
        for semicolons in _SEMICOLONS.finditer(text, start, end):
            if semicolons.end() < end:
                yield from _parts(text, Piece(start, semicolons.end(), kind, whole, level))
                start = _next_sign(text, semicolons.end())
    while end - start > MAX_SENTENCE:
        fit = _BREAK.match(text, start + MAX_CHARS // 2, start + MAX_CHARS)
        cut = fit.end() if fit else start + MAX_CHARS
        yield Piece(start, start + len(text[start:cut].rstrip()), kind, whole, level)
        start = _next_sign(text, cut)
    yield Piece(start, end, kind, whole, level)


def _next_sign(text: str, position: int) -> int:
    """The first place from `position` on that is not white space."""
    sign = _SIGN.search(text, position)
    return sign.start() if sign else len(text)
