"""The few passages that go on: relevant, unlike each other, and none of the parts of a question forgotten."""

from collections.abc import Callable, Sequence

from crag_middleware.stages.fusion import finite
from crag_middleware.stages.sameness import Looks
from crag_middleware.stages.vectors import cosine, unit
from crag_middleware.types import Passage


def select(passages: Sequence[Passage], limit: int, *, mmr_lambda: float, fair: bool) -> tuple[Passage, ...]:
    """At most `limit` of the passages, in the order in which they were chosen: each time the one with the greatest maximal marginal relevance.

    That is `mmr_lambda * relevance - (1 - mmr_lambda) * similarity`. The relevance is the reranker's score if any passage has one, else the fused
    score, on a scale from 0 to 1 within these passages; one without it has 0. The similarity is that to the most similar one chosen before: the cosine of
    their vectors where both have one of the same length, else the share of trigrams that they have in common. Ties keep the given order.

    Args:
        passages: Best first.
        limit: How many are chosen at most.
        mmr_lambda: Relevance against variety, in [0, 1]. At 1 the given order decides, whatever the scores.
        fair: Whether the best passage of every query that found anything has a place, as far as there are places: the one that stands highest in any
            list of that query, the first given of several.

    Source: Carbonell and Goldstein, SIGIR 1998, doi:10.1145/290941.291025.
    """
    places = range(len(passages))
    due = _bests(passages) if fair else []
    worth = [-float(i) for i in places] if mmr_lambda == 1 else [mmr_lambda * score for score in _relevance(passages)]
    similarity = _similarity(passages)
    nearest = [0.0] * len(passages)
    chosen: list[int] = []
    while len(chosen) < min(limit, len(passages)):
        due = [i for i in due if i not in chosen]
        open_ = due if len(due) >= limit - len(chosen) else [i for i in places if i not in chosen]
        best = max(open_, key=lambda i: (worth[i] - (1 - mmr_lambda) * nearest[i], -i))
        if mmr_lambda < 1:
            near = [similarity(best, i) for i in places]
            nearest = [max(pair) for pair in zip(nearest, near, strict=True)] if chosen else near
        chosen.append(best)
    return tuple(passages[i] for i in chosen)


def _bests(passages: Sequence[Passage]) -> list[int]:
    """The best passage of every query, by place."""
    best: dict[int, tuple[int, int]] = {}
    for place, passage in enumerate(passages):
        for hit in passage.hits:
            best[hit.query] = min(best.get(hit.query, (hit.rank, place)), (hit.rank, place))
    return sorted({place for _, place in best.values()})


def _relevance(passages: Sequence[Passage]) -> list[float]:
    """The scores on a scale from 0 to 1; a passage without one has 0."""
    scores = [finite(p.rerank_score) for p in passages]
    if all(score is None for score in scores):
        scores = [finite(p.fused_score) for p in passages]
    known = [score for score in scores if score is not None]
    low, width = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    return [(score - low) / width if score is not None and width else 0.0 for score in scores]


def _similarity(passages: Sequence[Passage]) -> Callable[[int, int], float]:
    """Tells how similar two passages are, by place."""
    vectors, looks = [unit(p.vector) for p in passages], Looks()

    def similarity(one: int, other: int) -> float:
        a, b = vectors[one], vectors[other]
        if a and b and len(a) == len(b):
            return cosine(a, b)
        return looks[passages[one].text].share(looks[passages[other].text])

    return similarity
