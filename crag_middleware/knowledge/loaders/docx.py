"""DOCX: the body's headings, paragraphs, lists and tables, in their order."""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import docx
from docx.document import Document
from docx.oxml.ns import qn

from crag_middleware.errors import IngestError
from crag_middleware.knowledge.loaders.draft import Composer, Draft, clean, fold

MAX_XML_BYTES = 32 * 2**20
"""The XML inside may be so large: a parsed tree takes some ten times as much memory, and 10,000 pages of text take less."""

MAX_UNPACKED_BYTES = 128 * 2**20
"""Everything inside, pictures too, may be so large: it is all in memory at once."""

MAX_DEPTH = 20
"""Styles are based on styles and lists stand in lists no deeper."""

_STYLE_LEVEL = re.compile(r"heading (\d)")
_SIGNS = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-", qn("w:p"): "\n"}
_UNSEEN = {qn(f"w:{name}") for name in ("del", "moveFrom", "instrText", "pPr", "sdtPr")} | {
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
}
"""What was taken back, what is no text, and the second form of a drawing."""


def read(data: bytes, encoding: str | None) -> Draft:
    """The document's text; headers, footers, notes and comments are left out.

    Raises:
        IngestError: `too_large`: unpacked, it would not fit into memory; `encrypted`: it has a password.
    """
    _check_size(data)
    document = docx.Document(io.BytesIO(data))
    reader = _Reader(document)
    reader.read(document.element.body)
    return Draft(reader.composer.text, reader.title or reader.composer.first_heading or fold(clean(document.core_properties.title or "")))


def _check_size(data: bytes) -> None:
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        msg = "it is no DOCX but an OLE file: either it has a password, which must be taken off, or it is an old .doc, to be saved as .docx"
        raise IngestError(msg, reason="encrypted")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sizes = [(info.filename.lower(), info.file_size) for info in archive.infolist()]
    for limit, size in (
        (MAX_XML_BYTES, sum(size for name, size in sizes if name.endswith((".xml", ".rels")))),
        (MAX_UNPACKED_BYTES, sum(size for _, size in sizes)),
    ):
        if size > limit:
            msg = f"unpacked, it has {size:,} bytes, at most {limit:,} are read; cut it into several files, or save it without its pictures"
            raise IngestError(msg, reason="too_large")


class _Reader:
    """Walks through a document's body."""

    def __init__(self, document: Document) -> None:
        self.composer = Composer()
        self.title = ""
        self._styles = {style.style_id: style.element for style in document.styles}
        self._formats = _number_formats(document)
        self._numbers: Counter[tuple[str, int]] = Counter()

    def read(self, parent: Any) -> None:
        """Adds the blocks inside an element; content controls and the like are looked through."""
        for element in _within(parent, qn("w:p"), qn("w:tbl")):
            if element.tag == qn("w:tbl"):
                self.composer.table(_rows(element))
            else:
                self._paragraph(element)

    def _paragraph(self, element: Any) -> None:
        text = clean(_text(element)).strip()
        if not text:
            return
        properties = [*self._properties(element)]
        name, level = self._heading(element, properties)
        if name == "title":
            self.title = self.title or fold(text)
        if level:
            self.composer.heading(level, text)
        elif mark := self._mark(properties):
            self.composer.item(fold(text), mark=mark[0], depth=mark[1])
        else:
            self.composer.paragraph(text)

    def _properties(self, element: Any) -> Iterator[Any]:
        """The paragraph's own properties, then those of its style and of what that is based on."""
        own = element.find(qn("w:pPr"))
        if own is not None:
            yield own
        for style in self._bases(_value(own, "w:pStyle")):
            if (of_style := style.find(qn("w:pPr"))) is not None:
                yield of_style

    def _bases(self, style_id: str | None) -> Iterator[Any]:
        for _ in range(MAX_DEPTH):
            style = self._styles.get(style_id)
            if style is None:
                return
            yield style
            style_id = _value(style, "w:basedOn")

    def _heading(self, element: Any, properties: Sequence[Any]) -> tuple[str, int]:
        """The style's name in small letters, if it is one of headings, and the heading's level; 0 if it is none."""
        for style in self._bases(_value(element.find(qn("w:pPr")), "w:pStyle")):
            name = (_value(style, "w:name") or "").lower()
            if name == "title":
                return name, 1
            if match := _STYLE_LEVEL.fullmatch(name):
                return name, int(match[1])
        for each in properties:
            if (level := _value(each, "w:outlineLvl")) is not None:
                return "", (int(level) + 1) % 10  # 9 stands for body text.
        return "", 0

    def _mark(self, properties: Sequence[Any]) -> tuple[str, int] | None:
        """An item's mark and depth; None for a paragraph that is none. Numbers are counted as Word does, other marks become `-`."""
        numbering = [found for each in properties if (found := each.find(qn("w:numPr"))) is not None]
        number = next((value for each in numbering if (value := _value(each, "w:numId")) is not None), "0")
        if number == "0":
            return None
        depth = min(int(next((value for each in numbering if (value := _value(each, "w:ilvl")) is not None), "0")), MAX_DEPTH)
        if self._formats.get((number, depth)) != "decimal":
            return "-", depth
        for deeper in range(depth + 1, MAX_DEPTH):
            self._numbers.pop((number, deeper), None)
        self._numbers[number, depth] += 1
        return f"{self._numbers[number, depth]}.", depth


def _number_formats(document: Document) -> dict[tuple[str, int], str | None]:
    """How each level of each list is numbered."""
    if not any(relation.reltype.endswith("/numbering") for relation in document.part.rels.values()):
        return {}
    numbering = document.part.numbering_part.element
    abstract = {each.get(qn("w:abstractNumId")): each for each in numbering.iterchildren(qn("w:abstractNum"))}
    return {
        (number.get(qn("w:numId")), int(level.get(qn("w:ilvl")))): _value(level, "w:numFmt")
        for number in numbering.iterchildren(qn("w:num"))
        if (base := abstract.get(_value(number, "w:abstractNumId"))) is not None
        for level in base.iterchildren(qn("w:lvl"))
    }


def _rows(table: Any) -> Iterator[Sequence[str]]:
    """The rows' texts; a cell that spans rows is in each of them, so that they can be understood alone."""
    above: dict[int, str] = {}
    for row in _within(table, qn("w:tr")):
        cells: list[str] = []
        for cell in _within(row, qn("w:tc")):
            properties = cell.find(qn("w:tcPr"))
            merge = None if properties is None else properties.find(qn("w:vMerge"))
            continues = merge is not None and merge.get(qn("w:val"), "continue") == "continue"
            text = above.get(len(cells), "") if continues else clean(_text(cell))
            above[len(cells)] = text
            cells += [text, *[""] * (min(int(_value(properties, "w:gridSpan") or 1), MAX_COLUMNS) - 1)]
        yield cells


MAX_COLUMNS = 63
"""Word's tables have no more columns."""


def _within(parent: Any, *tags: str) -> Iterator[Any]:
    """The elements of these kinds that are nearest inside another, in order."""
    waiting = [*reversed(parent)]
    while waiting:
        element = waiting.pop()
        if element.tag in tags:
            yield element
        elif element.tag not in _UNSEEN:
            waiting.extend(reversed(element))


def _text(element: Any) -> str:
    """All that is seen of an element's text, insertions and text boxes included."""
    parts: list[str] = []
    waiting = [element]
    while waiting:
        each = waiting.pop()
        if each.tag == qn("w:t"):
            parts.append(each.text or "")
        elif each.tag in _SIGNS and each is not element:
            parts.append(_SIGNS[each.tag])
        if each.tag in _UNSEEN or (each.tag == qn("w:r") and _is_hidden(each)):
            continue
        waiting.extend(reversed(each))
    return "".join(parts)


def _is_hidden(run: Any) -> bool:
    properties = run.find(qn("w:rPr"))
    vanish = None if properties is None else properties.find(qn("w:vanish"))
    return vanish is not None and vanish.get(qn("w:val"), "1") not in ("0", "false", "off")


def _value(parent: Any, tag: str) -> str | None:
    """The value of a child element; None if there is none."""
    child = None if parent is None else parent.find(qn(tag))
    return None if child is None else child.get(qn("w:val"))
