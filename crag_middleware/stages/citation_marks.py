"""What stands between the brackets of a citation: one number, several, ranges, with or without a word or letter before them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from crag_middleware.types import Origin

MAX_SPAN = 50
"""Sources that one range can name; a longer one is a slip, or no citation."""

_PLAIN = str.maketrans("０１２３４５６７８９ＫＷｋｗ，；：", "0123456789KWkw,;:")
_WORD = r"(?:sources?|refs?|references?|来源|资料|文献|参考资料|参考)"
_ITEM = re.compile(
    rf"{_WORD}?\s?[:#]?\s?(?P<origin>[KWkw])?(?P<first>-?\d{{1,5}})(?:\s?(?:[-‐‑–—−~～至到]|to)\s?(?:[KWkw])?(?P<last>\d{{1,5}}))?",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"\s*[,、;]\s*(?:and\s|和\s?)?|\s*&\s*|\s+(?:and\s)?|\s?和\s?")
_NOTE = re.compile(r"\s*†.*")
_YEAR = re.compile(r"1[5-9]\d\d|20\d\d|21\d\d")


@dataclass(frozen=True, slots=True)
class Mark:
    """One entry of a citation.

    Attributes:
        written: The entry as it stands.
        before: What parts it from the one before it.
        origin: The origin that a letter names; None without one.
        first: The number, or the first of a range.
        last: The last of a range; the number again where it is none.
    """

    written: str
    before: str
    origin: Origin | None
    first: int
    last: int

    def numbers(self, sources: Mapping[int, Origin]) -> tuple[int, ...]:
        """The sources that it names, of those that exist; none if it is a range that can't be meant."""
        if not 0 <= self.last - self.first < MAX_SPAN:
            return ()
        wanted = range(self.first, self.last + 1)
        if self.origin is None or any(sources.get(number) == self.origin for number in wanted):
            return tuple(n for n in wanted if n in sources and self.origin in (None, sources[n]))
        of_its_kind = [number for number, origin in sorted(sources.items()) if origin == self.origin]
        return tuple(of_its_kind[place - 1] for place in wanted if 1 <= place <= len(of_its_kind))

    def exists(self, sources: Mapping[int, Origin]) -> bool:
        """Whether there is a source for every number that it names."""
        return 0 <= self.last - self.first < MAX_SPAN and len(self.numbers(sources)) == self.last - self.first + 1


def read_marks(inside: str) -> tuple[Mark, ...]:
    """The entries of a citation; none if it is something else: words, a year, an interval that begins at 0."""
    plain = _NOTE.sub("", inside.translate(_PLAIN))
    begin = len(plain) - len(plain.lstrip())
    end = len(plain.rstrip())
    marks: list[Mark] = []
    place, before = begin, ""
    while found := _ITEM.match(plain, place, end):
        first, last = int(found["first"]), int(found["last"] or found["first"])
        origin: Origin | None = {"k": "knowledge", "w": "web"}.get((found["origin"] or "").lower())  # type: ignore[assignment]
        marks.append(Mark(inside[place : found.end()], before, origin, first, last))
        place = found.end()
        if place == end:
            break
        parted = _SEPARATOR.match(plain, place, end)
        if parted is None or parted.end() == place:
            return ()
        before, place = inside[place : parted.end()], parted.end()
    if place != end or not marks or (len(marks) > 1 and marks[0].first <= 0):
        return ()
    return () if any(_YEAR.fullmatch(str(mark.first)) for mark in marks) else tuple(marks)


def surviving(marks: tuple[Mark, ...], sources: Mapping[int, Origin]) -> str:
    """The entries that name sources, written as they were, a range that reaches beyond them as far as it goes; empty if none does."""
    kept = ""
    for mark in marks:
        numbers = mark.numbers(sources)
        if not numbers:
            continue
        written = mark.written if mark.exists(sources) else ",".join(map(str, numbers))
        kept += (mark.before or ",") + written if kept else written
    return kept
