"""HTML: what a reader of the page sees, without its scripts, styles and menus."""

import re
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from typing import cast

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, Tag

from crag_middleware.knowledge.loaders.draft import Composer, Draft, clean, fold
from crag_middleware.knowledge.loaders.encoding import decode

import_module("lxml")  # Whoever lacks the parser that BeautifulSoup is asked for is told so by its name.

_LEFT_OUT = frozenset(
    {"title", "script", "style", "nav", "template", "noscript", "svg", "iframe", "canvas", "object", "select", "textarea"}
)
_BLOCKS = frozenset(
    """
    html body main article section header footer aside div p h1 h2 h3 h4 h5 h6 ul ol menu dl dt dd li blockquote figure figcaption address form
    fieldset details summary hr table caption thead tbody tfoot tr td th
    """.split()  # noqa: SIM905, a list of words reads better as text
)
_HEADING = re.compile(r"h([1-6])")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_NO_DATA = frozenset({"table", "h1", "h2", "h3", "h4", "h5", "h6", "pre"})
"""A table that holds one of these lays out a page."""

_LISTS = ("ul", "ol", "menu", "dl")

_BREAK = "\v"
"""Stands for `<br>` until white space is folded; no clean text holds it."""

MAX_DEPTH = 10
"""Items are indented no further."""

MAX_COLUMNS, MAX_ROWS = 1000, 65_534
"""A cell may span so many. Source: HTML Standard, section 4.9.11, attributes of td and th."""


def read(data: bytes, encoding: str | None) -> Draft:
    """The page's text; its encoding by the caller, its byte order mark, or itself."""
    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    # Not `html.parser`, which takes quadratic time over unclosed comments and nests what nobody closed.
    page = BeautifulSoup(clean(decode(data, encoding, declared=declared)), "lxml")
    title = page.title
    return Draft(_text(page, _layouts(page)), fold(title.get_text()) if title else "")


def _text(root: Tag, layouts: Collection[int] = ()) -> str:
    reader = _Reader(layouts)
    reader.read(root)
    return reader.composer.text


def _layouts(page: Tag) -> Collection[int]:
    """Which tables lay out the page, by identity: in one walk, since a look into each would take quadratic time where they are nested."""
    found: set[int] = set()
    tables: list[Tag] = []
    open_tags = [(page, iter(page.children))]
    while open_tags:
        tag, children = open_tags[-1]
        child = next(children, None)
        if child is None:
            open_tags.pop()
            if tables and tables[-1] is tag:
                tables.pop()
        elif isinstance(child, Tag):
            if tables and child.name in _NO_DATA:
                found.add(id(tables[-1]))
            if child.name == "table":
                tables.append(child)
            open_tags.append((child, iter(child.children)))
    return found


class _Reader:
    """Walks through a page without recursion: pages may be nested deeper than Python allows."""

    def __init__(self, layouts: Collection[int]) -> None:
        self.composer = Composer()
        self._layouts = layouts
        self._words: list[str] = []
        self._lists: list[int | None] = []  # The last number of each open list; None where items have none.
        self._mark: str | None = None  # Of the item that was opened and has no text yet.

    def read(self, root: Tag) -> None:
        """Adds the text of everything under a tag."""
        open_tags = [(root, iter(root.children))]
        while open_tags:
            tag, children = open_tags[-1]
            child = next(children, None)
            if child is None:
                self._leave(tag)
                open_tags.pop()
            elif isinstance(child, Tag):
                if child.name not in _LEFT_OUT and not _is_hidden(child) and not self._take(child):
                    self._enter(child)
                    open_tags.append((child, iter(child.children)))
            elif type(child) is NavigableString:  # Not a comment, a declaration or another of its subclasses.
                self._words.append(child)

    def _take(self, tag: Tag) -> bool:
        """Whether a tag was read as a whole."""
        if tag.name == "br":
            self._words.append(_BREAK)
        elif tag.name == "pre":
            self._flush()
            self.composer.code(tag.get_text())
        elif tag.name == "table" and id(tag) not in self._layouts:
            self._flush()
            if caption := tag.find("caption"):
                self.composer.paragraph(fold(caption.get_text()))
            self.composer.table(_rows(tag))
        else:
            return False
        return True

    def _enter(self, tag: Tag) -> None:
        if tag.name not in _BLOCKS:
            return
        self._flush()
        if tag.name in _LISTS:
            self._lists.append(_number(tag.get("start"), 1, 10**6) - 1 if tag.name == "ol" else None)
        elif tag.name in ("li", "dt", "dd"):
            self._mark = "-"
            if self._lists and (last := self._lists[-1]) is not None:
                self._lists[-1] = last + 1
                self._mark = f"{last + 1}."

    def _leave(self, tag: Tag) -> None:
        if heading := _HEADING.fullmatch(tag.name):
            self.composer.heading(int(heading[1]), self._flushed().removesuffix("¶"))
        elif tag.name in _BLOCKS or tag.parent is None:
            self._flush()
            if self._lists and tag.name in _LISTS:
                self._lists.pop()
            elif tag.name in ("li", "dt", "dd"):
                self._mark = None

    def _flush(self) -> None:
        """Adds the words read so far as a block."""
        text = self._flushed()
        if not text:
            return
        if self._mark:
            self.composer.item(text, mark=self._mark, depth=min(max(0, len(self._lists) - 1), MAX_DEPTH))
            self._mark = None
        else:
            self.composer.paragraph(text)

    def _flushed(self) -> str:
        lines = map(fold, "".join(self._words).split(_BREAK))
        self._words.clear()
        return "\n".join(filter(None, lines))


def _is_hidden(tag: Tag) -> bool:
    return tag.has_attr("hidden") or _HIDDEN.search(cast(str, tag.get("style", ""))) is not None


def _rows(table: Tag) -> Iterator[Sequence[str]]:
    """The rows' texts; a cell that spans rows is in each of them, so that they can be understood alone."""
    spanning: dict[int, tuple[int, str]] = {}  # By column: for how many more rows, and the text.
    cells: list[str] = []
    for tag in table.find_all(["tr", "td", "th"]):
        if tag.name == "tr":
            yield cells
            cells = []
        _span(cells, spanning)
        if tag.name != "tr":
            text = "" if _is_hidden(tag) or (tag.parent and _is_hidden(tag.parent)) else _text(tag)
            if (rows := _number(tag.get("rowspan"), 1, MAX_ROWS)) > 1:
                spanning[len(cells)] = rows - 1, text
            cells += [text, *[""] * (_number(tag.get("colspan"), 1, MAX_COLUMNS) - 1)]
            _span(cells, spanning)
    yield cells


def _span(cells: list[str], spanning: dict[int, tuple[int, str]]) -> None:
    """Adds the cells that reach into a row from above, where they are next."""
    while left := spanning.pop(len(cells), None):
        rows, text = left
        if rows > 1:
            spanning[len(cells)] = rows - 1, text
        cells.append(text)


def _number(value: object, least: int, most: int) -> int:
    """What an attribute says, within bounds; the least if it says nothing."""
    text = str(value).strip()
    return min(max(int(text), least), most) if text.isdecimal() and len(text) < 10 else least
