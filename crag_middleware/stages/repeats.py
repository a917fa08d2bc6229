"""Whether a sentence says again what another one said, so that its place can go to something new."""

import re
from dataclasses import dataclass, field

from crag_middleware.stages.numbers import numbers
from crag_middleware.stages.words import terms

SAME = 0.8
"""A sentence repeats another if this share of its words stands there."""

MIN_WORDS = 4
"""Shorter sentences are taken to repeat only their like: too little stands in them."""

_TURNS = re.compile(
    r"\b(?:not|never|no|nor|neither|without|cannot|if|when|until|unless|except\w*|only|must|may|might|before|after|but|however)\b|n't\b"
    r"|[不没无未勿非若如仅只除须]|例外|可能|之前|之后|以前|以后|但",
    re.IGNORECASE,
)
"""Words that turn what a sentence says: two sentences that differ in one are two statements."""


@dataclass(slots=True)
class Said:
    """What has been said so far."""

    _sentences: list[tuple[frozenset[str], frozenset[str], frozenset[str]]] = field(default_factory=list)

    def repeats(self, sentence: str) -> bool:
        """Whether the sentence says nothing new: its words stand in an earlier one, and numbers, negations and conditions are the same."""
        words, counted, turns = _parts(sentence)
        return any(
            counted == other_counted
            and turns == other_turns
            and len(words & other) >= (SAME * len(words) if len(words) >= MIN_WORDS else len(words | other))
            for other, other_counted, other_turns in self._sentences
        )

    def add(self, sentence: str) -> None:
        """Remember a sentence."""
        self._sentences.append(_parts(sentence))


def _parts(sentence: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Its words, numbers, and words that turn it."""
    return frozenset(terms(sentence)), numbers(sentence), frozenset(map(str.casefold, _TURNS.findall(sentence)))
