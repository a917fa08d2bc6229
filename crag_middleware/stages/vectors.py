"""Vectors of passages, as far as pure Python needs them: how near two are, and what stands between several."""

from collections.abc import Iterable, Sequence
from math import dist, fsum, hypot, isfinite

Vector = tuple[float, ...]

_UNIT = 1e-3
"""How far a length may be from 1 to pass for it."""


def unit(vector: Sequence[float] | None) -> Vector | None:
    """The vector with length 1; None if there is none, or none of a direction."""
    if vector is None:
        return None
    numbers = tuple(vector)
    length = hypot(*numbers)
    if not length or not isfinite(length):
        return None
    return numbers if abs(length - 1) < _UNIT else tuple(n / length for n in numbers)


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of two vectors of length 1 and of the same dimension.

    By way of their distance, which the standard library computes several times faster than a sum of products.
    """
    return 1 - dist(one, other) ** 2 / 2


def mean(vectors: Iterable[Sequence[float] | None]) -> Vector | None:
    """The direction that lies between the vectors, with length 1; None if one is missing, or they are unlike or cancel out."""
    units = [unit(vector) for vector in vectors]
    known = [vector for vector in units if vector is not None]
    if len(known) < len(units) or len(set(map(len, known))) != 1:
        return None
    return unit([fsum(column) for column in zip(*known, strict=True)])
