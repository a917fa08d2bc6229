"""A sentence as the tokens that claims are compared by: values, words, Chinese characters, negations and bounds."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from crag_middleware.stages.stops import HAN
from crag_middleware.stages.values import Value, values
from crag_middleware.stages.words import terms

NOT, AT_LEAST, AT_MOST = "¬", "≥", "≤"
"""What negations and bounds are compared by: `may not exceed` and `at most` are one, and no negation."""

_TURNING = frozenset((NOT, AT_LEAST, AT_MOST))

HAN_WIDTH = 0.5
"""Of a pair of Chinese characters, or of one, as a word."""

_ASIDE = re.compile(r"https?://[^\s<>\"'，。；）]+|[\[［【〔]\s?(?:[KkWw]?\d{1,3}\s?[,，、\-–—;；]?\s?){1,12}[\]］】〕]")


class Token(NamedTuple):
    """One token.

    Attributes:
        key: What it is compared by.
        written: As it stands.
        value: Its value, if it is one.
        glued: Whether it is a Chinese character right behind another.
    """

    key: str
    written: str
    value: Value | None = None
    glued: bool = False


_SILENT = frozenset("的了着地得所之也就都将已被把这那其个们")
_LETTERS = rf"[^\W_{HAN}]"
_TURNS = "不没未无非勿除从尚并切禁严至最上起下"
"""What the Chinese words below begin with."""
_LEX = re.compile(
    rf"""
    (?P<most>(?:no|not)\s(?:more|longer|greater|higher|later)\sthan|(?:(?:may|must|can|should|do|does|shall)\s?(?:not|n't)|cannot
        |never)\sexceed\w*|at\smost|up\sto|maximum(?:\sof)?
      |不得?能?可?应?(?:超过|多于|高于|大于|晚于)|至多|最多|最晚|最迟|上限)
  | (?P<least>(?:no|not)\s(?:less|fewer|lower|earlier)\sthan|at\sleast|minimum(?:\sof)?|不得?能?应?(?:少于|低于|小于|早于)|至少|最少|起码|下限)
  | (?P<plain>不仅|不但|不断|不同|不久|不少|不管|不论|无论|不禁|不错|不过|非常|非遗|非物质|非洲|除非|未来|无线|无数|无人机|不锈钢
        |不良|无疑|不得不|not\sonly|no\.\s?(?=\d))
  | (?P<not>(?:{_LETTERS}+n['’]t|not|no|never|without|cannot|neither|nor|none|nobody|nothing|hardly|unable|prohibited|forbidden
        |banned|fail(?:s|ed)?\sto|unlikely)(?!{_LETTERS})
      |没有|从未|未能|未曾|尚未|并未|并非|不是|无法|无需|无须|不必|禁止|严禁|切勿|不能|不可以?|不会|不得|不再|不应|不宜|不要|[不没未无勿非](?=[{HAN}]))
  | (?P<self>\b(?:I|my|me|mine|myself)\b(?:['’](?:m|ve|d|ll))?|\?)
  | (?P<said>\b(?:yes|yeah|yep|oh|well|sure|wow|ok|okay|absolutely|really|lol)\b)
  | (?P<word>{_LETTERS}+(?:(?:[.@'’_+#-]|[-/:](?=\d)){_LETTERS}+)*[+#]*)
  | (?P<han>(?:(?![{_TURNS}])[{HAN}])+|[{HAN}])
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_han(key: str) -> bool:
    """Whether a token or a term is Chinese."""
    return "\u3005" <= key[:1] <= "\U0003134f"


def width(term: str) -> float:
    """How many words a term is worth."""
    return HAN_WIDTH if is_han(term) else 1.0


def term_list(found: Sequence[Token]) -> list[str]:
    """The topic words of tokens in order: Latin words, and pairs of Chinese characters, of which one counts only where it stands alone."""
    listed: list[str] = []
    for place, token in enumerate(found):
        if token.glued:
            listed.append(found[place - 1].key + token.key)
        elif token.value or token.key in _TURNING:
            continue
        elif not is_han(token.key) or place + 1 == len(found) or not found[place + 1].glued:
            listed.append(token.key)
    return listed


def plain(text: str) -> str:
    """The text in its compatible form, without citations and addresses, which state nothing."""
    return _ASIDE.sub(" ", unicodedata.normalize("NFKC", text))


def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a `plain` text in order, without words that say nothing about its topic."""
    return tuple(_tokens(text))


@lru_cache(maxsize=1 << 14)
def _sign(sign: str, glued: bool) -> Token:
    return Token(sign, sign, None, glued)


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    for value in values(text):
        yield from _words(text, position, value.start)
        yield Token("", text[value.start : value.end], value)
        position = value.end
    yield from _words(text, position, len(text))


def _words(text: str, start: int, end: int) -> Iterator[Token]:
    last = -1
    for match in _LEX.finditer(text, start, end):
        kind, written = match.lastgroup, match.group()
        if kind == "word":
            for term in terms(written):
                yield Token(term, written)
        elif kind == "han":
            glued = match.start() == last
            for sign in written:
                if sign in _SILENT:
                    glued = False
                else:
                    yield _sign(sign, glued)
                    glued = True
            last = match.end() if glued else -1
        elif kind == "self":
            yield Token("?" if written == "?" else "i", written)
        elif kind == "plain":
            for place, sign in enumerate(written):
                if is_han(sign):
                    yield _sign(sign, place > 0 or match.start() == last)
            last = match.end()
        elif kind != "said":
            yield Token({"most": AT_MOST, "least": AT_LEAST}.get(kind or "", NOT), written)
