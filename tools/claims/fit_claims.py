"""Fits the weights of the offline claim checker (`stages/claim_check.py`) and prints them with what they reach on data held out.

    python tools/claims/fit_claims.py DIR

DIR holds the claims and passages as `claim_sets.py` reads them. Each set counts the same, but as `SHARES` says. A set has a constant of its own while
the weights are fitted, since sets differ in how many of their claims are supported, and the constant that ships puts `KEPT` of the supported claims
of each language's sets without a conflict at the threshold or above. No weight may speak against its number's meaning.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from claim_sets import Item, claims, edited
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from crag_middleware.stages.claim_check import conflict, lowered
from crag_middleware.stages.claim_check_index import Index
from crag_middleware.stages.claim_check_traits import Claimed, Traits, read

SIGNS = Traits(words=1, order=1, pairs=1, copied=1, absent=-1, numbers=-1, changed=-1, swapped=-1, negated=-1, opposite=-1, names=-1)
SHARES = {"handmade en": 0.5, "handmade zh": 0.5, "edits en": 0.3, "edits zh": 0.3, "ExpertQA en": 1.5}
RIDGE = 0.002
"""Of the squared weights of standardised numbers, against the mean loss of a claim."""
FOLDS = 5
KEPT = {"en": 0.9, "zh": 0.95}
"""Less in English, where more of the supported claims are in words of their own."""


def main() -> None:
    """Fits and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    items = [*claims(folder), *edited(folder)]
    table, readable = numbers(items)
    source = np.array([item.source for item in items])
    truth = np.array([item.supported for item in items])
    fold = np.array([sum(map(ord, item.group)) % FOLDS for item in items])
    held, left = np.zeros(len(items)), np.zeros(len(items))
    for lang in ("en", "zh"):
        mine = np.array([item.lang == lang for item in items]) & readable
        for part in range(FOLDS):
            held[mine & (fold == part)] = table[mine & (fold == part)] @ fit(table, truth, source, mine & (fold != part))
        for name in sorted(set(source[mine])):
            kin = np.char.startswith(source, name.split()[0] if name.startswith("SafeRAG") else name)
            left[mine & (source == name)] = table[mine & (source == name)] @ fit(table, truth, source, mine & ~kin)
        weights = fit(table, truth, source, mine)
        clear = np.array([conflict(Traits(*row), lang) is None for row in table])
        scores = table @ weights
        constant = -np.mean(
            [
                np.quantile(scores[(source == name) & clear & truth & mine], 1 - KEPT[lang])
                for name in set(source[mine])
                if "edits" not in name
            ]
        )
        told = ", ".join(f"{name}={weight:.2f}" for name, weight in zip(Traits._fields, weights, strict=True))
        print(f'"{lang}": Weights({constant:.2f}, Traits({told})),')
        held[mine] += constant
        left[mine] += constant
    print(f"\n{'set':16} {'claims':>6} {'held out':>9} {'set left out':>12}")
    for name in sorted(set(source)):
        some = (source == name) & readable
        both = [roc_auc_score(truth[some], capped(scores[some], table[some], name[-2:])) for scores in (held, left)]
        print(f"{name:16} {some.sum():6} {both[0]:9.3f} {both[1]:12.3f}")


def numbers(items: Sequence[Item]) -> tuple[np.ndarray, np.ndarray]:
    """Each claim's numbers, and whether anything it may rest on has words."""
    parts = {item.grounds: Index(item.grounds).within(None) for item in items}
    readable = [any(sentence.tokens for sentence in parts[item.grounds].sentences) for item in items]
    return np.array([read(Claimed(item.claim), parts[item.grounds]).traits for item in items], float), np.array(readable)


def capped(scores: np.ndarray, table: np.ndarray, lang: str) -> np.ndarray:
    """The probabilities, lowered where there is a conflict."""
    p = 1 / (1 + np.exp(-scores))
    return np.array([lowered(one) if conflict(Traits(*row), lang) else one for one, row in zip(p, table, strict=True)])  # type: ignore[arg-type]


def fit(table: np.ndarray, truth: np.ndarray, source: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The weights: logistic regression with a constant for each set and signs given."""
    rows, labels, names = table[kept], np.where(truth[kept], 1.0, -1.0), sorted(set(source[kept]))
    spread = rows.std(axis=0) + 1e-9
    scaled = (rows - rows.mean(axis=0)) / spread
    sets = np.stack([source[kept] == name for name in names], axis=1).astype(float)
    share = np.array([SHARES.get(name, 1.0) for name in names]) / sets.sum(axis=0)
    weight = sets @ share / share.dot(sets.sum(axis=0))
    count = scaled.shape[1]

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        score = labels * (scaled @ x[:count] + sets @ x[count:])
        slope = -labels * weight / (1 + np.exp(score))
        value = weight @ np.logaddexp(0, -score) + RIDGE * x[:count] @ x[:count]
        return value, np.concatenate([scaled.T @ slope + 2 * RIDGE * x[:count], sets.T @ slope])

    bounds = [(0, None) if sign > 0 else (None, 0) for sign in SIGNS] + [(None, None)] * len(names)
    weights: np.ndarray = minimize(loss, np.zeros(count + len(names)), jac=True, bounds=bounds, method="L-BFGS-B").x[:count] / spread
    return weights


if __name__ == "__main__":
    main()
