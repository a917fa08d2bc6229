"""Fits the weights that the refiners pick strips by (`stages/worth.py`), with and without embeddings, and with embeddings alone, and prints them.

    python tools/refinement/fit.py EVIDENCE.jsonl [--embeddings local,e5] [--limit N]

Of the evidence only the sets in `SOURCES` are used, whose licences allow it; their texts stay where they are. Each set counts the same, and so does each
question of a set.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crag_middleware import E5Embeddings, LocalEmbeddings
from crag_middleware.adapters.vectors import Vectors
from crag_middleware.errors import RefineError
from crag_middleware.evals.datasets import select
from crag_middleware.evals.refinement.questions import EvidenceItem, load_evidence
from crag_middleware.stages.refine import Turn
from crag_middleware.stages.worth import Sheet, Traits, read
from crag_middleware.types import Memo

SOURCES = ("HotpotQA", "CLAPnq", "CMRC")
"""HotpotQA (CC BY-SA 4.0), CLAPnq (Apache-2.0), CMRC 2018 (CC BY-SA 4.0)."""

EMBEDDINGS = {"local": LocalEmbeddings, "e5": E5Embeddings}
INSIDE = 0.5
"""A strip counts as one that answers if this share of it stands in gold sentences."""

BY_MEANING_ONLY = ("near", "near_behind")
WITHOUT_WORDS = ("opens", "kind", *BY_MEANING_ONLY)


def main() -> None:
    """Fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("evidence", type=Path)
    parser.add_argument("--embeddings", default="local,e5")
    parser.add_argument("--limit", type=int, help="questions of each set at most")
    options = parser.parse_args()
    items = [item for item in select(load_evidence([options.evidence]), limit=options.limit) if item.source.startswith(SOURCES)]
    counts = Counter(item.source for item in items)
    rows: list[np.ndarray] = []
    for name in options.embeddings.split(","):
        vectors = Vectors(EMBEDDINGS[name](), RefineError)
        memo: Memo = {}  # questions share their passages
        rows += [_rows(item, vectors, memo, 1 / counts[item.source]) for item in items]
    table = np.concatenate(rows)
    names = list(Traits._fields)
    print(f"# {dict(counts)}, {len(table)} strips with {options.embeddings}, {table[:, -2].mean():.1%} gold")
    _print("BY_WORDS", table, [n for n, name in enumerate(names) if name not in BY_MEANING_ONLY], names)
    _print("BY_MEANING", table, list(range(len(names))), names)
    _print("BY_MEANING_ALONE", table, [n for n, name in enumerate(names) if name in WITHOUT_WORDS], names)


def _rows(item: EvidenceItem, vectors: Vectors, memo: Memo, weight: float) -> np.ndarray:
    """For each strip its traits, whether it is gold, and its weight."""
    turn = Turn.of(item.passages)
    texts = [strip for page in turn.pages for strip in page.strips]
    asked, found = vectors.query(item.question, memo), iter(vectors.documents(texts, memo))
    near = [[vectors.similarity(asked, next(found)) for _ in page.strips] for page in turn.pages]
    sheets = [Sheet(title, page.text, page.strips, some) for title, page, some in zip(turn.titles, turn.pages, near, strict=True)]
    reading = read(item.question, sheets)
    gold = [[(g.start, g.end) for g in item.gold if g.passage == n] for n in range(len(turn.pages))]
    return np.array(
        [
            (*traits, _inside(piece.start, piece.end, spans), weight / len(texts))
            for row, page, spans in zip(reading.traits, turn.pages, gold, strict=True)
            for traits, piece in zip(row, page.pieces, strict=True)
        ]
    )


def _inside(start: int, end: int, spans: Sequence[tuple[int, int]]) -> bool:
    return sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in spans) > INSIDE * (end - start)


def _print(title: str, table: np.ndarray, kept: list[int], names: Sequence[str]) -> None:
    """Each number's weight, and the constant; a number whose weight would be negative is left out, since each speaks for a strip."""
    gold, weights = table[:, -2], table[:, -1] * len(table) / table[:, -1].sum()
    while True:
        scaler = StandardScaler().fit(table[:, kept])
        model = LogisticRegression(C=1.0, max_iter=1000).fit(scaler.transform(table[:, kept]), gold, sample_weight=weights)
        found = model.coef_[0] / scaler.scale_
        if found.min() >= 0:
            break
        kept = [place for place, weight in zip(kept, found, strict=True) if weight >= 0]
    told = ", ".join(f"{names[place]}={weight:.3f}" for place, weight in zip(kept, found, strict=True))
    print(f"{title} = ({float(model.intercept_[0] - found @ scaler.mean_):.3f}, Traits({told}))")


if __name__ == "__main__":
    main()
