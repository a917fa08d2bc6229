"""A document's text cut into chunks, which are embedded and found one by one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Protocol

from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.loading import BETWEEN, CSV, Loaded
from crag_middleware.knowledge.units import Unit, record_units, units

DEFAULT_SIZE = 500
DEFAULT_OVERLAP = 50

MIN_SIZE, MAX_SIZE = 50, 16_000
"""In characters. Of the largest chunk, four bytes a character fit into a VARCHAR of 65,535."""

SMALL = 5
"""A section shorter than this part of a chunk does not stand alone."""

_REPEATED = ("prose", "item")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document: `loaded.text[start:end] == text`, with no white space around it.

    Attributes:
        text: The part, word for word.
        start: Where it begins in the document's text, in characters.
        end: Where it ends.
        section: The innermost section that all of it lies in, as in `Refunds > Abroad`; empty if there is none.
        page: The page it begins on, counted from 1; None in formats without pages.
        chunk_index: Its place among the document's chunks, from 0.
    """

    text: str
    start: int
    end: int
    section: str
    page: int | None
    chunk_index: int


class Splitter(Protocol):
    """Any of LangChain's text splitters."""

    def split_text(self, text: str) -> Iterable[str]:
        """The parts of a text, in order."""


def split(loaded: Loaded, *, size: int = DEFAULT_SIZE, overlap: int = DEFAULT_OVERLAP) -> list[Chunk]:
    """The chunks of a document, in order; together they hold all of it but white space.

    A chunk is filled with whole paragraphs, tables, blocks of code and records while they fit; what is longer than a chunk is cut between lines and
    sentences, and only a longer sentence between clauses, then words, Chinese ones by jieba, and at last characters, though never inside one that is
    written with several. A section begins a chunk of its own, unless the one before is short and both fit; a heading or a line that ends with a colon
    stays with what follows.

    Args:
        loaded: What `load` gave.
        size: At most so many characters in a chunk, from 50 to 16,000.
        overlap: Where a section is cut, the next chunk begins with the sentences and list items before the cut that together have at most so many
            characters; none if the last is longer. From 0 to under half of `size`. Rows, records and code are never repeated.

    Returns:
        The same chunks for the same text and numbers; none for a blank text. Takes time in proportion to the text's length.

    Raises:
        ConfigError: `size` or `overlap` is out of range.
    """
    _check("size", size, MIN_SIZE, MAX_SIZE)
    _check("overlap", overlap, 0, (size - 1) // 2)
    found = [*(record_units if loaded.media_type == CSV else units)(loaded.text, size)]
    sections = _sections(found, size)
    return _chunks(loaded, ((found[i].start, found[j - 1].end) for section in sections for i, j in _packed(found, section, size, overlap)))


def split_with(splitter: Splitter, loaded: Loaded) -> list[Chunk]:
    """The chunks that a text splitter of LangChain, or anything with `split_text`, makes of a document.

    Raises:
        ConfigError: It changes the text, so that its parts can't be found again; switch off what strips, prefixes or replaces.
    """
    spans: list[tuple[int, int]] = []
    start = end = 0
    for given in splitter.split_text(loaded.text):
        part = given.strip()
        if not part:
            continue
        start = loaded.text.find(part, max(start, end - len(part) + 1))  # It ends after the part before, which it may overlap.
        if start < 0:
            msg = f"part {len(spans)} of `{type(splitter).__name__}` is not in the text, or not in order; use a splitter that leaves the text as it is"
            raise ConfigError(msg)
        end = start + len(part)
        spans.append((start, end))
    return _chunks(loaded, spans)


def _check(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        limits = f"from {least} to {most:,}" + (", which is under half of `size`" if name == "overlap" else "")
        msg = f"`{name}` must be a whole number of characters {limits}; got {value!r}"
        raise ConfigError(msg)


def _sections(found: Sequence[Unit], size: int) -> Iterator[tuple[int, int]]:
    """The ranges of units that no chunk reaches across: sections, short ones together with the next."""
    starts = [i for i, unit in enumerate(found) if i and unit.kind == "heading" and found[i - 1].kind != "heading"]
    begin = 0
    for start, end in pairwise([*starts, len(found)]):
        is_short = found[start - 1].end - found[begin].start < size / SMALL
        if not is_short or found[end - 1].end - found[begin].start > size:
            yield begin, start
            begin = start
    if found:
        yield begin, len(found)


def _packed(found: Sequence[Unit], section: tuple[int, int], size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """The ranges of units that make the chunks of a section."""
    begin = section[0]
    for first, end in _wholes(found, section, size):
        if found[end - 1].end - found[begin].start > size:
            yield begin, first
            begin = _repeated(found, begin, first, limit=max(found[first - 1].end - overlap, found[end - 1].end - size))
    yield begin, section[1]


def _repeated(found: Sequence[Unit], begin: int, first: int, *, limit: int) -> int:
    """Where the chunk after a cut before `first` begins: with a sentence or item that does not start before `limit`."""
    best = first
    for i in range(first - 1, begin, -1):
        if found[i].kind not in _REPEATED or found[i].start < limit:
            break
        if found[i].begins:
            best = i
    return best


def _wholes(found: Sequence[Unit], section: tuple[int, int], size: int) -> Iterator[tuple[int, int]]:
    """The ranges of units that are better not cut, each no longer than a chunk: paragraphs that fit, with the headings and lead-ins before them."""
    begin, end = section
    starts = [i for i in range(begin + 1, end) if found[i].parts]
    for first, last in pairwise([begin, *starts, end]):
        if found[last - 1].end - found[begin].start <= size:
            if last == end or not found[last - 1].leads:
                yield begin, last
                begin = last
        else:
            if found[first].end - found[begin].start > size:
                yield begin, first
                begin = first
            yield begin, first + 1
            yield from ((i, i + 1) for i in range(first + 1, last))
            begin = last


def _chunks(loaded: Loaded, spans: Iterable[tuple[int, int]]) -> list[Chunk]:
    starts = [mark.start for mark in loaded.marks]
    return [
        Chunk(loaded.text[start:end], start, end, *_place(loaded, bisect_right(starts, start) - 1, start, bisect_left(starts, end)), index)
        for index, (start, end) in enumerate(spans)
    ]


def _place(loaded: Loaded, first: int, start: int, last: int) -> tuple[str, int | None]:
    """The section and the page of a chunk that begins at `start`, under the mark `first`, and has the marks up to `last`."""
    marks = loaded.marks[max(first, 0) : last]
    paths = [mark.section.split(BETWEEN) for mark in marks[-1:]]
    for mark, after in pairwise(marks):
        # A heading directly over another says nothing about the chunk that the other does not.
        is_over = after.section.startswith(mark.section + BETWEEN) and mark.start >= start
        if not (is_over and "\n" not in loaded.text[mark.start : after.start].strip()):
            paths.append(mark.section.split(BETWEEN))
    common = takewhile(lambda names: len({*names}) == 1, zip(*paths, strict=False))
    return BETWEEN.join(names[0] for names in common), marks[0].page if first >= 0 else None
