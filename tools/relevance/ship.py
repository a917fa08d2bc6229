"""Fits the calibrations that are shipped with the package, and writes them to crag_middleware/calibrations.

    python tools/relevance/ship.py embedding --data DIR [--embeddings e5] [--share 0.3]
    python tools/relevance/ship.py run ROWS.jsonl

`embedding` grades the sets of `sets.py` and our own pairs; `run` takes the rows that `crag eval relevance examples/eval/relevance.jsonl` wrote for an
evaluator on a chat model.
"""

import argparse
import re
from pathlib import Path

from fit import OWN
from sets import near_by, public_sets

from crag_middleware import E5Embeddings, EmbeddingEvaluator, LocalEmbeddings
from crag_middleware.calibration import Calibration
from crag_middleware.evals.aims import Aims
from crag_middleware.evals.datasets import load
from crag_middleware.evals.fit import fit
from crag_middleware.evals.rows import Row, read
from crag_middleware.evals.runner import evaluate
from crag_middleware.stages.relevance import FOREIGN_AT_MOST
from crag_middleware.types import EvaluatorKey

SHIPPED = Path(__file__).resolve().parents[2] / "crag_middleware" / "calibrations"
AIMS = Aims(missed=0.05, false=0.2)
"""A missed answer costs more than a doubtful one that is called relevant: the agent's model still reads it."""

PUBLIC = (
    "SQuAD 2.0 (CC BY-SA 4.0), CLAPnq (Apache-2.0) and CMRC 2018 (CC BY-SA 4.0), cut into sets of passages by tools/relevance/sets.py; "
    "54 hand-made questions of this project (MIT)"
)
"""What the offline evaluator's calibrations are fitted on."""


def main() -> None:
    """Fits, writes and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    kinds = parser.add_subparsers(dest="kind", required=True)
    embedding = kinds.add_parser("embedding")
    embedding.add_argument("--data", type=Path, required=True)
    embedding.add_argument("--embeddings", choices=("local", "e5"), default="local")
    embedding.add_argument("--share", type=float, default=1.0)
    run = kinds.add_parser("run")
    run.add_argument("rows", type=Path)
    options = parser.parse_args()
    if options.kind == "run":
        _write(*_of_run(options.rows))
    else:
        _write(*_of_embeddings(options.data, e5=options.embeddings == "e5", share=options.share))


def _of_embeddings(data: Path, *, e5: bool, share: float) -> tuple[EvaluatorKey, list[Row], str]:
    public = public_sets(data, near_by(LocalEmbeddings()))[:: max(1, round(1 / share))]
    own = [item for item in load([OWN / "relevance.jsonl"]) if item.source == "handmade" and item.answerable]
    evaluator = EmbeddingEvaluator(E5Embeddings() if e5 else LocalEmbeddings())
    return evaluator.key, list(evaluate([*public, *own], evaluator)), PUBLIC


def _of_run(path: Path) -> tuple[EvaluatorKey, list[Row], str]:
    key, rows = read(path)
    return (
        key,
        list(rows.values()),
        "73 hand-made questions of this project (MIT); 32 questions of CLAPnq (Apache-2.0) and CMRC 2018 (CC BY-SA 4.0): examples/eval/relevance.jsonl",
    )


def _write(key: EvaluatorKey, rows: list[Row], fitted_on: str) -> None:
    fitted = fit(rows, key=key, fitted_on=fitted_on, aims=AIMS)
    calibration = _above_foreign(fitted.calibration) if key.evaluator == "EmbeddingEvaluator" else fitted.calibration
    name = re.sub(r"[^a-z0-9]+", "-", f"{key.evaluator} {key.model}".lower()).strip("-")
    SHIPPED.mkdir(exist_ok=True)
    calibration.save(SHIPPED / f"{name}.json")
    print(f"{name}.json: {calibration.described}\n  " + "\n  ".join(calibration.aims))


def _above_foreign(calibration: Calibration) -> Calibration:
    """The calibration with its upper threshold where no passage that lacks a name of the question can reach it."""
    lower, upper = calibration.thresholds
    bound = calibration.map(FOREIGN_AT_MOST)
    if upper >= bound:
        return calibration
    note = f"the upper threshold is raised from {upper:.3f}, so that a passage that lacks a name of the question is ambiguous at most"
    return calibration.model_copy(update={"thresholds": (lower, bound), "aims": (*calibration.aims, note)})


if __name__ == "__main__":
    main()
