"""The names, identifiers and numbers of a question, and how many of them a text has: where similarity of meaning alone takes one product for another."""

import re

from crag_middleware.stages.numbers import numbers
from crag_middleware.stages.words import language, terms

_LATIN = re.compile(r"(?<![A-Za-z0-9])(?![vV]\d[\d.]*+(?![A-Za-z0-9_+#-]))[A-Za-z](?:[A-Za-z0-9_.+#-]*[A-Za-z0-9+#])?")
_PREFIX = 6
"""Names this long may go on differently: Postgres and PostgreSQL."""


def named(question: str, text: str) -> float:
    """The share of the question's names, identifiers and numbers that stand in the text, in [0, 1]; 1 if the question has none."""
    wanted, counted = names(question), numbers(question)
    if not wanted and not counted:
        return 1.0
    here = sum(_stands_in(name, text) for name in wanted) + len(counted & numbers(text) if counted else ())
    return here / (len(wanted) + len(counted))


def names(question: str) -> frozenset[str]:
    """Names and identifiers of a question, folded.

    In a Chinese question these are all Latin words; else the words with an inner digit or sign, or with a capital that is not the question's first; capitals
    tell nothing where all letters are. Versions such as `v2.4` count as numbers.
    """
    in_chinese = language(question) == "zh"
    shouted = question.isupper()
    begin = len(question) - len(question.lstrip())
    found = set()
    for match in _LATIN.finditer(question):
        word = match.group()
        marked = any(c.isdigit() or c in "_.+#" for c in word[1:])
        capital = not shouted and len(word) > 1 and any(map(str.isupper, word[1:] if match.start() == begin else word))
        if (in_chinese or marked or capital) and terms(word):
            found.add(word.casefold())
    return frozenset(found)


def _stands_in(name: str, text: str) -> bool:
    """Whether a name stands in a text as a word, in the plural, or, if long, with another ending."""
    if len(name) >= _PREFIX and name.isalpha():
        pattern = re.escape(name[:_PREFIX])
    else:
        pattern = rf"{re.escape(name.removesuffix('s') if len(name) > 3 else name)}s?(?![a-z0-9])"
    # Not in the folded text: folding makes letters of others, such as `ss` of ß, which then stand beside the name.
    return re.search(rf"(?<![a-z0-9]){pattern}", text, re.IGNORECASE | re.ASCII) is not None
