"""What tells a passage that answers a question from one that is only near it, as numbers; and the weights that make a probability of them.

The passages of a set are looked at together: each is compared with the best of its set, and what other passages say, too, speaks for a passage that says it.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass

from crag_middleware.calibration import sigmoid
from crag_middleware.stages.answers import candidates
from crag_middleware.stages.names import named
from crag_middleware.stages.words import language, terms


@dataclass(frozen=True, slots=True)
class Read:
    """A passage as it is compared with a question.

    Attributes:
        head: Its title and what else names its matter; may be empty.
        parts: Its sentences, in order; at least one.
        near: Each part's nearness to the question in meaning: about 0 for an answer to another question, about 1 for an answer to this one.
    """

    head: str
    parts: tuple[str, ...]
    near: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """One passage's numbers.

    Attributes:
        near: The nearness of its nearest part.
        words: Share of the question's words that stand in it, in [0, 1]; a pair of Chinese characters counts half. At least `FOREIGN_WORDS` in a passage
            in another language than the question's, where its words can't stand.
        names: Share of the question's names and numbers that stand in it, in [0, 1]; 1 if the question has none.
        behind: How far it lies behind the best of its set, in nearness and rare words together; 0 for the best.
        said: How far it lies behind in how well others that are near, too, bear out a possible answer of it; in (-1, 0], 0 for the best and where none agree.
        told: The same of the words around its best part: the mean of the three that count most, each by its rarity in the set; at most 0.
    """

    near: float
    words: float
    names: float
    behind: float
    said: float
    told: float


STEEP = 1.5
"""How quickly a passage counts less as it lies behind the best of its set: one that lies 1 behind counts a fifth."""

FOREIGN_WORDS = 0.5
"""Of the question's words, taken to stand in a passage in another language."""

VERSION = "features-1"
"""Of the numbers and their weights. Others are another evaluator, whose probabilities need a calibration of their own: count it up."""

USE, E5 = "use-multilingual-v3", "multilingual-e5-small-4bit"

WEIGHTS = {
    USE: (-2.336, Features(near=0.78, words=1.528, names=0.533, behind=0.348, said=2.211, told=4.05)),
    E5: (-2.513, Features(near=1.932, words=0.0, names=0.222, behind=0.033, said=1.866, told=2.606)),
}
"""For each embedding model a constant and the weights, fitted by tools/relevance/fit.py, which says on what."""


FOREIGN_AT_MOST = 0.5
"""Probabilities of passages that lack a name, an identifier or a number of the question stay below this; in (0, 1], 1 for no such bound."""


def probability(found: Features, model: str) -> float:
    """P(the passage answers the question), in [0, 1], by logistic regression; other embedding models take the weights of `USE`.

    A passage that lacks one of the question's names or numbers is most often the right topic and the wrong product or version: Nginx is asked for and Apache
    found. All else may speak for it, so that no weight of `names` would do. Its odds against are those of the regression and those of `FOREIGN_AT_MOST`
    together: passages that lack a name keep their order, and none comes above the bound.
    """
    offset, weights = WEIGHTS.get(model, WEIGHTS[USE])
    p = sigmoid(offset + sum(weight * number for weight, number in zip(astuple(weights), astuple(found), strict=True)))
    return p if found.names == 1 else p * FOREIGN_AT_MOST / (p + FOREIGN_AT_MOST - p * FOREIGN_AT_MOST)


@dataclass(frozen=True, slots=True)
class _Found:
    """The place of a passage that bears most on the question: which part, how strongly, and what is said there."""

    part: str
    strength: float
    answers: frozenset[str]
    words: frozenset[str]


def features(question: str, reads: Sequence[Read], *, same_counts: bool = False) -> tuple[Features, ...]:
    """The numbers of each passage of a set, in the passages' order; another order of the passages, or a copy of one, changes nothing.

    Args:
        question: What the passages should answer.
        reads: The passages.
        same_counts: Whether passages whose best part is the very same count as two that say so. They do not, but for training on data in which no
            two passages are independent.
    """
    asked = tuple(dict.fromkeys(terms(question))) or (question,)
    bags = [frozenset(terms(_text(read))) for read in reads]
    rarity = _rarity(frozenset(bags))
    plain = {term: _weight(term) for term in asked}
    rare = {term: weight * rarity(term) for term, weight in plain.items()}
    least = [0.0 if language(_text(read)) == language(question) else FOREIGN_WORDS for read in reads]
    found = [_find(question, read, rare, floor) for read, floor in zip(reads, least, strict=True)]
    best = max((one.strength for one in found), default=0.0)
    voices = found if same_counts else _voices(found)
    said, told = [], []
    for mine in found:
        others = [one for one in voices if one is not mine and (same_counts or one.part != mine.part)]
        weights = [_weight_beside(mine, one, best) for one in others]
        said.append(max((_borne_out(weights, [it in one.answers for one in others]) for it in mine.answers), default=0.0))
        told.append(
            sum(heapq.nlargest(3, (rarity(it) * _borne_out(weights, [it in one.words for one in others]) for it in mine.words))) / 3
        )
    return tuple(
        Features(
            near=max(read.near),
            words=max(least[i], _share(plain, bag)),
            names=named(question, _text(read)),
            behind=found[i].strength - best,
            said=said[i] - max(said),
            told=told[i] - max(told),
        )
        for i, (read, bag) in enumerate(zip(reads, bags, strict=True))
    )


def _text(read: Read) -> str:
    return f"{read.head}\n{' '.join(read.parts)}"


def _find(question: str, read: Read, rare: Mapping[str, float], least: float) -> _Found:
    """The best part of a passage; what is said there is read with the parts around it."""
    head = frozenset(terms(read.head))
    strengths = [near / 2 + max(least, _share(rare, head.union(terms(part)))) for part, near in zip(read.parts, read.near, strict=True)]
    at = strengths.index(max(strengths))
    window = " ".join(read.parts[max(0, at - 1) : at + 2])
    return _Found(read.parts[at], strengths[at], candidates(question, window), frozenset(terms(window)).difference(rare))


def _voices(found: Sequence[_Found]) -> list[_Found]:
    """One for each different part: passages whose best part is the very same say it once."""
    voices: dict[str, _Found] = {}
    for one in found:
        same = voices.get(one.part, one)
        voices[one.part] = _Found(one.part, max(one.strength, same.strength), one.answers | same.answers, one.words | same.words)
    return list(voices.values())


def _weight_beside(mine: _Found, other: _Found, best: float) -> float:
    """How much another passage's word counts for mine, in [0, 1]: little if either lies far behind the best of the set."""
    return math.exp(STEEP * (mine.strength + other.strength - 2 * best))


def _borne_out(weights: Sequence[float], agree: Sequence[bool]) -> float:
    """How well those that agree bear something out, in [0, 1): one that counts fully by half."""
    total = math.fsum(itertools.compress(weights, agree))  # exact, so that the order of the passages changes nothing
    return total / (1 + total)


def _share(weights: Mapping[str, float], bag: frozenset[str]) -> float:
    total = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in bag) / total if total else 0.0


def _weight(term: str) -> float:
    """A pair of Chinese characters is about half a word."""
    return 0.5 if term >= "\u3005" else 1.0


def _rarity(bags: Collection[frozenset[str]]) -> Callable[[str], float]:
    """Inverse document frequency within the set."""
    seen = Counter(term for bag in bags for term in bag)
    return lambda term: math.log(1 + (len(bags) + 1) / (seen[term] + 0.5))
