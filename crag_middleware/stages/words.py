"""The words of a text that tell what it is about, and its language: English, Chinese, and both in one sentence."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

from crag_middleware.types import Language

MAX_REMEMBERED = 1 << 15
"""How many words' terms are kept in memory."""

_HAN = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
"""Scripts written without spaces between words, as the inside of a character class."""

_LETTERS = rf"[^\W_{_HAN}]{{1,64}}"
_WORD = re.compile(rf"{_LETTERS}(?:(?:[.．@'’]|_+|[-/:](?<=\d.)(?=\d)|,(?<=\d,)(?=\d{{3}}\b)){_LETTERS}){{0,15}}(?:\+\+|#)?")
_ASCII_WORD = re.compile(_WORD.pattern.replace(_LETTERS, "[a-zA-Z0-9]{1,64}"))
_HAN_RUN = re.compile(rf"[{_HAN}]+")

_COMPATIBLE = re.compile(rf"[^\x00-\x7f\u2010-\u2027\u3000-\u303f{_HAN}\uff01-\uff0f\uff1a-\uff20]")
"""Signs whose compatibility form may be a letter or digit, such as those of full width."""

_STOP_WORDS = frozenset(
    """
    a about after again all also am an and any are as at be because been before being between both but by can could did do does doing each for from
    had has have having he her here hers him his how i if in into is it its itself just many may me might more most much must my of on or other our
    ours out over own please same shall she should so some such than that the their theirs them then there these they this those through to too
    under until up upon us very was we were what when where which while who whom whose why will with would you your yours e.g i.e etc
    """.split()  # noqa: SIM905, a list of words reads better as text
)
"""Words that say nothing about the topic. Negations (`not`, `no`, `never`, `without`, `cannot`) are missing on purpose."""

_CLITIC = re.compile(r"'(?:s|re|ll|ve|d|m)?$")
_VERSION = re.compile(r"v?\d")
_PARTICIPLE = re.compile(r"(?<=[a-z]{3})(?<!e)(?:ed|ing)$")
_VOWEL = re.compile("[aeiouy]")

_HAN_STOP = re.compile(
    "为什么|怎么样|有没有|能不能|可不可以|什么|怎么|怎样|如何|为何|多少|几个|哪些|哪个|哪里|哪儿|哪种|是否|可以|能否|请问|我们|你们|他们|"
    "这个|那个|这些|那些|一个|一些|以及|或者|需要|关于|[的了吗呢吧啊呀么您我你]"
)


def terms(text: str) -> tuple[str, ...]:
    """The words that carry a text's topic, comparable between texts.

    Latin words and numbers are folded (case, full width), stemmed and rid of stop words; versions, addresses and dotted names stay whole, a leading `v` of a
    version is dropped, `n't` becomes `not`. Chinese becomes pairs of characters; a single one only where it stands alone.

    Returns:
        Latin terms in text order, then Chinese ones, with repetitions; empty if the text has none.
    """
    return (*filter(None, _latin_terms(text)), *_han_terms(text))


def finder(wanted: Collection[str]) -> Callable[[str], frozenset[str]]:
    """A function that tells which of the wanted terms a text has; many times faster than `terms` of each text.

    Args:
        wanted: Terms as `terms` returns them.
    """
    find = part_finder(wanted)
    return lambda text: find(text, (text,)).get(0, frozenset())


def part_finder(wanted: Collection[str]) -> Callable[[str, Sequence[str]], dict[int, frozenset[str]]]:
    """A function that tells, given a text and its parts, which of the wanted terms each part has; parts that have none are left out.

    Args:
        wanted: Terms as `terms` returns them.
    """
    han = tuple(term for term in wanted if _HAN_RUN.match(term))
    latin = frozenset(wanted).difference(han)
    heads = tuple(map(_head, latin))

    def find(text: str, parts: Sequence[str]) -> dict[int, frozenset[str]]:
        # Most parts, and many texts, share no word with the question; a look for substrings spares those the words' taking apart.
        found: defaultdict[int, set[str]] = defaultdict(set)
        here = tuple(filter(text.__contains__, han))
        for i, part in enumerate(parts):
            for term in here:
                if term in part:
                    found[i].add(term)
        near = tuple(filter(text.casefold().__contains__, heads)) if heads else ()
        odd = bool(heads) and not text.isascii() and _COMPATIBLE.search(text) is not None
        if near or odd:
            for i, part in enumerate(parts):
                if any(map(part.casefold().__contains__, near)) or (odd and _COMPATIBLE.search(part)):
                    found[i] |= latin.intersection(_latin_terms(part))
        return {i: frozenset(shared) for i, shared in found.items() if shared}

    return find


def language(text: str) -> Language:
    """The language a text should be answered in: Chinese if at least a fifth of its letters are, or if its Latin words are few and all names or code."""
    han = sum(map(len, _HAN_RUN.findall(text)))
    if not han:
        return "en"
    if 5 * han >= sum(map(str.isalpha, text)):
        return "zh"
    latin = tuple(_latin_terms(text))
    return "zh" if len(latin) <= han and all(latin) else "en"


def _latin_terms(text: str) -> Iterator[str]:
    """The term of each Latin word, empty for a stop word."""
    return map(_TERMS.__getitem__, (_ASCII_WORD if text.isascii() else _WORD).findall(text))


def _han_terms(text: str) -> list[str]:
    found: list[str] = []
    for run in _HAN_RUN.findall(text):
        for part in _HAN_STOP.split(run):
            found.extend(map(str.__add__, part, part[1:]) if len(part) > 1 else part)
    return found


class _Terms(dict[str, str]):
    """The terms of words seen before; a third of the time that `lru_cache` takes, and it is asked for every word of every passage."""

    def __missing__(self, word: str) -> str:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        term = self[word] = _term(word)
        return term


_TERMS = _Terms()


def _term(word: str) -> str:
    """The term of one Latin word or number; empty for a stop word."""
    word = unicodedata.normalize("NFKC", word).casefold().replace("’", "'")
    if word.endswith("n't") or word == "cannot":
        return "not"
    word = _CLITIC.sub("", word)
    if word in _STOP_WORDS:
        return ""
    if _VERSION.match(word):
        return word.removeprefix("v").replace(",", "")
    return _stem(word) if word.isalpha() and word.isascii() else word


def _head(term: str) -> str:
    """What every word of this term has in it in small letters, however it is inflected or spelled."""
    if term == "not" or term[0].isdigit():
        return term[0]
    return term.partition("'")[0][:-1] or term[0]


def _stem(word: str) -> str:
    """The word without its inflection, so that `apply`, `applies`, `applied` and `applying` agree; not always a word itself.

    Source: step 1 of Porter, Program 14(3), 1980, doi:10.1108/eb046814, without its exceptions.
    """
    if len(word) < 4:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "sis", "xis")):
        word = word[:-1]
    base = _PARTICIPLE.sub("", word)
    if base != word and _VOWEL.search(base):
        word = base[:-1] if base[-1] == base[-2] and base[-1] not in "lsz" else base
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word
