"""What must come along with a strip, lest it say something else: what it refers to, what announces it, what takes something back from it."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from crag_middleware.stages.blocks import Piece
from crag_middleware.stages.outline import Outline, outline
from crag_middleware.stages.sentences import pieces
from crag_middleware.stages.stops import last_sign
from crag_middleware.types import Strip, StripReason

MAX_BACK = 3
"""How many strips back, or on, a reference from sentence to sentence is followed."""

MAX_OPENED = 8
"""How many list items, table rows or headings come along with the line that announces them, and exceptions in a row with their rule."""

_PREFIX = r"(?:[\"'“‘(（*_~>\s]|<[^<>]{0,200}>|[-+•·]\s|\d{1,3}[.)、]\s?)*+"
_LEANS = re.compile(
    _PREFIX
    + r"(?:(?:it|its|this|that|these|those|they|their|them|he|she|his|her|such|both|neither|the (?:former|latter|same|above|rest|others?)|"
    r"(?:all|any|every|the) others?|everything else|in (?:this|that|such) cases?|"
    r"however|but|and|or|nor|so|yet|still|then|otherwise|therefore|thus|hence|instead|moreover|furthermore|also|additionally|in addition|similarly|"
    r"likewise|conversely|nevertheless|nonetheless|consequently|accordingly|meanwhile|afterwards|as (?:such|a result)|(?:in|by) contrast|"
    r"on the (?:other hand|contrary)|in other words|that is|for (?:example|instance)|note that|"
    r"except(?:ions?)?|excluding|unless|only|provided|if (?:so|not))\b|"
    r"[该其它他她此这那](?![他它])|其他情(?:况|形)|其它情(?:况|形)|上述|以上|前述|前者|后者|[两二]者|双方|但|不过|然而|可是|而|并且|且|否则|因此|所以|因而|于是|由此|为此|"
    r"另外|另有|此外|同时|同样|同年|次年|当年|当时|随后|后来|之后|对此|届时|例如|比如|相反|反之|换言之|尽管如此|也就是说|注意?[：:]|除|仅|只有|只能|例外|则)",
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
_CONDITION = re.compile(
    _PREFIX + r"(?:(?:if|when|whenever|where|once|unless|provided|in case)\b|如|若|当|凡|一旦|倘若|假如|除非)", re.IGNORECASE
)
_THEN = re.compile(_PREFIX + r"(?:then\b|则|那么|就)", re.IGNORECASE)
_FOLLOWS = re.compile(r"\bfollow(?:s|ing)\b|\bbelow\b|以下|如下|下列|下述")
_STOPS = "。！？｡!?….；;:："


@dataclass(frozen=True, slots=True)
class Page:
    """A text with its strips, which knows what stands beside what."""

    text: str
    pieces: Sequence[Piece]
    strips: Sequence[str]
    signs: Sequence[str]
    """The last sign of each strip, which tells most of what it needs."""

    outline: Outline

    @classmethod
    def of(cls, text: str) -> "Page":
        """The text, cut into strips."""
        cut = pieces(text)
        strips = [text[start:end] for start, end, *_ in cut]
        signs = list(map(last_sign, strips))
        return cls(text, cut, strips, signs, outline(text, cut, strips, signs))

    def complete(self, picked: Sequence[int], worth: Sequence[float], *, akin: Collection[int] | None = None) -> tuple[Strip, ...]:
        """The picked strips with all that must come along, in document order; each knows why it is there, and which ones it must not be parted from.

        Args:
            picked: Numbers of strips, the best first.
            worth: How much each strip bears on the question; 0 or less for not at all.
            akin: Numbers of the strips that are on the question's matter, chosen or not; those worth anything, if not given.
        """
        kept = _Kept({})
        for i in picked:
            kept.add(i, self.leaned_on(i), "context")
        for i in picked:
            self._open(i, kept)
        self._restrict(kept, frozenset(i for i, value in enumerate(worth) if value > 0) if akin is None else frozenset(akin))
        kept.why.update(dict.fromkeys(picked, "chosen"))
        return tuple(self.strip(i, worth[i], kept.why[i], kept.unit(i)) for i in sorted(kept.why))

    def strip(self, i: int, worth: float | None = None, why: StripReason = "chosen", unit: int | None = None) -> Strip:
        """Strip `i` as it travels on."""
        return Strip(self.strips[i], self.pieces[i].start, self.pieces[i].end, worth=worth, why=why, unit=unit)

    def leaned_on(self, i: int) -> set[int]:
        """Strip `i` and all that it needs to be understood."""
        needed = fresh = {i}
        for _ in range(MAX_BACK):
            fresh = {j for k in fresh for j in self._needs(k)} - needed
            if not fresh:
                break
            needed = needed | fresh
        return needed

    def followed_by(self, i: int) -> set[int]:
        """The strips that strip `i` may bring along from behind: what it announces, and what takes something back from it; rather one too many."""
        kept = _Kept({i: "chosen"})
        self._open(i, kept)
        for j in range(i + 1, min(i + 1 + MAX_OPENED, len(self.strips))):
            if j in kept.why:
                continue
            if not self._restricts(j, akin=True):
                break
            kept.add(i, (j,), "limits")
            self._open(j, kept)
        return {*kept.why, self.outline.under.get(i, i)}

    def _needs(self, i: int) -> Iterator[int]:
        """The strips without which strip `i` alone would mislead."""
        yield from self.outline.above(i)
        if i and (
            self.pieces[i - 1].kind == "heading"
            or self.signs[i - 1] in ":：?？"
            or self._breaks_off(i - 1)
            or (_TAKES_BACK if self.pieces[i].kind == "item" else _LEANS).match(self.strips[i])
        ):
            yield i - 1
        if self._breaks_off(i) or (i + 1 < len(self.strips) and _CONDITION.match(self.strips[i]) and _THEN.match(self.strips[i + 1])):
            yield i + 1

    def _open(self, i: int, kept: "_Kept", *, further: bool = True) -> None:
        """Keep what strip `i` announces, unless some of it is kept already: list items, table rows, the text under a heading, an answer."""
        end = i + 1
        if end == len(self.pieces):
            return
        kind, below = self.pieces[i].kind, self.pieces[end].kind
        announces = self.signs[i] in ":：" or (kind == "prose" and below != "prose" and _FOLLOWS.search(self.strips[i].lower()) is not None)
        if below == "row" if kind == "row" else below == "item" and (announces or kind == "heading"):
            while end < len(self.pieces) and end - i <= MAX_OPENED and self.pieces[end].kind == below and i in self.outline.above(end):
                end += 1
        elif announces or kind == "heading" or self.signs[i] in "?？":
            end += 1
            while end < len(self.pieces) and end - i <= MAX_OPENED and self.pieces[end - 1].kind == "heading":
                end += 1
        opened = range(i + 1, end)
        if opened and kept.why.keys().isdisjoint(opened):
            kept.add(i, opened, "context")
            if further and self.signs[end - 1] in ":：":
                self._open(end - 1, kept, further=False)

    def _restrict(self, kept: "_Kept", akin: Collection[int]) -> None:
        """Keep what takes something back from a kept strip: after it, after strips that refer to it, or after the list, table or sentence it is part of."""
        before = frozenset(kept.why)
        origin = 0
        rule: int | None = None
        between: list[int] = []
        for i in range(1, len(self.strips)):
            if i - 1 in kept.why:
                rule, between = i - 1, []
            if i - 1 in before:
                origin = i
            if rule is None or i - origin >= MAX_OPENED:
                continue
            if i in kept.why:
                if self._restricts(i, akin=False):
                    kept.add(rule, (i,), "limits")
            # Exceptions may follow exceptions; a mere continuation may not follow another, or a page of them would be kept whole.
            elif self._restricts(i, akin=i in akin and i - 1 in before):
                kept.add(rule, (*between, i), "limits")
                self._open(i, kept)
            elif len(between) < MAX_BACK and _LEANS.match(self.strips[i]):
                between.append(i)
            else:
                rule = None
        for i in sorted(kept.why.keys() & self.outline.under.keys()):
            end = self.outline.under[i]
            if self._restricts(end, akin=False):
                kept.add(i, (end,), "limits")
                self._open(end, kept)

    def _restricts(self, i: int, *, akin: bool) -> bool:
        """Whether strip `i` changes what the one before it says: an exception, or a negation, a condition or a continuation on the same matter."""
        strip = self.strips[i]
        if self.pieces[i].kind not in ("prose", "item"):
            return False
        if _EXCEPTION.search(strip.lower()) or _TAKES_BACK.match(strip):
            return True
        leans = _LEANS.match(strip) is not None
        if akin:
            return leans or _RESTRICTION.search(strip) is not None
        return leans and _NEGATION.search(strip) is not None

    def _breaks_off(self, i: int) -> bool:
        """Whether strip `i` is the beginning of a sentence that was too long for one strip, or goes on after an empty line."""
        if i + 1 == len(self.pieces):
            return False
        piece, after = self.pieces[i], self.pieces[i + 1]
        if self.signs[i] in ",，、":
            return piece.kind == after.kind == "prose"
        return piece.whole == after.whole and self.signs[i] not in _STOPS


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
        path = []
        while i in self._above:
            path.append(i)
            i = self._above[i]
        self._above.update(dict.fromkeys(path, i))
        return i
