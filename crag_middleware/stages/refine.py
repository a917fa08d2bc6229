"""Of each passage the strips that bear on the question, with those neighbours without which they would say something else."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum, log

from crag_middleware.errors import ConfigError
from crag_middleware.stages.sentences import Piece, last_sign, pieces
from crag_middleware.stages.words import part_finder, terms
from crag_middleware.types import Passage, Strip

MAX_BACK = 3
"""How many strips back, or on, a reference from sentence to sentence is followed."""

MAX_OPENED = 8
"""How many list items, table rows or headings come along with the line that announces them."""

PRECISE = 1.5
"""Weight of a number or a name of the question against another word."""

_NAME = re.compile(r"(?<=\s)[A-Z][\w.'-]*")
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


class WordRefiner:
    """A refiner that picks strips by the words they share with the question; needs no model.

    Args:
        max_strips: How many strips are picked of one passage, at least 1; neighbours that must come along are not counted.
    """

    instant = True

    def __init__(self, max_strips: int = 3) -> None:
        if max_strips < 1:
            msg = f"`max_strips` must be at least 1, got {max_strips!r}"
            raise ConfigError(msg)
        self._max_strips = max_strips

    def refine(self, question: str, passages: Sequence[Passage]) -> tuple[tuple[Strip, ...], ...]:
        """One tuple of strips a passage, in document order; empty where no word agrees."""
        return select(question, [passage.text for passage in passages], max_strips=self._max_strips)


def select(question: str, texts: Sequence[str], *, max_strips: int) -> tuple[tuple[Strip, ...], ...]:
    """Pick the strips of each text that bear on the question.

    A strip's score is the sum of its question terms' inverse frequencies over all strips given; numbers and names weigh more, very long strips less.
    Each text yields its best strips and what they need beside them: the sentence that a pronoun points to, the exception that follows a rule, the line
    that announces a list, a table's header, the heading above.

    Args:
        question: The user's words.
        texts: The passages of one turn.
        max_strips: How many strips are picked of one text, at least 1.

    Returns:
        One tuple a text, in document order, each strip verbatim. An empty one means that no word agreed, which says nothing about relevance: a Chinese
        question shares no word with an English text. Ties go to the earlier strip.
    """
    pages = [_Page.of(text) for text in texts]
    return tuple(page.keep(scores, max_strips) for page, scores in zip(pages, _score(question, pages), strict=True))


def _score(question: str, pages: Sequence["_Page"]) -> list[list[float]]:
    """A score of at least 0 for each strip of each page."""
    wanted = frozenset(terms(question))
    names = frozenset(terms(" ".join(_NAME.findall(question))))
    find = part_finder(wanted)
    found = [find(page.text, page.strips) for page in pages]
    hits = [shared for shares in found for shared in shares.values()]
    frequency = Counter(chain.from_iterable(hits))
    count = sum(len(page.strips) for page in pages)
    long = 2 * sum(len(page.text) for page in pages) / max(count, 1)
    weight = {
        term: log(1 + (count - n + 0.5) / (n + 0.5)) * (PRECISE if term in names or any(map(str.isdigit, term)) else 1.0)
        for term, n in frequency.items()
    }

    # Exact summing, so that the order of a set can't decide a tie; slow, and few sets of words occur.
    worth = {shared: fsum(map(weight.__getitem__, shared)) for shared in set(hits)}
    scores = [[0.0] * len(page.strips) for page in pages]
    for page, shares, row in zip(pages, found, scores, strict=True):
        for i, shared in shares.items():
            row[i] = worth[shared] / max(1.0, len(page.strips[i]) / long)
    return scores


@dataclass(frozen=True, slots=True)
class _Page:
    """A text with its strips, which knows what stands beside what."""

    text: str
    pieces: Sequence[Piece]
    strips: Sequence[str]
    signs: Sequence[str]
    """The last sign of each strip, which tells most of what it needs."""

    @classmethod
    def of(cls, text: str) -> "_Page":
        cut = pieces(text)
        strips = [text[start:end] for start, end, _ in cut]
        return cls(text, cut, strips, list(map(last_sign, strips)))

    def keep(self, scores: Sequence[float], max_strips: int) -> tuple[Strip, ...]:
        """The best strips with their company; empty if all scores are 0."""
        ranked = sorted(filter(scores.__getitem__, range(len(scores))), key=scores.__getitem__, reverse=True)
        kept: set[int] = set()
        picked: list[int] = []
        for i in ranked:
            if len(picked) == max_strips:
                break
            if i not in kept:
                picked.append(i)
                kept.update(self._leaned_on(i))
        for i in picked:
            self._open(i, kept)
        self._restrict(kept, scores)
        return tuple(Strip(self.strips[i], self.pieces[i].start, self.pieces[i].end) for i in sorted(kept))

    def _leaned_on(self, i: int) -> set[int]:
        """A strip and all that it needs to be understood."""
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

    def _open(self, i: int, kept: set[int]) -> None:
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
        if kept.isdisjoint(opened):
            kept.update(opened)

    def _restrict(self, kept: set[int], scores: Sequence[float]) -> None:
        """Keep what takes something back from a kept strip, directly after it or after strips that refer to it."""
        before = frozenset(kept)
        between: list[int] | None = None
        for i in range(1, len(self.strips)):
            if i - 1 in kept:
                between = []
            if between is None or i in kept:
                continue
            # Exceptions may follow exceptions; a mere continuation may not follow another, or a page of them would be kept whole.
            if self._restricts(i, scores[i] if i - 1 in before else 0.0):
                kept.update(between, (i,))
                self._open(i, kept)
            elif len(between) < MAX_BACK and _LEANS.match(self.strips[i]):
                between.append(i)
            else:
                between = None

    def _restricts(self, i: int, score: float) -> bool:
        """Whether strip `i` changes what the one before it says: an exception, or a negation, a condition or a continuation on the same matter."""
        strip = self.strips[i]
        if self.pieces[i].kind not in ("prose", "item"):
            return False
        if _EXCEPTION.search(strip.lower()) or _TAKES_BACK.match(strip):
            return True
        leans = _LEANS.match(strip) is not None
        if score > 0:
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
