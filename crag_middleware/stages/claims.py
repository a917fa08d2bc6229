"""An answer cut into claims: the statements of it that a source could bear out or not.

Left out is what asserts nothing about the world: greetings, thanks, questions, refusals, what the answerer says of itself, instructions without a fact,
headings, code, the heads of tables, lists of sources. Of a sentence that refuses and asserts, the part that asserts is a claim.
"""

import re
from collections.abc import Callable, Iterator

from crag_middleware.stages.blocks import Piece, is_delimiter
from crag_middleware.stages.claim_check_tokens import plain
from crag_middleware.stages.claim_phrases import GREETING, ORDER, PREAMBLE, REFUSAL, TURN
from crag_middleware.stages.sentences import pieces
from crag_middleware.stages.values import values
from crag_middleware.stages.words import terms
from crag_middleware.types import Claim

_LEADING = re.compile(r"\s*(?:[\[［【]\d{1,3}(?:\s?[,，、-]\s?\d{1,3}){0,9}[\]］】]\s?)+[.。]?")
"""Citations behind the stop of the sentence before them."""

Cited = Callable[[str], tuple[int, ...]]
"""Which sources a text cites, by their numbers."""

_MARKER = re.compile(
    r"\s*(?:(?:[-*+>·–—]\s|[•‣◦▪●○■□◆①-⒛]|\d{1,3}[.)）、]|[a-zA-Z][.)]|[(（](?:\d{1,3}|[a-z]|[一二三四五六七八九十]{1,3})[)）]|[一二三四五六七八九十]{1,3}[、．.])\s*)+"
)
_MARK = re.compile(r"[\[［【](\d{1,3}(?:\s?[,，、]\s?\d{1,3}){0,9})[\]］】]")
_ASKS = re.compile(r"[?？][\"'”’)）\]】*_\s]*(?:[\[［【][^\]］】]{1,20}[\]］】]\s*)*\Z")
_EXCLAIMS = re.compile(r"[!！]\s*\Z")
_ENDS_IN_COLON = re.compile(r"[:：]\s*[*_]*\Z")
_SOURCES = re.compile(
    r"\W*(?:sources?|references?|citations?|further reading|bibliography|参考(?:资料|文献|来源)?|来源|资料来源|引用(?:来源)?|出处)\W*(?:[\[［【].*)?\Z",
    re.IGNORECASE | re.DOTALL,
)


def simple_cited(text: str) -> tuple[int, ...]:
    """The numbers in brackets of a text, in order, none twice."""
    return tuple(dict.fromkeys(int(number) for mark in _MARK.finditer(text) for number in re.findall(r"[1-9]\d*", mark[1])))


def claims(answer: str, cited: Cited = simple_cited) -> tuple[Claim, ...]:
    """The claims of an answer in order; `answer[c.start:c.end] == c.text`.

    Args:
        answer: The answer, in Markdown or plain text.
        cited: Tells which sources a claim's text cites.

    Returns:
        Empty if there is nothing to check; that is not the same as an answer whose claims are all supported.
    """
    return tuple(Claim(answer[start:end], start, end, cited(answer[start:end])) for start, end in _statements(answer))


def is_refusal(answer: str) -> bool:
    """Whether an answer refuses, or says that it does not know, and asserts nothing; English and Chinese."""
    if next(_statements(answer), None):
        return False
    return any(_refuses(answer[piece.start : piece.end]) for piece in pieces(answer) if piece.kind != "code")


def _statements(answer: str) -> Iterator[tuple[int, int]]:
    """Where each statement begins and ends, without list marks, with the citations that stand behind its stop."""
    cut = pieces(answer)
    listing = False
    for place, piece in enumerate(cut):
        start, end = piece.start + _cited_before(answer, cut, place), piece.end
        text = answer[start:end]
        if _SOURCES.match(text):
            listing = True
        elif piece.kind == "heading" or (listing and piece.kind == "prose" and not _LEADING.match(text)):
            listing = False
        if listing or not text or piece.kind in ("heading", "code", "rule") or _is_head(answer, cut, place):
            continue
        after = end
        if place + 1 < len(cut) and (behind := _cited_before(answer, cut, place + 1)):
            after = cut[place + 1].start + len(answer[cut[place + 1].start :][:behind].rstrip())
        if piece.kind == "row":
            if not is_delimiter(text) and _has_words(text):
                yield start, end
            continue
        marker = _MARKER.match(text) if piece.kind == "item" and piece.start == piece.whole else None
        for begin, stop in _asserted(answer, start + (marker.end() if marker else 0), end):
            yield begin, after if stop == end else stop


def _cited_before(answer: str, cut: list[Piece], place: int) -> int:
    """How much of a piece is citations that belong to the sentence before it, on the same line."""
    piece = cut[place]
    if (
        not place
        or piece.kind not in ("prose", "item")
        or "\n" in answer[cut[place - 1].end : piece.start]
        or (piece.start == piece.whole and piece.kind == "item")
    ):
        return 0
    match = _LEADING.match(answer, piece.start, piece.end)
    return match.end() - piece.start if match else 0


def _is_head(answer: str, cut: list[Piece], place: int) -> bool:
    """Whether a table's row is its head: the line of signs follows."""
    if cut[place].kind != "row" or place + 1 == len(cut) or cut[place + 1].kind != "row":
        return False
    return is_delimiter(answer[cut[place + 1].start : cut[place + 1].end])


def _asserted(answer: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a sentence that assert something; all of it, if it only does that."""
    if _ASKS.search(answer, start, end):
        return
    if not _refuses(answer[start:end]):
        begin = _past_opening(answer, start, end)
        if begin < end and _asserts(answer[begin:end]):
            yield begin, end
        return
    position = start
    for turn in (*TURN.finditer(answer, start, end), None):
        stop = position + len(answer[position : turn.start()].rstrip()) if turn else end
        if not _refuses(answer[position:stop]):
            begin = _past_opening(answer, position, stop)
            if begin < stop and _asserts(answer[begin:stop]):
                yield begin, stop
        position = turn.end() if turn else end


def _past_opening(answer: str, start: int, end: int) -> int:
    """Where a sentence begins behind greetings, yes and no, and what the answerer says of its own certainty."""
    moved = True
    while moved:
        moved = False
        for pattern in (GREETING, PREAMBLE):
            match = pattern.match(answer, start, end)
            # A greeting must be set off: `No refunds are given` is none.
            if (
                match
                and match.end() > start
                and (pattern is PREAMBLE or match.end() == end or re.search(r"[,，.。!！:：;；—\n]\s*\Z", match.group()))
            ):
                start, moved = match.end(), True
    return start


def _refuses(text: str) -> bool:
    return REFUSAL.search(text) is not None


def _asserts(text: str) -> bool:
    """Whether what is left of a sentence says something that could be true or false."""
    bare = plain(text)
    if not _has_words(bare):
        return False
    if _EXCLAIMS.search(bare) and len(terms(bare)) <= 2 and not values(bare):
        return False
    # An order with a fact in it, or with a source, is worth checking: `Contact us within 30 days`.
    return not ((_ENDS_IN_COLON.search(bare) or ORDER.match(bare)) and not values(bare) and not simple_cited(text))


def _has_words(text: str) -> bool:
    return bool(terms(text) or values(text))
