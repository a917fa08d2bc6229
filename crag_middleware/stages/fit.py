"""Which strips go into a token budget: whole units, those first that are worth most; in a larger budget never fewer."""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import isfinite

from crag_middleware.types import Strip

Shown = tuple[tuple[Strip, ...], ...]
"""What is shown of each passage, in the passages' order and in document order; nothing of a passage that is left out."""

LARGE_CHARS = 1200
"""A unit longer than this goes last: a page of code or a long table, which would hide everything after it. Twice the longest sentence."""

_OFFSET = 60
"""Of reciprocal rank fusion (Cormack et al., SIGIR 2009, doi:10.1145/1571941.1572114)."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Strips of one passage that are kept or left out together."""

    place: int
    strips: tuple[Strip, ...]

    @property
    def chars(self) -> int:
        return sum(len(strip.text) for strip in self.strips)

    @property
    def worth(self) -> float | None:
        """That of its best strip; None if none says anything that can be compared."""
        return max((strip.worth for strip in self.strips if strip.worth is not None and isfinite(strip.worth)), default=None)


def fit(passages: Sequence[Sequence[Strip]], budget: int, count: Callable[[Shown], int]) -> Shown:
    """The strips that fit.

    Units stand in one order, whatever the budget, and as many of the first are shown as fit. The order fuses two ranks, since worth has no scale: that of
    the passage, and that of the unit's worth among all units; one without a worth counts as middling, so that where there is no worth at all the last go
    first. If the first units leave the model with less than some smaller one alone would, that one is shown: something, rather than nothing.

    Args:
        passages: The strips of each passage, the best passage first, each in document order.
        budget: What `count` may say of the result at most.
        count: The tokens of the whole text with these strips in it; need not be additive. It is called a few times for hundreds of strips, about
            2 + 2 log2(units), and once if all fits.

    Returns:
        Nothing at all if no unit fits. A larger budget never gives fewer strips, whatever the counter: the order is fixed, and a bisection's result only
        grows with what it looks for.
    """
    everything = tuple(map(tuple, passages))
    if count(everything) <= budget:
        return everything
    units = _by_priority(passages)

    def shown(some: Sequence[_Unit]) -> Shown:
        of: list[list[Strip]] = [[] for _ in passages]
        for unit in some:
            of[unit.place] += unit.strips
        return tuple(tuple(sorted(strips, key=lambda strip: strip.start)) for strips in of)

    first = units[: bisect_right(range(1, len(units) + 1), budget, key=lambda most: count(shown(units[:most])))]
    ladder = _ladder(units)
    if ladder and len(ladder[-1].strips) > _strips(first):
        step = bisect_right(ladder, budget, key=lambda unit: count(shown([unit])))
        first = max(first, ladder[step - 1 : step], key=_strips)
    return shown(first)


def _strips(units: Sequence[_Unit]) -> int:
    return sum(len(unit.strips) for unit in units)


def _by_priority(passages: Sequence[Sequence[Strip]]) -> list[_Unit]:
    """All units, the first to be kept first; ties in rank order and document order."""
    units = [unit for place, strips in enumerate(passages) for unit in _units(place, strips)]
    worths = sorted(unit.worth for unit in units if unit.worth is not None)

    def rank(worth: float | None) -> float:
        return (len(worths) - 1) / 2 if worth is None else len(worths) - bisect_right(worths, worth)

    def priority(unit: _Unit) -> tuple[bool, float]:
        return unit.chars > LARGE_CHARS, -(1 / (_OFFSET + unit.place) + 1 / (_OFFSET + rank(unit.worth)))

    return sorted(units, key=priority)


def _units(place: int, strips: Sequence[Strip]) -> list[_Unit]:
    together: dict[Hashable, list[Strip]] = {}
    for i, strip in enumerate(strips):
        together.setdefault(("alone", i) if strip.unit is None else strip.unit, []).append(strip)
    return [_Unit(place, tuple(members)) for members in together.values()]


def _ladder(units: Sequence[_Unit]) -> list[_Unit]:
    """From small to large, what may be shown alone: each the first of its size or less in order of priority, and of no fewer strips than those below it."""
    shrinking: list[_Unit] = []
    for unit in units:
        if not shrinking or unit.chars < shrinking[-1].chars:
            shrinking.append(unit)
    ladder: list[_Unit] = []
    for unit in reversed(shrinking):
        if not ladder or len(unit.strips) >= len(ladder[-1].strips):
            ladder.append(unit)
    return ladder
