"""A text without the words that its tenant protects, however they are written."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from crag_middleware.stages.stops import HAN

_GAP = r"[\s\-_.·•*/'’]{0,3}"
_SHORT_GAP = r"[\s\-_.·•*/]?"
"""What may stand between the letters of a term, and of a short one, which `a. I` is none of."""
_WORD_GAP = r"[\W_]{0,3}"
"""What may stand between its words."""
_WITHIN = 5
"""Terms of so many letters are found inside longer words, too; `ace` is not meant in `place`."""
_HAN = re.compile(rf"[{HAN}]")
_SIGN = frozenset("+#&@$")
"""Signs that tell one name from another: C, C++, C#."""
_ENDINGS = r"(?:['’]?s|s['’]|es)?"
_REACH = 60
"""How far an identifier is followed on both sides of a term inside it."""


def without_terms(text: str, protected: Sequence[str]) -> str:
    """The text without the protected terms, with the rest of the identifier, host or path segment that one stands in.

    Case, width, accents, and white space or punctuation between the letters do not count; plural and possessive forms go too. Terms of up to four letters
    are found as whole words only, others also inside longer ones, Chinese ones anywhere. Terms without a letter or digit are none.
    """
    pattern = _pattern(tuple(protected))
    if pattern is None:
        return text
    folded, places = _fold(text)
    spans = [_widened(folded, *match.span()) for match in pattern.finditer(folded)]
    pieces, end = [], 0
    for start, stop in spans:
        pieces.append(text[end : max(end, places[start])])
        end = max(end, places[stop - 1] + 1)
    return " ".join((*pieces, text[end:])) if spans else text


def _fold(text: str) -> tuple[str, list[int]]:
    """The text as it is compared, and which of its characters each one comes from."""
    folded: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for plain in _plain(character):
            folded.append(plain)
            places.append(place)
    return "".join(folded), places


@lru_cache(maxsize=4096)
def _plain(character: str) -> str:
    """A character in small letters, without width and accents; nothing for one that is not seen by itself."""
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", character).casefold())
    return "".join(c for c in parts if unicodedata.category(c) not in ("Mn", "Me", "Cf"))


@lru_cache(maxsize=64)
def _pattern(protected: tuple[str, ...]) -> re.Pattern[str] | None:
    """Finds every term in folded text; the longer before the shorter, so that of two that overlap nothing is left."""
    words = {"".join(c if c.isalnum() or c in _SIGN else " " for c in _fold(term)[0]).strip() for term in protected}
    words = {word for word in words if any(map(str.isalnum, word))}
    if not words:
        return None
    return re.compile("|".join(_spelled(word) for word in sorted(words, key=len, reverse=True)))


def _spelled(word: str) -> str:
    """A pattern for a term, given as words of letters and digits."""
    parts, letters = word.split(), word.replace(" ", "")
    gap = _SHORT_GAP if len(letters) < _WITHIN else _GAP
    if _HAN.search(letters):
        return _WORD_GAP.join(gap.join(map(re.escape, part)) for part in parts)
    *head, last = parts
    ending = r"(?:y|ies)" if last[-1] == "y" else re.escape(last[-1])
    spaced = _WORD_GAP.join([*(gap.join(map(re.escape, part)) for part in head), gap.join([*map(re.escape, last[:-1]), ending])])
    alone = rf"(?<![^\W_{HAN}]){spaced}{_ENDINGS}(?![^\W_{HAN}])"
    return alone if len(letters) < _WITHIN else alone + "|" + _WORD_GAP.join(map(re.escape, parts))


def _widened(text: str, start: int, stop: int) -> tuple[int, int]:
    """The span with the rest of the identifier around it."""
    first, last = start, stop
    while first > max(0, start - _REACH) and _joins(text, first - 1, text[first]):
        first -= 1
    while last < min(len(text), stop + _REACH) and _joins(text, last, text[last - 1]):
        last += 1
    return first, last


def _joins(text: str, place: int, neighbour: str) -> bool:
    """Whether the character there belongs to the same identifier as its neighbour towards the term."""
    character = text[place]
    if not character.isascii() or not neighbour.isascii():
        return False
    if character.isalnum() or character in "_-":
        return True
    after = text[place + 1 : place + 2]
    return (
        character == "." and after.isascii() and after.isalnum() and place > 0 and text[place - 1].isascii() and text[place - 1].isalnum()
    )
