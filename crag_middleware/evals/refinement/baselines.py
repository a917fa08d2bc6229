"""What a refiner is measured against: simple ways to rank strips, and no ranking at all."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import log

import numpy as np

from crag_middleware.adapters.local_embeddings import LocalEmbeddings
from crag_middleware.stages.sentences import split
from crag_middleware.types import Passage, Strip

Pages = Sequence[Sequence[Strip]]
"""The strips of each passage."""

_WORD = re.compile(r"[^\W_\u4e00-\u9fff]+|[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class Baseline:
    """One way to rank.

    Attributes:
        name: In the JSON.
        title: In a table.
        meaning: What it does, in a sentence.
        worth: For a question and the strips of its passages, what each strip is worth, in one row.
        whole: Passages are one strip each.
    """

    name: str
    title: str
    meaning: str
    worth: Callable[[str, Pages], Sequence[float]]
    whole: bool = False


def rank(baseline: Baseline, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
    """Every strip of every passage with its worth."""
    pages = [[Strip(p.text, 0, len(p.text))] if baseline.whole and p.text else split(p.text) for p in passages]
    worth = iter(baseline.worth(question, pages))
    return [[replace(strip, worth=float(next(worth))) for strip in page] for page in pages]


def _in_order(_question: str, pages: Pages) -> list[float]:
    """The first strip of each passage, then the second of each, and so on."""
    return [-float(place * len(pages) + number) for number, page in enumerate(pages) for place in range(len(page))]


def _keywords(question: str, pages: Pages) -> list[float]:
    wanted = frozenset(question.lower().split())
    return [float(len(wanted.intersection(strip.text.lower().split()))) for strip in chain.from_iterable(pages)]


def _overlap(question: str, pages: Pages) -> list[float]:
    """Inverse document frequencies over the strips, smoothed as by scikit-learn's `TfidfTransformer`; sorted, so that a set's order decides no tie."""
    words = [frozenset(_WORD.findall(strip.text.lower())) for strip in chain.from_iterable(pages)]
    frequency = Counter(chain.from_iterable(words))
    wanted = sorted(frequency.keys() & set(_WORD.findall(question.lower())))
    weight = {word: log((1 + len(words)) / (1 + frequency[word])) + 1 for word in wanted}
    return [sum(weight[word] for word in wanted if word in found) for found in words]


def _meaning(question: str, pages: Pages) -> list[float]:
    vectors = np.array(_embeddings().embed_documents([question, *(strip.text for strip in chain.from_iterable(pages))]))
    cosines: list[float] = (vectors[1:] @ vectors[0]).tolist()
    return cosines


@cache
def _embeddings() -> LocalEmbeddings:
    return LocalEmbeddings()


BASELINES = (
    Baseline("whole", "whole passages", "no refinement: as many whole passages as fit, in rank order", _in_order, whole=True),
    Baseline("first", "first sentences", "the first sentence of each passage in rank order, then the second of each, and so on", _in_order),
    Baseline("keywords", "keyword match", "how many of the question's words, cut at white space, are in the sentence", _keywords),
    Baseline(
        "overlap",
        "idf word overlap",
        "the inverse frequencies of the question's words and Chinese characters in the sentence, summed",
        _overlap,
    ),
    Baseline("embedding", "embedding filter", "the cosine of the sentence's and the question's vectors by `LocalEmbeddings`", _meaning),
)
"""Sentences are our strips in all of them."""
