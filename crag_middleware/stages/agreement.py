"""What words, names, numbers and the kind of answer say about a question and a passage, where similarity of meaning alone would be fooled."""

import re
from dataclasses import dataclass

from crag_middleware.stages.numbers import numbers
from crag_middleware.stages.words import finder, terms

_LATIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.+#-]*[A-Za-z0-9+#])?")
_HAN = re.compile(r"[\u3400-\u9fff]")
_PREFIX = 6
"""Names this long may go on differently: Postgres and PostgreSQL."""

_AMOUNT = re.compile(
    r"\bhow (?:many|much|long|old|often|far|tall|high|big|large|fast|late|early|soon)\b|\bwhen\b"
    r"|\b(?:what|which) (?:year|date|day|month|time|port|percent\w*)\b"
    r"|\bwhat (?:is|are|was|were) the (?:[\w-]+ ){0,3}(?:price|cost|fee|size|limit|number|rate|population|maximum|minimum|version|date|deadline|port)\b"
    r"|多少|几[个名位次天岁人种条元块年月号点倍]|多[长大高久远快重]|什么时候|什么时间|何时|哪一?[年天日月]",
    re.IGNORECASE,
)
_PERSON = re.compile(r"\bwho(?:m|se)?\b|谁|哪一?[个位]人|何人", re.IGNORECASE)
_QUANTITY = re.compile(
    r"\b(?:once|twice|half|daily|weekly|monthly|yearly|annual(?:ly)?|every|free|unlimited|one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|million)\b"
    r"|[一二三四五六七八九十百千万亿两半每]|免费|无限",
    re.IGNORECASE,
)
_NAMED = re.compile(r"(?<=[^.!?\s] )[A-Z][a-z]+|\b[A-Z][a-z]+ [A-Z][a-z]+|[\u3400-\u9fff]{2,}|\b[A-Z]\.")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a text agrees with a question.

    Attributes:
        words: Share of the question's words that stand in the text, in [0, 1]; a pair of Chinese characters counts half.
        names: Whether every name, identifier and number of the question stands in it.
        kind: Whether it has the kind of thing that is asked for: an amount or time besides the question's own, a person.
    """

    words: float
    names: bool
    kind: bool


def agree(question: str, text: str) -> Agreement:
    """Compares a question with a text; both English, Chinese or mixed."""
    return Agreement(words=_shared(question, text), names=has_names(question, text), kind=_has_kind(question, text))


def has_names(question: str, text: str) -> bool:
    """Whether every name, identifier and number of the question stands in the text."""
    folded = text.casefold()
    return all(_stands_in(name, folded) for name in names(question)) and numbers(question) <= numbers(text)


def names(question: str) -> frozenset[str]:
    """Names and identifiers of a question, folded.

    In a Chinese question these are all Latin words; else the words with an inner capital, digit or sign, or with a capital that is not the question's first.
    """
    in_chinese = _HAN.search(question) is not None
    found = set()
    for match in _LATIN.finditer(question):
        word = match.group()
        marked = any(c.isupper() or c.isdigit() or c in "_.+#" for c in word[1:])
        capital = word[0].isupper() and len(word) > 1 and bool(question[: match.start()].strip())
        if (in_chinese or marked or capital) and terms(word):
            found.add(word.casefold())
    return frozenset(found)


def _stands_in(name: str, folded: str) -> bool:
    """Whether a name stands in a text as a word, in the plural, or, if long, with another ending."""
    if len(name) >= _PREFIX and name.isalpha():
        pattern = re.escape(name[:_PREFIX])
    else:
        pattern = rf"{re.escape(name.removesuffix('s') if len(name) > 3 else name)}s?(?![a-z0-9])"
    return re.search(rf"(?<![a-z0-9]){pattern}", folded) is not None


def _shared(question: str, text: str) -> float:
    wanted = frozenset(terms(question))
    found = finder(wanted)(text)
    total, shared = (sum(0.5 if _HAN.match(term) else 1.0 for term in some) for some in (wanted, found))
    return shared / total if total else 0.0


def _has_kind(question: str, text: str) -> bool:
    if _AMOUNT.search(question):
        return bool(numbers(text) - numbers(question)) or _QUANTITY.search(text) is not None
    asked = question.casefold()
    return _PERSON.search(question) is None or any(found.group().casefold() not in asked for found in _NAMED.finditer(text))
