"""A text cut into strips: sentences, list items, table rows, headings, code blocks, each with its exact place.

Lines give the structure, stops give the sentences. Every choice errs on the side of not cutting: a strip that is too long costs a few tokens, half a
sentence changes what is said.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from crag_middleware.types import Strip

Kind = Literal["prose", "heading", "item", "row", "code", "rule"]
"""What a strip is part of; a rule is a line of signs only."""

MAX_CHARS = 400
"""Structure lines longer than this are split like prose; text without stops is cut at about this length."""

MAX_SENTENCE = 600
"""A sentence up to this length stays whole; only a longer one is cut at `MAX_CHARS`."""

MAX_CLAUSES = 80
"""A Chinese sentence longer than this is cut at its semicolons."""

WRAP_COLUMN = 40
"""A line at least this wide that ends without a stop is taken to go on in the next one; Chinese characters count double."""

_NEWLINE = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_HAN = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_HAN_OPENERS = "“‘（【《「『〈"
_OPENERS = "\"'«([{" + _HAN_OPENERS
_CLOSERS = "\"'”’»)]}）】》」』〉*_`~"
_BOTH_WAYS = frozenset('"*_`~')
"""Signs that open and close alike; before white space they close."""

_LINE = re.compile(rf"\S[^{_NEWLINE}]*")
_MARK = re.compile(
    rf"""
    (?P<code>`{{3,}}[^`]*$ | ~{{3,}})
  | (?P<heading>\#{{1,6}}\s)
  | (?P<row>\|)
  | (?P<rule>[-=*_+\s]{{3,}}$)
  | (?P<item>[-*+·–—>]\s | [•‣◦▪●○■□◆①-⒛] | \d{{1,3}}、 | \d{{1,3}}[.)）](?=\s|[{_HAN}]) | [a-z][.)]\s | [A-Z]\)\s
      | [(（](?:\d{{1,3}}|[a-z]|[一二三四五六七八九十]{{1,3}})[)）] | [一二三四五六七八九十]{{1,3}}[、．.]
      | 第[零一二三四五六七八九十百\d]{{1,6}}[章节条款项](?=[\s：:]))
    """,
    re.VERBOSE,
)
_EXCLAIMS = re.compile("[!?]")
_KEY = re.compile(r"[\w.-]+\s?[:=]")

_SHUT = rf"[{re.escape(_CLOSERS)}]*+(?:\[\d{{1,3}}\])*+"
"""Quotes, brackets and footnote marks that belong to the stop before them."""

_SHUT_END = re.compile(rf"(?:[{re.escape(_CLOSERS)}]|\[\d{{1,3}}\])+\Z")
_TAIL_CHARS = 16
_STOP = re.compile(rf"[.!?…。！？｡](?<![.!?…。！？｡][.!?…。！？｡])[.!?…。！？｡]*+(?:(?<=[。！？｡])|(?={_SHUT}(?:[^!-~]|\Z)))({_SHUT})\s*+")
"""A run of stops; a Latin one only where no visible ASCII sign follows, as it does inside a number, an address, a name.

The look back keeps the search from starting again inside a run, which would take quadratic time.
"""

_HAN_STOPS = "。！？｡"
_HAN_START = re.compile(f"[{_HAN}{_HAN_OPENERS}]")
_BREAK = re.compile(r".*(?:[，、；：,;:](?!\d)|\s)", re.DOTALL)
_SEMICOLONS = re.compile(r"；+")
_SIGN = re.compile(r"\S")
_TAIL = re.compile(r"[\w.'’-]*+\Z", re.ASCII)
_HAN_CHARACTER = re.compile(f"[{_HAN}]")
_LABEL = re.compile(r"[(（]?(?:\d{1,3}|[a-z]|[ivx]{1,4})")
_CAPITALISED = re.compile(r"[A-Z][a-z]*(?![\w.])")

_NEVER, _BEFORE_NUMBER, _RARELY = "never", "before a number", "rarely"
_ABBREVIATIONS = {
    name: when
    for when, names in {
        # A stop after these ends no sentence.
        _NEVER: "dr mr mrs ms prof st mt gen sen gov col rep hon capt lt sgt mme mlle vs cf viz e.g i.e eg ie incl excl resp",
        # These take a number or a letter: `No. 5`, `Jan. 5`, `Rev. B`.
        _BEFORE_NUMBER: "no nos fig figs sec sect art ch chap vol p pp eq eqn ref refs tab ver rev para approx ca max min tel ext ed est op cl app "
        "jan feb mar apr jun jul aug sep sept oct nov dec",
        # These end a sentence only where the next word starts one.
        _RARELY: "inc ltd corp co llc plc etc jr sr dept univ assn bros al a.m p.m ph.d misc",
    }.items()
    for name in names.split()
}
_STARTERS = frozenset(
    """
    A After All Also An And Any As At Before Both But By Can Do Does Each Every For From He Her Here His How However I If In Is It Its Later No Not Now
    On One Only Or Our Please See She Since So Some That The Their Then There These They This Those Thus To Today Under Unless Until We What When Where
    Which While Who Why With You Your
    """.split()  # noqa: SIM905, a list of words reads better as text
)


class Piece(NamedTuple):
    """A strip by its place and kind, before its text is taken out."""

    start: int
    end: int
    kind: Kind


def split(text: str) -> tuple[Strip, ...]:
    """The strips of a text in order: `text[s.start:s.end] == s.text`, with nothing but white space around and between them.

    Splits Chinese, English and both in one sentence. Abbreviations, numbers, versions, addresses and file names stay whole; a list item, a heading and a
    table row are one strip each unless very long, a fenced code block always is. An unclosed fence runs to the end, as in Markdown.

    Returns:
        Empty for a blank text. Takes time in proportion to the text's length, whatever is in it.
    """
    return tuple(Strip(text[start:end], start, end) for start, end, _ in pieces(text))


def pieces(text: str) -> list[Piece]:
    """The strips of a text by place and kind; see `split`."""
    found: list[Piece] = []
    for block in _blocks(text):
        if block.kind == "code" or (block.kind != "prose" and block.end - block.start <= MAX_CHARS):
            found.append(block)
        else:
            found.extend(_sentences(text, block))
    return found


def last_sign(strip: str) -> str:
    """The sign a strip ends with, closing quotes, brackets and footnote marks aside; a space if there is nothing else."""
    sign = strip[-1:]
    if sign in _CLOSERS:
        sign = _SHUT_END.sub("", strip[-_TAIL_CHARS:])[-1:]
    return sign or " "


def _blocks(text: str) -> Iterator[Piece]:
    """Structure lines each on their own, and runs of lines that are one paragraph."""
    block: Piece | None = None
    line_start = position = 0
    while line := _LINE.search(text, position):
        start, words = line.start(), line.group().rstrip()
        position = end = start + len(words)
        mark = _MARK.match(text, start, end)
        kind: Kind = mark.lastgroup if mark else "row" if " | " in words or "\t" in words else "prose"  # type: ignore[assignment]  # group names are kinds
        if kind == "code":
            position = end = _fence_end(text, words, end)
        if block and kind == "prose" and block.kind in ("prose", "item") and _goes_on(text, line_start, block.end, start):
            block = Piece(block.start, end, block.kind)
        else:
            if block:
                yield block
            block = Piece(start, end, kind)
        line_start = start
    if block:
        yield block


def _fence_end(text: str, opening: str, end: int) -> int:
    """Where the code block ends whose opening line ends at `end`."""
    sign = opening[0]
    length = len(opening) - len(opening.lstrip(sign))
    for line in _LINE.finditer(text, end):
        words = line.group().rstrip()
        if words[0] == sign and len(words) >= length and not words.strip(sign):
            return line.start() + len(words)
    return len(text.rstrip())


def _goes_on(text: str, line_start: int, line_end: int, next_start: int) -> bool:
    """Whether the line break between two lines of text is mere wrapping."""
    between = text[line_end:next_start]
    if max(between.count("\n"), between.count("\r")) > 1:
        return False
    last, first = text[line_end - 1], text[next_start]
    ending = last_sign(text[max(line_start, line_end - _TAIL_CHARS) : line_end])
    if ending == ".":
        return last == "." and not _ends(text, line_start, line_end - 1, next_start)
    if ending in "。！？｡!?…:：;；":
        return False
    if last in ",，、" or first in ",，、；。)）":
        return True
    if first.islower():
        return not _KEY.match(text, next_start)
    width = (line_end - line_start) * (2 if _HAN_CHARACTER.match(last) else 1)
    return width >= WRAP_COLUMN and (first.isalnum() or first in _OPENERS)


def _sentences(text: str, block: Piece) -> list[Piece]:
    """The sentences of one block; those too long in parts."""
    found: list[Piece] = []
    start, end, kind = block
    for stop in _STOP.finditer(text, start, end):
        following = stop.end()
        if following == end:
            break
        shut, after = stop.span(1)
        sign = text[shut - 1]
        if sign in _HAN_STOPS:
            if after > shut and text[following] in "，、；：,;:":
                continue
        elif after == following and not _HAN_START.match(text, following):
            continue
        elif sign == "." and stop.start() == shut - 1:
            if not _ends(text, start, shut - 1, following):
                continue
        elif (first := text[following]).islower() or not (first.isupper() or _EXCLAIMS.search(text, stop.start(), shut)):
            continue
        if shut < after == following and (opening := _opening(text, start, shut, after)) is not None:
            after = following = opening
        length = after - start
        if length <= MAX_CLAUSES or (length <= MAX_SENTENCE and text.find("；", start, after) < 0):
            found.append(tuple.__new__(Piece, (start, after, kind)))  # Half the time of `Piece(start, after, kind)`.
        else:
            found.extend(_parts(text, Piece(start, after, kind)))
        start = following
    found.extend(_parts(text, Piece(start, end, kind)))
    return found


def _ends(text: str, start: int, dot: int, following: int) -> bool:
    """Whether the dot at `dot` ends the sentence begun at `start`, with the next one at `following`."""
    first = text[following]
    if first.isupper() and dot - start >= 5 and (word := text[dot - 5 : dot]).islower() and word.isalpha() and word.isascii():
        return True  # The usual case, first because it is the quickest to tell: no abbreviation before a capital is that long.
    tail = _TAIL.search(text, max(start, dot - 12), dot)
    name = tail.group().lower() if tail else ""
    when = _ABBREVIATIONS.get(name)
    if when is None and len(name) == 2 * name.count(".") + 1 and name[-1:].isalpha():
        when = _RARELY  # An initial or a dotted one: `J.`, `U.S.`
    if when == _NEVER or (dot - start < 6 and _LABEL.fullmatch(text, start, dot)) or dot == start:
        return False
    if when == _BEFORE_NUMBER:
        return not (
            first.isdigit() or first.islower() or first in "(#" or (first.isupper() and not text[following + 1 : following + 2].isalnum())
        )
    if when == _RARELY:
        word_after = _CAPITALISED.match(text, following)
        return word_after is not None and word_after.group() in _STARTERS
    if following == dot + 1 and name.isdigit() and len(name) < 3:
        return False  # A number in a running list: `1.安装 2.启动`.
    return not first.islower() or len(name) > 4 or not name.isalpha()


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
    start, end, kind = sentence
    if end - start > MAX_CLAUSES:
        for semicolons in _SEMICOLONS.finditer(text, start, end):
            if semicolons.end() < end:
                yield from _parts(text, Piece(start, semicolons.end(), kind))
                start = _next_sign(text, semicolons.end())
    while end - start > MAX_SENTENCE:
        fit = _BREAK.match(text, start + MAX_CHARS // 2, start + MAX_CHARS)
        cut = fit.end() if fit else start + MAX_CHARS
        yield Piece(start, start + len(text[start:cut].rstrip()), kind)
        start = _next_sign(text, cut)
    yield Piece(start, end, kind)


def _next_sign(text: str, position: int) -> int:
    """The first place from `position` on that is not white space."""
    sign = _SIGN.search(text, position)
    return sign.start() if sign else len(text)
