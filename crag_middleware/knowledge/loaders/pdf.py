"""PDF: the text of its pages, with lines put together again that the page's width broke."""

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pypdf import PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError

from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import IngestError
from crag_middleware.knowledge.loaders.draft import Draft, check_length, clean, fold
from crag_middleware.stages.blocks import blocks
from crag_middleware.stages.stops import HAN, TAIL_CHARS

FULL_LINE = 0.7
"""A line may go on in the next one if it reaches this share of the width that a tenth of all lines reach; a table's rows seldom do."""

MIN_REPEATS = 3
"""A line at the edge of so many pages, and of half of all, is a running head or foot."""

EDGE_LINES = 2
"""How many lines at the top and at the bottom of a page may be running heads and feet."""

_ODD_FORMS = re.compile("[\u2e80-\u2fdf\ufb00-\ufb06]")
"""Radicals that fonts give instead of characters, and ligatures: no search finds a word with one."""

_SOFT_HYPHEN = re.compile("[\xad\u2010](?=\\s*\n)")
_DIGITS = re.compile(r"\d{1,6}")
_HAN = re.compile(f"[{HAN}]")
_HAN_SEAM = re.compile(rf"[{HAN}，。；：、？！）】》”…—][{HAN}（【《“…—]")
_NUMBER = re.compile(r"(?<!\S)[-+(]?[$€£¥]?\d[\d.,]*%?\)?(?!\S)")
_BROKEN_WORD = re.compile(r"([^\W\d_]+)-\n([^\W\d_]+)")
_COMPOUND = re.compile(r"(?<![^\W\d_])[^\W\d_]++-[^\W\d_]+")
_NO_TITLE = re.compile(r"untitled|无标题|microsoft word - .*|.*\.(?:docx?|pdf|tex|dvi|indd|pptx?)", re.IGNORECASE)
"""What programs write where the author gave no title."""


_Edge = tuple[int, str] | tuple[int, str, int, str]


class _Line(NamedTuple):
    text: str
    page: int


def read(data: bytes, encoding: str | None) -> Draft:
    """The document's text, page after page.

    Raises:
        IngestError: `encrypted`: it opens with a password only; `no_text`: its pages are pictures, or empty.
    """
    try:
        with redacted_logs():  # What is wrong with a file is logged with what stands there.
            reader = PdfReader(io.BytesIO(data))
            if reader.is_encrypted and not reader.decrypt(""):
                raise FileNotDecryptedError
            pages = _pages(reader)
            title = reader.metadata.title if reader.metadata else None
    except (FileNotDecryptedError, DependencyError):
        msg = "it is encrypted; save it without its password (or, if it opens without one: pip install cryptography)"
        raise IngestError(msg, reason="encrypted") from None
    text, starts = _joined(_without_running_lines(pages))
    if not text:
        msg = f"none of its {len(pages)} pages holds text: they are empty, or pictures; run text recognition (OCR) on it first"
        raise IngestError(msg, reason="no_text")
    title = fold(clean(str(title or "")))
    return Draft(text, "" if _NO_TITLE.fullmatch(title) else title, starts)


def _pages(reader: PdfReader) -> list[list[str]]:
    """Each page's lines that are not blank."""
    pages: list[list[str]] = []
    chars = 0
    for page in reader.pages:
        text = _SOFT_HYPHEN.sub("-", page.extract_text())
        text = _ODD_FORMS.sub(lambda form: unicodedata.normalize("NFKC", form.group()), clean(text))
        chars += len(text)
        check_length(chars)
        pages.append([line for line in map(str.strip, text.split("\n")) if line])
    return pages


def _without_running_lines(pages: Sequence[Sequence[str]]) -> list[_Line]:
    """All lines, but for those that stand at the same edge of most pages: of equal ones the first stays, of those that count the pages none."""

    def edges(number: int) -> dict[int, tuple[_Edge, set[_Edge]]]:
        lines = pages[number - 1]
        places = range(-EDGE_LINES, EDGE_LINES) if len(lines) > 2 * EDGE_LINES else ()
        return {place % len(lines): ((place, lines[place]), _counted(place, lines[place], number)) for place in places}

    at_edges = {number: edges(number) for number in range(1, len(pages) + 1)}
    counts = Counter(edge for found in at_edges.values() for line, counted in found.values() for edge in (line, *counted))
    least = max(MIN_REPEATS, len(pages) / 2)
    gone: set[_Edge] = {edge for edge, count in counts.items() if count >= least and len(edge) > 2}
    found: list[_Line] = []
    for number, lines in enumerate(pages, 1):
        for i, text in enumerate(lines):
            line, counted = at_edges[number].get(i, ((i, text), set()))
            if line not in gone and gone.isdisjoint(counted):
                found.append(_Line(text, number))
            if counts[line] >= least:
                gone.add(line)
    return found


def _counted(place: int, line: str, page: int) -> set[_Edge]:
    """The line with its first or last number as its distance from the page's: the same on every page if that is what it counts."""
    numbers = [*_DIGITS.finditer(line)]
    return {(place, line[: number.start()], int(number.group()) - page, line[number.end() :]) for number in (*numbers[:1], *numbers[-1:])}


def _joined(lines: Sequence[_Line]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text, and where each page begins in it."""
    raw = "\n".join(line.text for line in lines)
    inner = _inner_breaks(raw)
    compounds = frozenset(match.group().lower() for match in _COMPOUND.finditer(raw))
    widths = sorted(_width(line.text) for line in lines)
    full = FULL_LINE * widths[len(widths) * 9 // 10] if lines else 0
    parts: list[str] = []
    starts: list[tuple[int, int]] = []
    length = 0
    for i, line in enumerate(lines):
        between = "\n" if i else ""
        before = lines[i - 1].text
        is_full = _width(before) >= full and not _is_row(before) and not _is_row(line.text)
        if i in inner and (is_full or before.endswith("-")):
            between, is_cut = _seam(before, line.text, compounds)
            parts[-1] = parts[-1][: len(parts[-1]) - is_cut]
            length -= is_cut
        if not starts or line.page != starts[-1][1]:
            starts.append((length + len(between), line.page))
        parts.append(between + line.text)
        length += len(parts[-1])
    return "".join(parts), tuple(starts)


def _inner_breaks(text: str) -> frozenset[int]:
    """The lines, counted from 0, that go on a paragraph or an item of the line before."""
    found: set[int] = set()
    number = position = 0
    for block in blocks(text):
        number += text.count("\n", position, block.start)
        breaks = text.count("\n", block.start, block.end)
        if block.kind in ("prose", "item"):
            found.update(range(number + 1, number + breaks + 1))
        number += breaks
        position = block.end
    return frozenset(found)


def _seam(before: str, after: str, compounds: frozenset[str]) -> tuple[str, bool]:
    """What comes between two lines of running text, and whether the hyphen at the first one's end goes."""
    if (hyphen := _BROKEN_WORD.search(f"{before[-TAIL_CHARS:]}\n{after[:TAIL_CHARS]}")) and hyphen[2].islower():
        return "", f"{hyphen[1]}-{hyphen[2]}".lower() not in compounds
    return "" if _HAN_SEAM.fullmatch(before[-1] + after[0]) else " ", False


def _is_row(line: str) -> bool:
    """Whether a line looks like a table's row: it has two numbers that stand alone."""
    return len(_NUMBER.findall(line)) > 1


def _width(line: str) -> int:
    """In columns: Chinese characters take two."""
    return len(line) + len(_HAN.findall(line))
