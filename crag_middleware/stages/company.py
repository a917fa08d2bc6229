"""What must come along with a strip, lest it say something else: what it refers to, what announces it, what takes something back from it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from crag_middleware.stages.sentences import Piece, last_sign, pieces
from crag_middleware.types import Strip, StripReason

MAX_BACK = 3
"""How many strips back, or on, a reference from sentence to sentence is followed."""

MAX_OPENED = 8
"""How many list items, table rows or headings come along with the line that announces them."""

_PREFIX = r"[\"'“‘(（*_~>\s]*+"
_LEANS = re.compile(
    _PREFIX
    + r"(?:(?:it|its|this|that|these|those|they|their|he|she|his|her|such|both|neither|the (?:former|latter|same|above)|in (?:this|that|such) case|"
    r"however|but|and|or|nor|so|yet|still|otherwise|therefore|thus|hence|instead|moreover|furthermore|also|additionally|in addition|similarly|"
    r"except(?:ions?)?|excluding|unless|only|provided|if (?:so|not))\b|"
    r"[该其它他她此这那](?![他它])|上述|以上|前者|后者|但|不过|然而|而|并且|且|否则|因此|所以|另外|此外|同时|对此|届时|除|仅|只有|例外|则)",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(
    r"except|unless|exclud|exempt|other than|only (?:if|when|for)|provided that|as long as|subject to|"
    r"(?:not|n't) apply|not (?:include|cover|valid|available|eligible)|"
    r"除外|例外|除非|不适用|不包括|不包含|不含|不在此|仅限|只有|前提"
)
"""A sign of an exception anywhere in a strip, in small letters: `re.IGNORECASE` would take several times as long."""

_TAKES_BACK = re.compile(_PREFIX + r"(?:(?:but|however|otherwise|only|if not)\b|但|不过|然而|否则|除|仅)", re.IGNORECASE)
_NEGATION = re.compile(r"\b(?:not|never|no|without|cannot)\b|n't\b|[不没无未勿非]", re.IGNORECASE)
_RESTRICTION = re.compile(_NEGATION.pattern + r"|\b(?:if|when|until|must)\b|若|如果|必须|须", re.IGNORECASE)
_DELIMITER = re.compile(r"[|\s:+=-]+")
_STOPS = "。！？｡!?….；;:："
_LINE_BREAK = re.compile(r"[\n\r]")


@dataclass(frozen=True, slots=True)
class Page:
    """A text with its strips, which knows what stands beside what."""

    text: str
    pieces: Sequence[Piece]
    strips: Sequence[str]
    signs: Sequence[str]
    """The last sign of each strip, which tells most of what it needs."""

    @classmethod
    def of(cls, text: str) -> "Page":
        """The text, cut into strips."""
        cut = pieces(text)
        strips = [text[start:end] for start, end, _ in cut]
        return cls(text, cut, strips, list(map(last_sign, strips)))

    def complete(self, picked: Sequence[int], worth: Sequence[float]) -> tuple[Strip, ...]:
        """The picked strips with all that must come along, in document order; each knows why it is there, and which ones it must not be parted from.

        Args:
            picked: Numbers of strips, the best first.
            worth: How much each strip bears on the question; 0 or less for not at all.
        """
        kept = _Kept({})
        for i in picked:
            kept.add(i, self.leaned_on(i), "context")
        for i in picked:
            self._open(i, kept)
        self._restrict(kept, worth)
        kept.why.update(dict.fromkeys(picked, "chosen"))
        return tuple(self.strip(i, worth[i], kept.why[i], kept.unit(i)) for i in sorted(kept.why))

    def strip(self, i: int, worth: float | None = None, why: StripReason = "chosen", unit: int | None = None) -> Strip:
        """Strip `i` as it travels on."""
        return Strip(self.strips[i], self.pieces[i].start, self.pieces[i].end, worth=worth, why=why, unit=unit)

    def leaned_on(self, i: int) -> set[int]:
        """Strip `i` and all that it needs to be understood."""
        needed, fresh = {i}, [i]
        for _ in range(MAX_BACK):
            if not fresh:
                break
            fresh = [j for k in fresh for j in self._needs(k) if j not in needed]
            needed.update(fresh)
        return needed

    def _needs(self, i: int) -> Iterator[int]:
        """The strips without which strip `i` alone would mislead."""
        kind = self.pieces[i].kind
        if kind == "row":
            top = i
            while top > 0 and self.pieces[top - 1].kind == "row":
                top -= 1
            yield top
            if top + 1 < i and _DELIMITER.fullmatch(self.strips[top + 1]):
                yield top + 1
        elif kind == "item":
            above = i - 1
            while above >= 0 and self.pieces[above].kind == "item" and self._indent(above) >= self._indent(i):
                above -= 1
            if above >= 0 and (above == i - 1 or self._announces(above) or self._gap(above + 1).count("\n") < 2):
                yield above
        if i and (
            self.pieces[i - 1].kind == "heading" or self._announces(i - 1) or self._breaks_off(i - 1) or _LEANS.match(self.strips[i])
        ):
            yield i - 1
        if self._breaks_off(i):
            yield i + 1

    def _open(self, i: int, kept: "_Kept") -> None:
        """Keep what strip `i` announces, unless some of it is kept already: list items, table rows, the text under a heading, an answer."""
        end = i + 1
        if end == len(self.pieces):
            return
        kind, below = self.pieces[i].kind, self.pieces[end].kind
        is_header = kind == below == "row" and (i == 0 or self.pieces[i - 1].kind != "row")
        if is_header or (self._announces(i) and below == "item"):
            while end < len(self.pieces) and end - i <= MAX_OPENED and self.pieces[end].kind == below:
                end += 1
        elif kind == "heading" or self._announces(i) or self.signs[i] in "?？":
            end += 1
            while end < len(self.pieces) and end - i <= MAX_OPENED and self.pieces[end - 1].kind == "heading":
                end += 1
        opened = range(i + 1, end)
        if kept.why.keys().isdisjoint(opened):
            kept.add(i, opened, "context")

    def _restrict(self, kept: "_Kept", worth: Sequence[float]) -> None:
        """Keep what takes something back from a kept strip, directly after it or after strips that refer to it."""
        before = frozenset(kept.why)
        between: list[int] | None = None
        for i in range(1, len(self.strips)):
            if i - 1 in kept.why:
                between = []
            if between is None or i in kept.why:
                continue
            # Exceptions may follow exceptions; a mere continuation may not follow another, or a page of them would be kept whole.
            if self._restricts(i, worth[i] if i - 1 in before else 0.0):
                kept.add(i - 1 - len(between), (*between, i), "limits")
                self._open(i, kept)
            elif len(between) < MAX_BACK and _LEANS.match(self.strips[i]):
                between.append(i)
            else:
                between = None

    def _restricts(self, i: int, worth: float) -> bool:
        """Whether strip `i` changes what the one before it says: an exception, or a negation, a condition or a continuation on the same matter."""
        strip = self.strips[i]
        if self.pieces[i].kind not in ("prose", "item"):
            return False
        if _EXCEPTION.search(strip.lower()) or _TAKES_BACK.match(strip):
            return True
        leans = _LEANS.match(strip) is not None
        if worth > 0:
            return leans or _RESTRICTION.search(strip) is not None
        return leans and _NEGATION.search(strip) is not None

    def _announces(self, i: int) -> bool:
        return self.signs[i] in ":："

    def _breaks_off(self, i: int) -> bool:
        """Whether strip `i` is the beginning of a sentence too long for one strip."""
        return i + 1 < len(self.pieces) and self.signs[i] not in _STOPS and not _LINE_BREAK.search(self._gap(i + 1))

    def _gap(self, i: int) -> str:
        """What stands between strip `i` and the one before it."""
        return self.text[self.pieces[i - 1].end : self.pieces[i].start]

    def _indent(self, i: int) -> int:
        start = self.pieces[i].start
        return start - self.text.rfind("\n", 0, start)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Strips that are kept: why, and which of them belong together."""

    why: dict[int, StripReason]
    _above: dict[int, int] = field(default_factory=dict)
    """A strip of the same unit, up to the unit's first one, which is not in here."""

    def add(self, i: int, others: Iterable[int], why: StripReason) -> None:
        """Keep strips that must not be parted from strip `i`."""
        self.why.setdefault(i, why)
        for other in others:
            self.why.setdefault(other, why)
            first, second = sorted((self.unit(i), self.unit(other)))
            if first != second:
                self._above[second] = first

    def unit(self, i: int) -> int:
        """The first strip of those that strip `i` belongs to."""
        while i in self._above:
            i = self._above[i]
        return i
