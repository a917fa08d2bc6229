"""From a file to its text: what it says, what it is called, which section and page each part belongs to."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from crag_middleware.errors import ConfigError, CRAGError, IngestError
from crag_middleware.knowledge import loaders
from crag_middleware.knowledge.loaders.draft import Draft, check_length
from crag_middleware.knowledge.loaders.encoding import check_encoding
from crag_middleware.stages.blocks import Piece, blocks

MAX_FILE_BYTES = 64 * 2**20
"""A larger file is refused: all of it is in memory while it is read."""

MAX_NAME = 80
"""A longer heading is cut for the path of a section; six of them fit into the field `section`, whatever they are written in."""

MAX_TITLE = 400
"""A longer title is cut; this fits into the field `title`."""

BETWEEN = " > "
"""Stands between the headings of a section's path."""

CSV = "text/csv"
"""The media type of rows of data: records, with an empty line between them."""

_FORMATS = {
    ".txt": ("text", "read", "text/plain"),
    ".text": ("text", "read", "text/plain"),
    ".log": ("text", "read", "text/plain"),
    ".rst": ("text", "read_rst", "text/x-rst"),
    ".md": ("text", "read_markdown", "text/markdown"),
    ".markdown": ("text", "read_markdown", "text/markdown"),
    ".html": ("html", "read", "text/html"),
    ".htm": ("html", "read", "text/html"),
    ".xhtml": ("html", "read", "text/html"),
    ".pdf": ("pdf", "read", "application/pdf"),
    ".docx": ("docx", "read", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ".csv": ("csv", "read", CSV),
    ".tsv": ("csv", "read", CSV),
}
"""By a file name's end: the loader's file, its function, and the media type."""

SUFFIXES = frozenset(_FORMATS)
"""The ends of file names that `load` knows, in small letters: what to look for in a folder."""

_EXTRA = frozenset({"bs4", "docx", "lxml", "pypdf"})

_HEADING = re.compile(r"(?:<[^<>]*>\s*)*?(?:<h([1-6])\b[^<>]*>|(#{1,6})\s)", re.IGNORECASE)
_CHAPTER = re.compile(r"第[^章节\s]+(?:(章)|节)")
_TAGS = re.compile(r"<[^<>]*>")
_DECORATION = "#*_` \t"


@dataclass(frozen=True, slots=True)
class Mark:
    """Which section and page hold from a place of the text on, up to the next mark.

    Attributes:
        start: The place, in characters from 0.
        section: The headings above it, outermost first, as in `Refunds > Abroad`; empty before the first heading. At most 2,048 bytes in UTF-8.
        page: The page, counted from 1; None in formats without pages.
    """

    start: int
    section: str = ""
    page: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document as text.

    Attributes:
        text: All of it. Headings, lists and tables are written as in Markdown, whatever the format was.
        title: What it is called: by itself, else by its file's name; at most 400 characters.
        marks: In the order of their places, the first at 0; empty where the document has neither sections nor pages.
        media_type: Such as `text/markdown`. The text of `text/csv` is records with an empty line between them.
        modified_ms: When the file was last written, in milliseconds since the epoch; None if unknown.
    """

    text: str
    title: str = ""
    marks: tuple[Mark, ...] = ()
    media_type: str = "text/plain"
    modified_ms: int | None = None


def load(path: str | os.PathLike[str], *, encoding: str | None = None) -> Loaded:
    """The text of one file: plain text, reStructuredText, Markdown, HTML, PDF, DOCX or CSV, told by the end of its name.

    Args:
        path: The file, of at most 64 MiB.
        encoding: What a text file is written in, such as `cp1252`; a few broken characters are replaced then. None: it is found out among UTF-8, UTF-16,
            what an HTML page says, and GB18030. PDF and DOCX know it themselves.

    Returns:
        A text that may be blank, of at most 10 million characters.

    Raises:
        ConfigError: The encoding is unknown, or the extra `files` is missing, which HTML, PDF and DOCX need (reason `no_files`).
        IngestError: The file can't be read. The reason says why: `missing`, `unknown_type`, `too_large`, `binary`, `encoding`, `encrypted`, `no_text`
            or `unreadable`. The message names the file, never what is in it.
    """
    check_encoding(encoding)
    file = Path(path)
    suffix = file.suffix.lower()
    try:
        if suffix not in _FORMATS:
            msg = f"a file name that ends in {suffix!r} says nothing about its format; known are {', '.join(sorted(SUFFIXES))}"
            raise IngestError(msg, reason="unknown_type")
        module, function, media_type = _FORMATS[suffix]
        data, modified_ms = _contents(file)
        draft = _read(module, function, data, encoding)
        check_length(len(draft.text))
    except IngestError as error:
        msg = f"{file.name!r} can't be loaded: {error}"
        raise IngestError(msg, reason=error.reason) from None
    headings = [*_headings(draft.text)] if draft.has_headings else []
    title = draft.title or next((name for _, _, name in headings), "") or file.stem
    return Loaded(draft.text, title[:MAX_TITLE], tuple(_marks(headings, draft.pages)), media_type, modified_ms)


def _contents(file: Path) -> tuple[bytes, int]:
    """The file's bytes, and when it was last written."""
    try:
        # Before it is opened, which would wait for whoever writes into a pipe.
        if not stat.S_ISREG(file.stat().st_mode):
            msg = "it is no regular file; give the files of a folder one by one"
            raise IngestError(msg, reason="missing")
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
            modified_ms = os.fstat(stream.fileno()).st_mtime_ns // 1_000_000
    except (OSError, ValueError) as error:
        msg = f"it can't be opened ({type(error).__name__}); check its path and your rights"
        raise IngestError(msg, reason="missing") from None
    if len(data) > MAX_FILE_BYTES:
        msg = f"it has more than {MAX_FILE_BYTES:,} bytes; cut it into several files"
        raise IngestError(msg, reason="too_large")
    return data, modified_ms


def _read(module: str, function: str, data: bytes, encoding: str | None) -> Draft:
    try:
        read = getattr(import_module(f"{loaders.__name__}.{module}"), function)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        msg = f'loading {module.upper()} needs the extra `files`: pip install "crag-middleware[files]"'
        raise ConfigError(msg, reason="no_files") from None
    try:
        draft: Draft = read(data, encoding)
    except CRAGError:
        raise
    except Exception as error:  # noqa: BLE001, damaged files make the parsers raise almost anything, with their content in it
        msg = f"it is damaged, or no {module.upper()} ({type(error).__name__}); open it, save it again and retry"
        raise IngestError(msg, reason="unreadable") from None
    return draft


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Each heading's place, level and name."""
    for block in blocks(text):
        if block.kind == "heading" and (level := _level(text, block)):
            words = _TAGS.sub("", text[block.start : block.end]).partition("\n")[0]
            if name := " ".join(words.strip(_DECORATION).split()):
                yield block.start, level, name


def _level(text: str, heading: Piece) -> int:
    """How deep a heading is, from 1; 0 for a table's caption and the like."""
    if mark := _HEADING.match(text, heading.start, heading.end):
        return int(mark[1] or len(mark[2]))
    if chapter := _CHAPTER.match(text, heading.start, heading.end):
        return 1 if chapter[1] else 2
    return {"=": 1, "-": 2}.get(text[heading.end - 1], 0)


def _marks(headings: list[tuple[int, int, str]], pages: tuple[tuple[int, int], ...]) -> Iterator[Mark]:
    """A mark wherever a section or a page begins."""
    sections: dict[int, str] = {}
    path: list[tuple[int, str]] = []
    for start, level, name in headings:
        while path and path[-1][0] >= level:
            path.pop()
        path.append((level, name[:MAX_NAME]))
        sections[start] = BETWEEN.join(name for _, name in path)
    numbers = dict(pages)
    section, page = "", None
    places = {*sections, *numbers}
    for start in sorted(places | {0} if places else places):
        section, page = sections.get(start, section), numbers.get(start, page)
        yield Mark(start, section, page)
