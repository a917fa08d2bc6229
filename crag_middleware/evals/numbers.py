"""Numbers of a report that have a name: what each is, for people, and as a statistic of a run's rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from crag_middleware.evals.html import brief
from crag_middleware.evals.statistics import Array, Estimate, Indexes, Statistic, estimates

R = TypeVar("R")


class Groups(NamedTuple):
    """Which rows are drawn together, since they depend on each other.

    Attributes:
        of: For each row the number of its group, counted from 0.
        total: How many groups there are.
    """

    of: Indexes
    total: int


@dataclass(frozen=True, slots=True)
class Number(Generic[R]):
    """One number of a report.

    Attributes:
        name: In the JSON.
        title: In a table.
        meaning: What it is, in a sentence.
        of: The statistic over rows; its weights are those of groups.
    """

    name: str
    title: str
    meaning: str
    of: Callable[[Sequence[R], Groups], Statistic]


def grouped(names: Sequence[str]) -> Groups:
    """Rows of one name are one group."""
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return Groups(np.array([number[name] for name in names], dtype=np.intp), len(number))


def estimated(numbers: Sequence[Number[R]], rows: Sequence[R], groups: Groups, *, resamples: int, seed: int) -> dict[str, Estimate | None]:
    """Each number with its interval, by name, all from the same resamples of the groups; None where it is undefined."""
    found: Sequence[Estimate | None] = [None] * len(numbers)
    if rows:
        statistics = [number.of(rows, groups) for number in numbers]
        found = estimates(lambda weights: np.column_stack([of(weights) for of in statistics]), groups.total, resamples=resamples, seed=seed)
    return {number.name: value for number, value in zip(numbers, found, strict=True)}


def mean_of(value: Callable[[R], float | None]) -> Callable[[Sequence[R], Groups], Statistic]:
    """The mean of a value over the rows that have one; of a flag it is the share."""

    def of(rows: Sequence[R], groups: Groups) -> Statistic:
        known = [(n, found) for n, row in enumerate(rows) if (found := value(row)) is not None]
        owner = groups.of[[n for n, _ in known]]
        total = np.bincount(owner, weights=np.array([found for _, found in known], dtype=float), minlength=groups.total)
        cases = np.bincount(owner, minlength=groups.total).astype(float)

        def mean(weights: Array) -> Array:
            drawn = weights @ cases
            quotient: Array = np.divide(weights @ total, drawn, out=np.full(len(drawn), np.nan), where=drawn > 0)
            return quotient

        return mean

    return of


def lines(numbers: Sequence[Number[R]], found: Mapping[str, Estimate | None]) -> list[list[str]]:
    """A row of a page's table for each number: title, value with interval, meaning."""
    return [[number.title, brief(found[number.name]), number.meaning] for number in numbers]
