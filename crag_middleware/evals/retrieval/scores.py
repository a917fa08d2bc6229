"""What one question's ranking is worth, given what people said of the documents. Judged 0 or not at all: not relevant."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import log2
from operator import mul

Grades = Mapping[str, int]
"""How relevant a document is, by id; above 0 is relevant, and higher is better."""


def recall(ranked: Sequence[str], grades: Grades, k: int) -> float:
    """The share of the relevant documents that stand among the first `k`, in [0, 1]; there must be one."""
    relevant = {name for name, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranked[:k])) / len(relevant)


def ndcg(ranked: Sequence[str], grades: Grades, k: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `k`, in [0, 1]; there must be a relevant document.

    The gain is the grade itself and rank i is discounted by log2(i + 1), as by trec_eval and BEIR; with gains 2^grade - 1, as in learning to rank, numbers
    would be others. The ideal ranking holds all relevant documents, found or not.

    Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20(4), 2002, doi:10.1145/582415.582418, with the discount
    of trec_eval's `ndcg_cut`, which spares no rank but the first.
    """
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    return _gain([max(grades.get(name, 0), 0) for name in ranked[:k]]) / _gain(best[:k])


def reciprocal_rank(ranked: Sequence[str], grades: Grades, k: int = 10) -> float:
    """1 / the rank of the first relevant document, 0 if none is among the first `k`; averaged over questions it is the mean reciprocal rank.

    Source: Voorhees, "The TREC-8 Question Answering Track Report", 1999.
    """
    return next((1 / rank for rank, name in enumerate(ranked[:k], 1) if grades.get(name, 0) > 0), 0.0)


def redundancy(vectors: Sequence[Sequence[float]]) -> float | None:
    """How alike passages are: the mean cosine over all pairs of their vectors, which are of length 1. None for fewer than two."""
    cosines = [sum(map(mul, a, b)) for a, b in combinations(vectors, 2)]
    return sum(cosines) / len(cosines) if cosines else None


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / log2(rank + 1) for rank, grade in enumerate(grades, 1))
