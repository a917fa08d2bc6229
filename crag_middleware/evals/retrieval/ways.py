"""The ways to retrieve that are compared: each leg alone, their fusion, and what may follow it."""

from collections.abc import Mapping
from dataclasses import dataclass

DENSE, BM25, RRF, RERANK = "dense", "bm25", "rrf", "rerank"

LAMBDAS = (0.5, 0.7, 0.8, 0.9, 1.0)
"""Of maximal marginal relevance; at 1.0 only copies are left out."""

MMR: Mapping[str, float] = {f"mmr_{mmr_lambda:g}": mmr_lambda for mmr_lambda in LAMBDAS}
"""What each lambda is called."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to retrieve: its name in the JSON, its title in a table, and what it does."""

    name: str
    title: str
    meaning: str


WAYS = (
    Way(DENSE, "dense", "the nearest vectors alone"),
    Way(BM25, "BM25", "the keyword leg alone"),
    Way(RRF, "RRF", "both legs fused by reciprocal ranks, as `MilvusRetriever` does it"),
    Way(RERANK, "RRF + rerank", "the same passages in the reranker's order"),
    *(
        Way(name, f"RRF + MMR {mmr_lambda:g}", f"the same passages chosen for variety, lambda {mmr_lambda:g}")
        for name, mmr_lambda in MMR.items()
    ),
)
"""In the order of a report."""

TITLES = {way.name: way.title for way in WAYS}
"""The names of ways, for people."""
