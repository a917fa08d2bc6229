"""Of each passage the strips that bear on the question, with those neighbours without which they would say something else."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from math import exp

from crag_middleware.errors import ConfigError
from crag_middleware.settings import MAX_STRIPS
from crag_middleware.stages.company import Page
from crag_middleware.stages.repeats import told
from crag_middleware.stages.worth import Reading, Sheet, read
from crag_middleware.types import Passage, Strip

CUT = 0.2
"""A strip is left out if it is less than this times as likely to answer as the turn's best."""

COVERED = 1.0
"""How much the log odds of a strip sink if all of the question's words in it, and these are all, stand in better strips already."""

Picks = list[tuple[int, float]]
"""Numbers of strips of one page, best first, each with its worth beside those that were picked before."""


class WordRefiner:
    """A refiner that picks strips by the words they share with the question; needs no model.

    Args:
        max_strips: How many strips are picked of one passage, at least 1; neighbours that must come along are not counted.
    """

    instant = True

    def __init__(self, max_strips: int = MAX_STRIPS) -> None:
        self._max_strips = checked_max_strips(max_strips)

    def refine(self, question: str, passages: Sequence[Passage]) -> tuple[tuple[Strip, ...], ...]:
        """One tuple of strips a passage, in document order; empty where no word agrees."""
        return Turn.of(passages).select(question, max_strips=self._max_strips)

    def rank(self, question: str, passages: Sequence[Passage]) -> tuple[tuple[Strip, ...], ...]:
        """Every strip of each passage, in document order, with its worth."""
        return Turn.of(passages).rank(question)


def checked_max_strips(value: int) -> int:
    """The value, if it is a whole number from 1 on.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(value, int) or value < 1:
        msg = f"`max_strips` must be a whole number from 1 on, got {value!r}"
        raise ConfigError(msg)
    return value


def select(question: str, texts: Sequence[str], *, max_strips: int = MAX_STRIPS) -> tuple[tuple[Strip, ...], ...]:
    """The strips of each text that bear on the question by their words; texts without titles. See `Turn.select`."""
    return Turn.of([Passage(id=str(n), text=text) for n, text in enumerate(texts)]).select(question, max_strips=max_strips)


@dataclass(frozen=True, slots=True)
class Turn:
    """The passages of one turn, cut into strips."""

    titles: Sequence[str]
    pages: Sequence[Page]

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> "Turn":
        """The passages, cut."""
        return cls([passage.title for passage in passages], [Page.of(passage.text) for passage in passages])

    def select(self, question: str, *, near: Sequence[Sequence[float]] = (), max_strips: int = MAX_STRIPS) -> tuple[tuple[Strip, ...], ...]:
        """Pick the strips of each passage that bear on the question.

        All strips of the turn compete: those are kept that are at least `CUT` times as likely to answer as the best, and the best of each passage. One
        counts less for words of the question that better ones have already, and one that repeats another gives way, unless its passage has nothing else to
        say: a passage without strips would be kept whole. With the picked ones come what they need beside them: the sentence that a pronoun points to, the
        exception that follows a rule, the line that announces a list, a table's header, the heading above.

        Args:
            question: The user's words.
            near: Each strip's similarity to the question in meaning, by passage; without it words alone decide.
            max_strips: How many strips are picked of one passage, at least 1.

        Returns:
            One tuple a passage, in document order, each strip verbatim. An empty one means that no word agreed and nothing measured meaning, which says
            nothing about relevance: a Chinese question shares no word with an English text. Ties go to the earlier strip.
        """
        reading = self._read(question, near)
        akin = [[bool(words) for words in row] for row in reading.words]
        worth = reading.worth if near else _sharing(reading)
        picks = self._pick(reading, worth, most=max_strips, cut=CUT)
        return tuple(
            page.complete([i for i, _ in picked] or _best(row), row, akin=[i for i, same in enumerate(some) if same])
            for page, picked, row, some in zip(self.pages, picks, worth, akin, strict=True)
        )

    def rank(self, question: str, *, near: Sequence[Sequence[float]] = ()) -> tuple[tuple[Strip, ...], ...]:
        """Every strip of each passage, in document order, with its worth beside the better ones; 0 for one that repeats another."""
        reading = self._read(question, near)
        picks = map(dict, self._pick(reading, reading.worth, most=max((len(page.strips) for page in self.pages), default=0), cut=0.0))
        return tuple(
            tuple(page.strip(i, worth.get(i, 0.0)) for i in range(len(page.strips))) for page, worth in zip(self.pages, picks, strict=True)
        )

    def by_words(self, question: str) -> list[list[float]]:
        """The worth of each strip by its words, by passage; 0 for one that shares none with the question."""
        return _sharing(self._read(question, ()))

    def _read(self, question: str, near: Sequence[Sequence[float]]) -> Reading:
        nears = near or [()] * len(self.pages)
        return read(
            question, [Sheet(title, page.text, page.strips, some) for title, page, some in zip(self.titles, self.pages, nears, strict=True)]
        )

    def _pick(self, reading: Reading, worth: Sequence[Sequence[float]], *, most: int, cut: float) -> list[Picks]:
        """The best strips of all pages together, at most so many of one page; of each page the best that is worth anything, unless it repeats another.

        Maximal marginal relevance: Carbonell and Goldstein, SIGIR 1998, doi:10.1145/290941.291025. Strips only ever lose by what others have said, so that
        one that is still the best after being weighed anew is the best of all.
        """
        picks: list[Picks] = [[] for _ in self.pages]
        along: list[set[int]] = [set() for _ in self.pages]
        repeating = [False] * len(self.pages)
        said: set[tuple[str, ...]] = set()
        telling = cache(self._told)
        covered = frozenset[str]()
        left = [(-p, n, i, 0) for n, row in enumerate(worth) for i, p in enumerate(row) if p > 0]
        heapify(left)
        least = -left[0][0] * cut if left else 0.0
        while left:
            value, n, i, seen = heappop(left)
            if len(picks[n]) == most or i in along[n] or (-value < least and (picks[n] or repeating[n])):
                continue
            if seen < len(covered):
                again = reading.share(reading.words[n][i] & covered)
                heappush(left, (-_beside(worth[n][i], again), n, i, len(covered)))
                continue
            if telling(n, i) in said:
                repeating[n] = True
                continue
            covered |= reading.words[n][i]
            picks[n].append((i, -value))
            shown = self.pages[n].leaned_on(i) if cut else {i}
            along[n] |= shown
            said.update(telling(n, j) for j in shown)
        return picks

    def _told(self, n: int, i: int) -> tuple[str, ...]:
        return told(self.titles[n], self.pages[n], i)


def _sharing(reading: Reading) -> list[list[float]]:
    """The worth of the strips that share a word with the question; 0 for the others."""
    return [[p if words else 0.0 for p, words in zip(*rows, strict=True)] for rows in zip(reading.worth, reading.words, strict=True)]


def _best(worth: Sequence[float]) -> list[int]:
    """The first of the strips worth most; none if none is worth anything."""
    return [max(range(len(worth)), key=worth.__getitem__)] if any(worth) else []


def _beside(p: float, again: float) -> float:
    """What is left of a probability if such a share of the question's words has been said by better strips."""
    odds = exp(-COVERED * again)
    return p * odds / (1 - p + p * odds)
