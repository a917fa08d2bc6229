"""Measures the offline claim checker and two baselines: AUC, false alarms and what is caught by set, and generated edits by kind and language.

    python tools/claims/measure.py DIR [--seed 7]

The AUC of a set is that of the shipped weights, which were fitted on these sets, too; `fit.py` tells it on data held out.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from claim_sets import Item, claims, edited
from sklearn.metrics import roc_auc_score

from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.stages.claim_check import THRESHOLD, check
from crag_middleware.types import Checked, Claim, Ground


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=7, help="of the edits; the weights were fitted with 0")
    options = parser.parse_args()
    by_set: dict[str, list[Item]] = defaultdict(list)
    for item in claims(options.folder):
        by_set[item.source].append(item)
    print(f"{'set':16} {'claims':>6} {'words':>7} {'+ best, numbers':>15} {'checker':>8} {'false alarms':>13} {'caught':>7}")
    for name, items in sorted(by_set.items()):
        truth = [item.supported for item in items]
        checked = [_checked(item) for item in items]
        aucs = [
            roc_auc_score(truth, scores)
            for scores in (
                *([baseline.score(item.claim, item.grounds) for item in items] for baseline in BASELINES),
                [found.probability for found in checked],
            )
        ]
        passed = [found.probability is None or found.probability >= THRESHOLD for found in checked]
        alarms = sum(good and not fine for good, fine in zip(truth, passed, strict=True)) / sum(truth)
        caught = sum(not good and not fine for good, fine in zip(truth, passed, strict=True)) / (len(truth) - sum(truth))
        print(f"{name:16} {len(items):6} {aucs[0]:7.3f} {aucs[1]:15.3f} {aucs[2]:8.3f} {alarms:13.1%} {caught:7.1%}")
    kinds: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for item in edited(options.folder, seed=options.seed):
        kinds[item.kind, item.lang].append((_checked(item).probability or 0) < THRESHOLD)
    print("\nedits, share that lies below the threshold")
    for (kind, lang), flagged in sorted(kinds.items()):
        print(f"{kind:10} {lang} {len(flagged):5} {sum(flagged) / len(flagged):8.2%}")


def _checked(item: Item) -> Checked:
    grounds = [Ground(text, "source", number) for number, text in enumerate(item.grounds, 1)]
    return check([Claim(item.claim, 0, len(item.claim))], grounds)[0]


if __name__ == "__main__":
    main()
