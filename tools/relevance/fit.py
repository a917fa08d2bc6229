"""Fits the weights of the offline evaluator (`stages/relevance.py`) for an embedding model, and prints them.

    python tools/relevance/fit.py --data DIR [--embeddings e5] [--share 0.3]

DIR holds SQuAD 2.0, CLAPnq and CMRC 2018 as `sets.py` reads them; our own sets are in examples/eval. Of those the near misses count little: they were
written to share more words with the question than the answers do, which is true of no search.
"""

import argparse
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
from sets import near_by, public_sets
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crag_middleware import E5Embeddings, EmbeddingEvaluator, LocalEmbeddings
from crag_middleware.evals.datasets import Item, load
from crag_middleware.stages.relevance import Features

OWN = Path(__file__).resolve().parents[2] / "examples" / "eval"
WEIGHTS = {"SQuAD 2.0": 1.0, "CMRC 2018": 1.3, "CLAPnq": 1.5, "near misses": 0.5, "handmade": 5.0}
"""Of one passage of each source: the small sources count more."""

OURS = ("near misses", "handmade")


def main() -> None:
    """Fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="where the public data is")
    parser.add_argument("--embeddings", choices=("local", "e5"), default="local")
    parser.add_argument("--share", type=float, default=1.0, help="fit on this share of the public sets")
    options = parser.parse_args()
    embeddings = E5Embeddings() if options.embeddings == "e5" else LocalEmbeddings()
    public = public_sets(options.data, near_by(LocalEmbeddings()))
    public = public[:: max(1, round(1 / options.share))]
    own = [item for item in load([OWN / "relevance.jsonl", OWN / "near_misses.jsonl"]) if item.source in OURS]
    evaluator = EmbeddingEvaluator(embeddings)
    rows = [row for item in public for row in _rows(evaluator, item, same_counts=True)]
    rows += [row for item in own for row in _rows(evaluator, item, same_counts=False)]
    numbers, relevant, weights = (np.array(column) for column in zip(*rows, strict=True))
    plain, offset = _weights(numbers, relevant, weights)
    told = ", ".join(f"{field.name}={weight:.3f}" for field, weight in zip(fields(Features), plain, strict=True))
    print(f"# {len(public)} public and {len(own)} own sets, {len(rows)} passages, {relevant.mean():.1%} relevant")
    print(f"offset {offset:.3f}, Features({told})")


def _weights(numbers: np.ndarray, relevant: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The weight of each number, and the constant; a number whose weight would be negative is left out, since each speaks for a passage."""
    kept = list(range(numbers.shape[1]))
    while True:
        scaler = StandardScaler().fit(numbers[:, kept])
        model = LogisticRegression(C=0.01, max_iter=1000).fit(scaler.transform(numbers[:, kept]), relevant, sample_weight=weights)
        found = model.coef_[0] / scaler.scale_
        if found.min() >= 0:
            plain = np.zeros(numbers.shape[1])
            plain[kept] = found
            return plain, float(model.intercept_[0] - found @ scaler.mean_)
        kept = [place for place, weight in zip(kept, found, strict=True) if weight >= 0]


def _rows(evaluator: EmbeddingEvaluator, item: Item, *, same_counts: bool) -> list[tuple[tuple[float, ...], bool, float]]:
    labels = {p.id: label for p, label in zip(item.passages, item.labels, strict=True)}
    found = evaluator.features(item.question, item.passages, same_counts=same_counts)
    return [(astuple(numbers), labels[p.id] is True, WEIGHTS[item.source]) for p, numbers in found if labels[p.id] is not None]


if __name__ == "__main__":
    main()
