"""What places in several lists are worth together: reciprocal rank fusion, with the routes' weights and the passages' age."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite
from numbers import Real
from typing import Any

from crag_middleware.types import Hit, Passage

MS_A_DAY = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """How several lists become one.

    Attributes:
        weights: What a place in a route's lists counts, above 0, by the route's name; 1 for a route that is not named.
        half_life_days: After how many days a passage counts half, by the route's name; a route that is not named forgets nothing.
        by_type: The same by document type (`doc_type` in the metadata); over any route's.
        now_ms: When the turn began, in milliseconds since the epoch.
        rrf_k: The constant of reciprocal rank fusion: larger values shrink the gap between head and tail.
        near: Cosine similarity from which two passages of one meaning are copies; None to compare by text only.
    """

    weights: Mapping[str, float]
    half_life_days: Mapping[str, float]
    by_type: Mapping[str, float]
    now_ms: int
    rrf_k: int = 60
    near: float | None = 0.95


def fused(passages: Sequence[Passage], rules: MergeRules) -> list[float]:
    """The worth of each passage: the sum over the lists it was found in of `weight / (rrf_k + rank)`, each halved with every half-life of its age.

    Its rank in a list is its best there, counted among distinct passages: a further place of one that stands before it, found there as another copy or another
    chunk, does not push it down. A passage without a date, or with one to come, has age 0; so has one that no half-life applies to.

    Returns:
        At most the sum of the lists' weights divided by `rrf_k + 1`; 0 for a passage without hits.

    Source: Cormack et al., SIGIR 2009, doi:10.1145/1571941.1572114.
    """
    best = [_best(passage.hits) for passage in passages]
    spare: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for places in best:
        for one, ranks in places.items():
            spare[one] += ranks[1:]
    for ranks in spare.values():
        ranks.sort()
    return [
        fsum(
            _worth(passage, route, max(1, ranks[0] - bisect_left(spare[route, query], ranks[0])), rules)
            for (route, query), ranks in places.items()
        )
        for passage, places in zip(passages, best, strict=True)
    ]


def strength(passage: Passage, hits: Iterable[Hit], rules: MergeRules) -> float:
    """The worth of some hits alone, with the passage's age; ranks count as they are."""
    return fsum(_worth(passage, route, ranks[0], rules) for (route, _), ranks in _best(hits).items())


def finite(number: Any) -> float | None:
    """The number; None for what is none, and for NaN and infinities, which no order stands."""
    return float(number) if isinstance(number, Real) and isfinite(number) else None


def _best(hits: Iterable[Hit]) -> dict[tuple[str, int], list[int]]:
    """The ranks in each list, the best first."""
    places: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for hit in hits:
        places[hit.route, hit.query].add(hit.rank)
    return {one: sorted(ranks) for one, ranks in places.items()}


def _worth(passage: Passage, route: str, rank: int, rules: MergeRules) -> float:
    kind = passage.metadata.get("doc_type")
    half_life = rules.by_type.get(kind) if isinstance(kind, str) else None
    half_life = rules.half_life_days.get(route) if half_life is None else half_life
    created = finite(passage.created_at)
    half_lives = 0.0 if half_life is None or created is None else max(0.0, (rules.now_ms - created) / MS_A_DAY / half_life)
    aged: float = 0.5**half_lives
    return rules.weights.get(route, 1.0) * aged / (rules.rrf_k + rank)
