"""What a claim checker is measured against: how many of a claim's words stand in its evidence."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from crag_middleware.stages.citations import mend
from crag_middleware.stages.numbers import numbers
from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import terms


@dataclass(frozen=True, slots=True)
class Baseline:
    """One way to score a claim.

    Attributes:
        name: In the JSON.
        title: In a table.
        meaning: What it does, in a sentence.
        score: For a claim and the texts that it may rest on, in [0, 1]; higher is more supported.
    """

    name: str
    title: str
    meaning: str
    score: Callable[[str, Sequence[str]], float]


def _words(claim: str, grounds: Sequence[str]) -> float:
    return _share(set(terms(_bare(claim))), "\n".join(grounds))


def _best_and_numbers(claim: str, grounds: Sequence[str]) -> float:
    bare, text = _bare(claim), "\n".join(grounds)
    if not numbers(bare) <= numbers(text):
        return 0.0
    wanted = set(terms(bare))
    best = max((_share(wanted, strip.text) for ground in grounds for strip in split(ground)), default=0.0)
    return (_share(wanted, text) + best) / 2


def _share(wanted: Collection[str], text: str) -> float:
    return len(set(terms(text)).intersection(wanted)) / len(wanted) if wanted else 0.0


def _bare(claim: str) -> str:
    """The claim without citations."""
    return mend(claim, {}).text


BASELINES = (
    Baseline(
        "coverage", "word coverage", "the share of the claim's words, Chinese ones as pairs of characters, that the evidence has", _words
    ),
    Baseline(
        "with_numbers",
        "coverage, best sentence, numbers",
        "the mean of that share and of the best sentence's, and 0 if the evidence lacks one of the claim's numbers",
        _best_and_numbers,
    ),
)
