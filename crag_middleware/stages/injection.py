"""Orders to a model that stand in a text: what of it speaks to the reader's machine instead of telling something.

Signs of a kind are patterns with weights in log-odds, set by hand; most prove nothing alone. What stands close together is added up. Flagging marks a text
and lowers the trust in it, it is no protection: orders in a form nobody thought of pass.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from crag_middleware.stages.disguises import hidden, plain
from crag_middleware.stages.orders import LOUD, QUIET

FLAGGED = 0.5
"""From this score on a text is taken for one that gives orders."""

REACH = 300
"""Signs this many characters apart, or up to twice as many, belong together."""

DOUBT = 3.0
"""The weight at which the score is a half."""

DISGUISE = 1.5
"""Weight of having been hidden, on top of what was found in the hidden text."""


class Injection(NamedTuple):
    """How much a text reads like orders to a model, and by which signs.

    Attributes:
        score: In [0, 1]; 0 without any sign, from `FLAGGED` on orders are likely.
        kinds: The kinds of signs in the place that scores highest, in alphabetical order.
    """

    score: float
    kinds: tuple[str, ...] = ()


MAX_REMEMBERED = 20_000
"""Texts whose score is remembered, by digest: the same passages come up turn after turn, and reading one of 800 characters takes 1.5 ms."""

_remembered: dict[bytes, float] = {}


def injection_score(text: str) -> float:
    """How much a text reads like orders to a model, in [0, 1]; see `injection`."""
    key = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
    score = _remembered.get(key)
    if score is None:
        if len(_remembered) >= MAX_REMEMBERED:
            _remembered.clear()
        score = _remembered[key] = injection(text).score
    return score


def injection(text: str) -> Injection:
    """Looks for orders to a model in a text, in English and Chinese and the commonest ones in German, French, Spanish and Italian, in clear or disguised.

    The weights of the kinds of signs that stand within `REACH` of each other are added up, the highest of each kind; the text scores as its highest place does,
    so that it does not matter how long it is. Takes time in proportion to the text's length.
    """
    clear = plain(text)
    best, kinds = _highest(clear)
    for said in hidden(clear):
        weight, found = _highest(said)
        if weight and weight + DISGUISE > best:
            best, kinds = weight + DISGUISE, found | {"disguise": DISGUISE}
    return Injection(1 / (1 + math.exp(DOUBT - best)) if best else 0.0, tuple(sorted(kinds)))


def _highest(text: str) -> tuple[float, dict[str, float]]:
    """The highest sum of weights of different kinds in two neighbouring stretches, and the kinds with their weights."""
    stretches: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for start, kind, weight in _signs(text):
        here = stretches[start // REACH]
        here[kind] = max(weight, here.get(kind, 0.0))
    places = [
        here | {kind: max(weight, here.get(kind, 0.0)) for kind, weight in stretches.get(i + 1, {}).items()}
        for i, here in stretches.items()
    ]
    best = max(places, key=lambda place: sum(place.values()), default={})
    return sum(best.values()), best


def _signs(text: str) -> Iterator[tuple[int, str, float]]:
    """Where each sign begins, its kind and its weight, in no order."""
    for patterns, spelled in ((_QUIET, text.lower()), (_LOUD, text)):
        for kind, weights, pattern in patterns:
            for match in pattern.finditer(spelled):
                yield match.start(), kind, weights[(match.lastindex or 1) - 1]


def _compiled(worded: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, tuple[float, ...], re.Pattern[str]]]:
    """For each pattern its kind and the weight of each of its groups.

    Those of a kind that begin with a word are made one, the weightiest first: half the time. It only looks ahead, so that no sign hides another.
    """
    for kind, known in worded.items():
        heaviest = sorted(known.items(), key=lambda sign: -sign[1])
        words = {pattern: weight for pattern, weight in heaviest if pattern.startswith(r"\b")}
        if words:
            yield kind, tuple(words.values()), re.compile(rf"\b(?=\w)(?={'|'.join(f'({pattern})' for pattern in words)})", re.MULTILINE)
        for pattern, weight in heaviest:
            if pattern not in words:
                yield kind, (weight,), re.compile(pattern, re.MULTILINE)


_QUIET, _LOUD = tuple(_compiled(QUIET)), tuple(_compiled(LOUD))
