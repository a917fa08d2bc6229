"""How many gold sentences stand in a part of a question's passages: in what a refiner keeps, and in the best of its ranking at every share."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from crag_middleware.evals.refinement.questions import EvidenceItem
from crag_middleware.evals.statistics import Indexes
from crag_middleware.types import Strip

STEPS = 100
"""The shares of a curve are 0, 1 / STEPS, ..., 1."""

FOUND = 80
"""A gold sentence is found if at least this percentage of its signs stands in kept strips; white space is no sign."""


def found_by_share(item: EvidenceItem, ranked: Sequence[Sequence[Strip]]) -> tuple[int, ...]:
    """How many gold sentences stand in the best strips of each share of all characters, from share 0 to 1.

    Strips are taken in the order of their worth, ties in document order; one that would exceed the share is skipped, and smaller ones after it may
    still fit. So a larger share may find less: a long strip that fits at last takes the place of shorter ones.

    Args:
        item: The question.
        ranked: For each passage its strips; each tells its worth.
    """
    strips = list(chain.from_iterable(ranked))
    best = sorted(range(len(strips)), key=lambda i: -(strips[i].worth or 0.0))
    inside = _inside(item, ranked)
    budget = item.characters * np.arange(STEPS + 1)
    used, covered = np.zeros(STEPS + 1, dtype=np.intp), np.zeros((STEPS + 1, len(item.gold)), dtype=np.intp)
    for i in best:
        fits = STEPS * (used + len(strips[i].text)) <= budget
        used += fits * len(strips[i].text)
        covered += np.outer(fits, inside[i])
    return tuple((100 * covered >= FOUND * _signs(item)).sum(axis=1).tolist())


def kept_and_found(item: EvidenceItem, picked: Sequence[Sequence[Strip]]) -> tuple[int, int]:
    """How many characters were kept, and how many gold sentences stand in them.

    Args:
        item: The question.
        picked: For each passage its strips; of a passage with an empty list everything is kept.
    """
    kept = [strips or [Strip(p.text, 0, len(p.text))] for p, strips in zip(item.passages, picked, strict=True)]
    covered = _inside(item, kept).sum(axis=0)
    return sum(len(strip.text) for strip in chain.from_iterable(kept)), int((100 * covered >= FOUND * _signs(item)).sum())


def _signs(item: EvidenceItem) -> Indexes:
    """How many signs each gold sentence has."""
    return np.array([sum(not c.isspace() for c in item.passages[n].text[start:end]) for n, start, end in item.gold], dtype=np.intp)


def _inside(item: EvidenceItem, strips: Sequence[Sequence[Strip]]) -> Indexes:
    """For each strip, in a row, how many signs of each gold sentence stand in it."""
    found = np.zeros((sum(map(len, strips)), len(item.gold)), dtype=np.intp)
    row = 0
    for number, (passage, page) in enumerate(zip(item.passages, strips, strict=True)):
        before = np.cumsum([0, *(not c.isspace() for c in passage.text)])
        for strip in page:
            for column, (n, start, end) in enumerate(item.gold):
                first, last = max(start, strip.start), min(end, strip.end)
                if n == number and first < last:
                    found[row, column] = before[last] - before[first]
            row += 1
    return found
