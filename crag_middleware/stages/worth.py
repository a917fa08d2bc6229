"""How much each strip bears on the question, as numbers; and the weights that make a probability of them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import fsum, log, sqrt
from operator import mul
from statistics import fmean
from typing import NamedTuple

from crag_middleware.calibration import sigmoid
from crag_middleware.stages.answer_kinds import answer_kind
from crag_middleware.stages.names import names
from crag_middleware.stages.words import part_finder, terms

VERSION = "worth-1"
"""Of the numbers and their weights: count it up when they change, since other picks come of it."""

PRECISE = 1.5
"""Weight of a number or a name of the question against another word."""

WIDEST = 3.0
"""Standard deviations from the mean at which similarities are cut off."""

_WIDTH = {False: 1.0, True: 0.5}
"""A pair of Chinese characters is about half a word."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A passage as it is compared with a question.

    Attributes:
        title: May be empty.
        text: The passage.
        strips: What it is cut into, in order.
        near: Each strip's similarity to the question in meaning, on any scale; empty if nothing measured it.
    """

    title: str
    text: str
    strips: Sequence[str]
    near: Sequence[float] = ()


class Traits(NamedTuple):
    """One strip's numbers. A share of the question's words counts each by its rarity among all strips and titles of the turn; it lies in [0, 1].

    Attributes:
        words: Share of the question's words in the strip.
        titled: The same in the strip and its passage's title together.
        around: The same in the strip and its two neighbours together.
        news: Share of those words that stand neither in the title nor in the passage's first strip: the first strip says what a passage is about, and repeats
            the question's subject more often than it answers it. 0 if all words stand there.
        opens: 1 for a passage's first strip, else 0.
        kind: Whether it looks like the kind of answer that is asked for, in [0, 1].
        title_behind: How far its title lies behind the title that has most of the question's words, as shares; at most 0.
        page_behind: The same of its whole passage, title included.
        near: Similarity in meaning, in standard deviations from the turn's mean, within 3; 0 if nothing measured it.
        near_behind: How far its passage's nearest strip lies behind the turn's nearest, in the same unit; at most 0.
    """

    words: float = 0.0
    titled: float = 0.0
    around: float = 0.0
    news: float = 0.0
    opens: float = 0.0
    kind: float = 0.0
    title_behind: float = 0.0
    page_behind: float = 0.0
    near: float = 0.0
    near_behind: float = 0.0


BY_WORDS = (
    -2.915,
    Traits(words=0.13, titled=1.843, around=0.283, news=1.361, opens=1.391, kind=0.812, title_behind=4.143, page_behind=2.643),
)
BY_MEANING = (
    -2.77,
    Traits(
        titled=1.79, around=0.212, news=1.194, opens=1.187, kind=0.785, title_behind=3.269, page_behind=1.565, near=0.264, near_behind=0.576
    ),
)
BY_MEANING_ALONE = (-1.655, Traits(opens=0.81, kind=0.788, near=0.59, near_behind=1.981))
"""A constant and the weights of a logistic regression: without similarity in meaning, with it, and with it where no word agrees, as across languages. Fitted by
tools/refinement/fit.py, which says on what. The unit of `near` makes them fit any embeddings."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The strips of one turn as they were compared with the question, by sheet.

    Attributes:
        words: The question's words that each strip has.
        share: What share of the question's words some of them are: each counts by its rarity, those in no strip or title not at all, numbers and names more.
        traits: Each strip's numbers.
        worth: P(the strip is among those that answer), in (0, 1).
    """

    words: Sequence[Sequence[frozenset[str]]]
    share: Callable[[frozenset[str]], float]
    traits: Sequence[Sequence[Traits]]
    worth: Sequence[Sequence[float]]


def read(question: str, sheets: Sequence[Sheet]) -> Reading:
    """Compare the strips of all sheets with the question; another order of the sheets changes no strip's numbers."""
    asked = frozenset(terms(question))
    find = part_finder(asked)
    found = [find(sheet.text, sheet.strips) for sheet in sheets]
    words = [[shared.get(i, frozenset()) for i in range(len(sheet.strips))] for sheet, shared in zip(sheets, found, strict=True)]
    titles = [find(sheet.title, (sheet.title,)).get(0, frozenset()) for sheet in sheets]
    share = _share(question, [*words, [title for sheet, title in zip(sheets, titles, strict=True) if sheet.title]])
    rows = _traits(question, sheets, words, titles, share)
    by_meaning = BY_MEANING if any(map(any, words)) else BY_MEANING_ALONE
    probability = cache(_probability)  # Of the strips without a word of the question most have the same numbers.
    worth = [[probability(one, *(by_meaning if sheet.near else BY_WORDS)) for one in row] for sheet, row in zip(sheets, rows, strict=True)]
    return Reading(words, share, rows, worth)


def _probability(traits: Traits, offset: float, weights: Traits) -> float:
    return sigmoid(offset + sum(map(mul, weights, traits)))


def _traits(
    question: str,
    sheets: Sequence[Sheet],
    words: Sequence[Sequence[frozenset[str]]],
    titles: Sequence[frozenset[str]],
    share: Callable[[frozenset[str]], float],
) -> list[list[Traits]]:
    wholes = [title.union(*own) for title, own in zip(titles, words, strict=True)]
    best_title, best_page = max(map(share, titles), default=0.0), max(map(share, wholes), default=0.0)
    kind = answer_kind(question)
    asked = frozenset(terms(question))
    rows = []
    for sheet, own, title, whole, (near, behind) in zip(sheets, words, titles, wholes, _nearness(sheets), strict=True):
        told = title.union(*own[:1])
        left = share(asked - told)
        by_title, by_page = share(title), share(whole)
        rows.append(
            [
                Traits(
                    words=share(found),
                    titled=share(found | title) if found else by_title,
                    around=share(found.union(*near_by)) if any(near_by := own[max(0, i - 1) : i + 2]) else 0.0,
                    news=share(found - told) / left if left and found else 0.0,
                    opens=float(i == 0),
                    kind=kind(strip),
                    title_behind=by_title - best_title,
                    page_behind=by_page - best_page,
                    near=near[i],
                    near_behind=behind,
                )
                for i, (strip, found) in enumerate(zip(sheet.strips, own, strict=True))
            ]
        )
    return rows


def _share(question: str, words: Sequence[Sequence[frozenset[str]]]) -> Callable[[frozenset[str]], float]:
    """As `Reading.share`."""
    frequency: Counter[str] = Counter()
    for some, times in Counter(chain.from_iterable(words)).items():
        frequency.update(dict.fromkeys(some, times))
    strips = sum(map(len, words))
    precise = frozenset(terms(" ".join(names(question))))
    weight = {
        term: _WIDTH[term >= "\u3005"] * _rarity(n, strips) * (PRECISE if term in precise or any(map(str.isdigit, term)) else 1.0)
        for term, n in frequency.items()
    }
    total = fsum(weight.values())

    @cache
    def share(some: frozenset[str]) -> float:
        # Exact summing, so that the order of a set can't decide a tie; slow, and few sets of words occur.
        return fsum(weight[term] for term in some if term in weight) / total if total else 0.0

    return share


def _rarity(n: int, strips: int) -> float:
    """Inverse frequency as BM25 has it: Robertson and Zaragoza, 2009, doi:10.1561/1500000019."""
    return log(1 + (strips - n + 0.5) / (n + 0.5))


def _nearness(sheets: Sequence[Sheet]) -> list[tuple[Sequence[float], float]]:
    """Each strip's similarity in standard deviations from the turn's mean, and how far each sheet's best lies behind the best of all."""
    every = [near for sheet in sheets for near in sheet.near]
    spread = _spread(every)
    if not spread:
        return [((0.0,) * len(sheet.strips), 0.0) for sheet in sheets]
    mean, best = fmean(every), max(every)
    return [
        ([min(max((near - mean) / spread, -WIDEST), WIDEST) for near in sheet.near], (max(sheet.near, default=best) - best) / spread)
        for sheet in sheets
    ]


def _spread(values: Sequence[float]) -> float:
    """Standard deviation; 0 for none. `statistics.pstdev` takes fifty times as long."""
    mean = fmean(values) if values else 0.0
    return sqrt(fsum((value - mean) ** 2 for value in values) / max(len(values), 1))
