"""Of each passage the strips that bear on the question, with those neighbours without which they would say something else."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from math import fsum, log

from crag_middleware.errors import ConfigError
from crag_middleware.stages.company import Page
from crag_middleware.stages.words import part_finder, terms
from crag_middleware.types import Passage, Strip

PRECISE = 1.5
"""Weight of a number or a name of the question against another word."""

_NAME = re.compile(r"(?<=\s)[A-Z][\w.'-]*")


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
    pages = [Page.of(text) for text in texts]
    return tuple(page.complete(_pick(page, worth, max_strips), worth) for page, worth in zip(pages, _score(question, pages), strict=True))


def _pick(page: Page, worth: Sequence[float], most: int) -> list[int]:
    """The numbers of the best strips, best first; none of those that come along with a better one."""
    covered: set[int] = set()
    picked: list[int] = []
    for i in sorted(filter(worth.__getitem__, range(len(worth))), key=worth.__getitem__, reverse=True):
        if len(picked) == most:
            break
        if i not in covered:
            picked.append(i)
            covered |= page.leaned_on(i)
    return picked


def _score(question: str, pages: Sequence[Page]) -> list[list[float]]:
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
