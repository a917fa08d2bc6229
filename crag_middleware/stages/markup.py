"""HTML read as far as strips need it: which tags begin and end a heading, a paragraph, a list item, a table row."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["prose", "heading", "item", "row", "code", "rule"]
"""What a strip is part of; a rule is a line of signs only."""

_HOLDERS = "table|thead|tbody|tfoot|caption|tr|ul|ol|dl|li|dt|dd|h[1-6]|p|div|section|article|main|header|footer|aside|blockquote|pre|details|summary"
_OPEN = rf"(?<![`\"'])<(?:{_HOLDERS})(?:\s[^<>]*)?>(?![`\"'])"
_SHUT = rf"(?<![`\"'])(?:</(?:{_HOLDERS}|td|th|html|body)\s*>|<[bh]r\s*/?>)(?![`\"'])"
_SHUT_TAG = re.compile(_SHUT, re.IGNORECASE)
_BORDER = re.compile(f"{_OPEN}|{_SHUT}", re.IGNORECASE)
_OPENING = re.compile(rf"(?:{_OPEN}\s*)+", re.IGNORECASE)
_SHUTTING = re.compile(rf"(?:\s*{_SHUT})+", re.IGNORECASE)
_NAME = re.compile(r"</?(\w+)")
_ENDS: dict[Kind | None, re.Pattern[str]] = {
    "row": re.compile(r"</?(?:tr|table)\b", re.IGNORECASE),
    "code": re.compile(r"</pre\b", re.IGNORECASE),
}
_SIGN = re.compile(r"\S")

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("li", "dt", "dd"), "item"),
    **dict.fromkeys(("caption", "summary", "h1", "h2", "h3", "h4", "h5", "h6"), "heading"),
    **dict.fromkeys(("tr", "td", "th"), "row"),
    "pre": "code",
}
_LISTS = frozenset(("ul", "ol", "dl"))


class Stretch(NamedTuple):
    """What stands between the tags of two blocks."""

    start: int
    inner: int
    """Where its opening tags and the white space after them end."""

    end: int
    kind: Kind | None
    """What its tags say it is; None if they say nothing."""

    level: int
    """How many lists are open around it."""


def is_tagged(text: str) -> bool:
    """Whether a text has tags that end a block; the mere mention of one in quotes or in code does not count."""
    return "<" in text and _SHUT_TAG.search(text) is not None


def only_shuts(text: str, start: int, end: int) -> bool:
    """Whether `text[start:end]` is nothing but tags that end a block."""
    return text.startswith("</", start) and _SHUTTING.fullmatch(text, start, end) is not None


def between_tags(text: str, start: int, end: int) -> Iterator[Stretch]:
    """The stretches of `text[start:end]`, in order, with nothing but white space between them.

    An opening tag belongs to what follows it, a closing one to what comes before. What is not closed runs to the end: a passage may be cut out of a page.
    """
    depth = 0
    while sign := _SIGN.search(text, start, end):
        start = sign.start()
        opening = _OPENING.match(text, start, end)
        inner = opening.end() if opening else start
        names = _NAME.findall(text[start:inner].lower()) if opening else []
        kind = next((_KINDS[name] for name in reversed(names) if name in _KINDS), "prose" if opening else None)
        border = _ENDS.get(kind, _BORDER).search(text, inner, end)
        stop = border.start() if border else end
        depth += sum(map(_LISTS.__contains__, names))
        level = depth + ("dd" in names)
        if shutting := _SHUTTING.match(text, stop, end):
            stop = shutting.end()
            names = _NAME.findall(shutting.group().lower())
            depth = max(0, depth - sum(map(_LISTS.__contains__, names)))
            kind = kind or _KINDS.get(names[0])
        yield Stretch(start, inner, stop, kind, level)
        start = stop
