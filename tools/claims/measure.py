"""Measures the offline claim checker and two baselines: AUC, false alarms and what is caught by set, and generated edits by kind and language.

    python tools/claims/measure.py DIR [--seed 7]

The AUC of a set is that of the shipped weights, which were fitted on these sets, too; `fit.py` tells it on data held out.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from claim_sets import Item, claims, edited
from sklearn.metrics import roc_auc_score

from crag_middleware.stages.claim_check import THRESHOLD, check
from crag_middleware.stages.claims import simple_cited
from crag_middleware.stages.numbers import numbers
from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import terms
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
            for scores in (*zip(*map(_baselines, items), strict=True), [found.probability for found in checked])
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


def _baselines(item: Item) -> tuple[float, float]:
    """Share of the claim's words in all grounds; the mean of that and the best sentence's, 0 if a number is missing."""
    wanted, text = set(terms(_bare(item.claim))), "\n".join(item.grounds)
    if not wanted:
        return 0.0, 0.0
    cover = len(wanted & set(terms(text))) / len(wanted)
    best = max((len(wanted & set(terms(strip.text))) / len(wanted) for ground in item.grounds for strip in split(ground)), default=0.0)
    return cover, (cover + best) / 2 * (numbers(_bare(item.claim)) <= numbers(text))


def _bare(claim: str) -> str:
    """A claim without its citations."""
    for number in simple_cited(claim):
        claim = claim.replace(f"[{number}]", " ")
    return claim


if __name__ == "__main__":
    main()
