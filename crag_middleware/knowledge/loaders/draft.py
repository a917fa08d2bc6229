"""What the reader of every format makes: a text with headings, lists and tables as in Markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crag_middleware.errors import IngestError
from crag_middleware.stages.stops import HAN

MAX_TEXT_CHARS = 10_000_000
"""A longer text is refused: about 5,000 pages, which take a few hundred megabytes of memory while they are cut and embedded."""

_BREAKS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u200b\u2060\ufeff\ud800-\udfff]")
"""Control characters, soft hyphens, spaces without width, lone surrogates. Joiners stay: emoji and some scripts are written with them."""

_WIDE = f"{HAN}，。！？；：、（）《》「」『』【】“”‘’…—"
_WIDE_BREAK = re.compile(rf"(?<=[{_WIDE}])[ \t]*\n\s*(?=[{_WIDE}])")


@dataclass(frozen=True, slots=True)
class Draft:
    """A document as its reader leaves it.

    Attributes:
        text: All of it, `clean`.
        title: What the document calls itself; empty if it does not say.
        pages: Where each page with text begins, and its number from 1; empty in formats without pages.
        has_headings: Whether lines that look like headings are some; in rows of data they are not.
    """

    text: str
    title: str = ""
    pages: tuple[tuple[int, int], ...] = ()
    has_headings: bool = True


def clean(text: str) -> str:
    """The text with line feeds for every kind of line break, and without characters that nobody sees."""
    return _UNSEEN.sub("", _BREAKS.sub("\n", text))


def fold(text: str) -> str:
    """The text in one line; a line break between Chinese characters leaves no space."""
    return " ".join(_WIDE_BREAK.sub("", text).split())


class Composer:
    """Puts a document's text together, block by block, and refuses to make it longer than `MAX_TEXT_CHARS`."""

    def __init__(self) -> None:
        self.first_heading = ""
        self._parts: list[str] = []
        self._chars = 0
        self._in_list = False

    @property
    def text(self) -> str:
        """What was put together so far."""
        return "".join(self._parts)

    def heading(self, level: int, text: str) -> None:
        """A heading; a level above 6 counts as 6."""
        if text := fold(text):
            self.first_heading = self.first_heading or text
            self._begin()
            self._put(f"{'#' * min(level, 6)} {text}")

    def paragraph(self, text: str) -> None:
        """A paragraph as it is."""
        if text:
            self._begin()
            self._put(text)

    def item(self, text: str, *, mark: str = "-", depth: int = 0) -> None:
        """A list's item; those in a row form one list."""
        if text:
            self._begin(tight=self._in_list)
            self._in_list = True
            self._put(f"{'  ' * depth}{mark} {text}")

    def code(self, text: str) -> None:
        """Text that is kept as it is, in a fence longer than any inside."""
        if text.strip():
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
            self._begin()
            self._put(f"{fence}\n{text.strip(chr(10))}\n{fence}")

    def table(self, rows: Iterable[Sequence[str]]) -> None:
        """A table whose first row is its header; rows without a word are left out, and a table of one column is a list of paragraphs."""
        full = ([fold(cell).replace("|", r"\|") for cell in row] for row in rows)
        full = (cells for cells in full if any(cells))
        header = next(full, None)
        if header is None:
            return
        if len(header) == 1:
            self.paragraph(header[0])
        else:
            self._begin()
            self._put(_row(header))
            self._put(f"\n|{' --- |' * len(header)}")
        for cells in full:
            if len(header) == len(cells) == 1:
                self.paragraph(cells[0])
            else:
                self._put(f"\n{_row(cells)}")

    def _begin(self, *, tight: bool = False) -> None:
        self._in_list = False
        if self._parts:
            self._put("\n" if tight else "\n\n")

    def _put(self, text: str) -> None:
        self._chars += len(text)
        check_length(self._chars)
        self._parts.append(text)


def check_length(chars: int) -> None:
    """Refuses a text of so many characters if that is too long.

    Raises:
        IngestError: With reason `too_large`.
    """
    if chars > MAX_TEXT_CHARS:
        msg = f"its text is longer than {MAX_TEXT_CHARS:,} characters; cut it into several files"
        raise IngestError(msg, reason="too_large")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
