"""The proper names of a Chinese text, as jieba tells them."""

import logging
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jieba

_NAME_TAGS = frozenset({"nr", "ns", "nt", "nz"})
"""jieba's tags for persons, places, organisations and other proper names."""

_FIRST, _LAST = "\u4e00", "\u9fd5"
"""The characters of which jieba guesses at words that its dictionary lacks."""

_CLAUSE = re.compile(rf"[{_FIRST}-{_LAST}a-zA-Z0-9+#&._]+")
"""What jieba reads as a whole: nothing on either side of it changes the words and tags within."""

MAX_CHARS = 600
"""Longer texts are read up to here: common text takes jieba 0.02 ms a character, and what was made to hold it up 1 ms."""


def load() -> None:
    """Loads jieba's dictionary, about a second once a process, and keeps its progress messages away; safe to call from several threads."""
    # jieba's own lock, held while it loads: else a thread could set back the level before another has loaded, or set it back to what another had set.
    with jieba.dt.lock:
        level = jieba.default_logger.level
        # jieba writes its progress to stderr at level DEBUG. The level is its user's: it is set back.
        jieba.setLogLevel(logging.WARNING)
        try:
            jieba.initialize()
        finally:
            jieba.setLogLevel(level)


def proper_names(text: str, *, told: dict[str, tuple[str, ...]] | None = None) -> Iterator[str]:
    """The names of persons, places, organisations and other things in a text's first `MAX_CHARS`, in order; those of one character are left out.

    Args:
        text: The text.
        told: What is remembered from call to call: the names of each clause, for texts that have most clauses in common.
    """
    told = {} if told is None else told
    cut, seen = _tagger()
    # A character that jieba's model has never seen costs it 9 ms and is hardly ever part of a name that it knows.
    known = "".join(c if c in seen or not _FIRST <= c <= _LAST else " " for c in text[:MAX_CHARS])
    for clause in _CLAUSE.findall(known):
        names = told.get(clause)
        if names is None:
            names = told[clause] = tuple(pair.word for pair in cut(clause) if pair.flag[:2] in _NAME_TAGS and len(pair.word) > 1)
        yield from names


@cache
def _tagger() -> tuple[Callable[[str], Any], frozenset[str]]:
    """What cuts a text into words with their tags, and the characters its model has seen."""
    load()
    # Not at the top: the import reads the whole dictionary, for which who writes English need not wait.
    from jieba import posseg
    from jieba.posseg.char_state_tab import P

    # Not `posseg.cut`, which hands the text to other processes where `jieba.enable_parallel` was called.
    return posseg.dt.cut, frozenset(P)
