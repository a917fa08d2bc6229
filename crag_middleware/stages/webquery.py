"""What leaves for a web search: the question's own words, without secrets and protected terms, short enough.

Nothing else goes in, neither passages nor system text. Kept are versions, error codes, ports and years, since they make a technical question findable.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import jieba

from crag_middleware.findings import WebQuery
from crag_middleware.stages.chinese import load
from crag_middleware.stages.inside import without_inside
from crag_middleware.stages.operators import without_operators
from crag_middleware.stages.personal import without_personal
from crag_middleware.stages.protected import without_terms
from crag_middleware.stages.question import has_words
from crag_middleware.stages.screen import visible
from crag_middleware.stages.secrets import without_secrets
from crag_middleware.stages.spoken import without_spoken
from crag_middleware.stages.words import terms

_GAP = re.compile(r"\s{2,}")
"""Folded first, so that no pattern has to go over a long one."""

_SENTENCE_END = re.compile(r"[。！？；]+[”’」』）]*\s*|[.!?;][\"')\]]{0,3}\s+|\n\s*|\Z")
_ASKS = re.compile(
    r"\b(?:how|what|why|which|when|where|who|whose)\b|怎么|怎样|如何|为什么|为何|什么|哪|谁|是否|能否|可否|多少|几时|吗|呢", re.IGNORECASE
)
_CLAUSE_END = re.compile(r"[。！？；，、：…]|[.!?,;:](?=\s)|\n")
_CJK = re.compile(r"[\u3400-\u9fff]")
_ASKING = frozenset(terms("tell explain describe give show know need want help find get let say think there anything everything something"))
_HAN_ASKING = re.compile(
    r"告诉|介绍|说明|解释|知道|了解|查询|查找|帮忙|一下|有关|关于|如何|怎么|怎样|什么|多少|几|哪|谁|何|请|想|说|讲|看|查|找|帮|问|要|会|能|是|有|在|和|与|跟|及|就|都|也|还"
    r"|把|被|让|给|对|从|到|向|为|以|之|其|这|那|它|他|她|们|样"
)
"""Words of requests and what joins words: left alone, they ask for nothing."""


class _Plain(dict[int, str]):
    """Letters, digits and signs of identifiers in their plain form; all else stays, punctuation too.

    Written otherwise they are in full width, in the bold of mathematics, or in another script's digits.
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        digit = unicodedata.decimal(character, None)
        if digit is not None:
            return str(digit)
        shown = unicodedata.normalize("NFKC", character) if unicodedata.decomposition(character).startswith(("<wide>", "<font>")) else ""
        return shown if shown.isascii() and (shown.isalnum() or shown in list("@=+-_.")) else character


_PLAIN = _Plain({0x3000: " ", 0xA0: " "})


def compose(text: str, *, protected: Sequence[str] = (), limit: int = 400) -> WebQuery:
    """The query for a web search.

    Values of passwords and keys, mail addresses, numbers of people, phones and cards, private addresses and the protected terms are removed; `site:` becomes
    `include_domains`, all other search operators lose their force (`inurl:x` becomes `inurl x`); white space is folded. If the rest is too long, question
    sentences are kept first, then others from the start, in their order and whole where possible.

    Args:
        text: What is asked, as the user or a rewriter wrote it.
        protected: Terms that never leave, see `without_terms`.
        limit: At most so many characters.

    Returns:
        A query whose text is empty if nothing worth searching is left: no word, or, after something was removed, only words such as "what is".
    """
    seen = _GAP.sub(lambda gap: "\n" if "\n" in gap.group() else " ", visible(text).translate(_PLAIN))
    clean = without_terms(without_inside(without_personal(without_spoken(without_secrets(seen)))), protected)
    free, domains = without_operators(clean)
    query = _pick(free, limit)
    if not has_words(query) or (clean != seen and not _asks_for_something(query)):
        return WebQuery("")
    return WebQuery(query, domains)


def cut(text: str, limit: int) -> str:
    """The beginning of a text, at most `limit` characters: to the last end of a sentence or clause in its second half, else to the last whole word."""
    if len(text) <= limit:
        return text
    # One character more than fits shows whether the last one that fits ends a word.
    window = text[: limit + 1]
    ends = [m.end() for m in _CLAUSE_END.finditer(window) if limit // 2 <= m.end() <= limit]
    return text[: ends[-1] if ends else _word_end(text, limit)].rstrip()


def _word_end(text: str, limit: int) -> int:
    """Where the last word ends that fits; `limit` itself if one word fills the second half."""
    start = max(limit // 2, limit - 60)
    gap = max(text.rfind(" ", start, limit + 1), text.rfind("\n", start, limit + 1))
    if not _CJK.search(text, max(gap, start), limit):
        return gap if gap > 0 else limit
    load()
    ends = [end + start for _, _, end in jieba.tokenize(text[start : limit + 20]) if end + start <= limit]
    return ends[-1] if ends else limit


def _asks_for_something(query: str) -> bool:
    """Whether a query has a word that says what it is about."""
    return any(term not in _ASKING for term in terms(_HAN_ASKING.sub(" ", query)))


def _pick(text: str, limit: int) -> str:
    """The sentences that fit, questions first, in their order; white space folded."""
    ends = [m.end() for m in _SENTENCE_END.finditer(text)]
    pieces = (text[start:end] for start, end in pairwise([0, *ends]))
    sentences = [" ".join(piece.split()) + " " * piece[-1].isspace() for piece in pieces if piece.strip()]
    whole = "".join(sentences).strip()
    if len(whole) <= limit:
        return whole
    wanted = sorted(
        range(len(sentences)), key=lambda i: ("?" not in sentences[i] and "？" not in sentences[i], not _ASKS.search(sentences[i]))
    )
    if len(sentences[wanted[0]]) > limit:
        return cut(sentences[wanted[0]], limit)
    chosen: set[int] = set()
    room = limit
    for i in wanted:
        if len(sentences[i]) <= room:
            chosen.add(i)
            room -= len(sentences[i])
    return "".join(sentences[i] for i in sorted(chosen)).strip()
