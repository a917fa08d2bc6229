"""The sentences of all that an answer may rest on, made ready to be compared with many claims."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from crag_middleware.stages.claim_check_tokens import Token, is_han, plain, term_list, tokens, width
from crag_middleware.stages.sentences import split
from crag_middleware.stages.values import Value, told_by

STEM = 5
"""Longer words that begin alike by this much count as one: `employ` and `employee`."""


NEAR = 3
"""Words of a claim that stand side by side may stand so far apart in a source."""


class Sentence:
    """A sentence of a ground, and what is compared of it."""

    def __init__(self, text: str, ground: int, place: int) -> None:
        """Takes the sentence apart.

        Args:
            text: The sentence.
            ground: The ground that it stands in, by its place in the list of grounds.
            place: Its own place among all sentences.
        """
        bare = plain(text)
        self.ground, self.place = ground, place
        self.folded = bare.casefold()
        self.tokens: tuple[Token, ...] = tokens(bare)
        self.listed = term_list(self.tokens)
        self.terms = frozenset(self.listed).union(stems(self.listed))
        self.values = tuple(token.value for token in self.tokens if token.value)

    @cached_property
    def _where(self) -> dict[str, set[int]]:
        where: dict[str, set[int]] = {}
        for place, term in enumerate(self.listed):
            where.setdefault(term, set()).add(place)
        return where

    def has_near(self, first: str, second: str) -> bool:
        """Whether the second of two terms stands within `NEAR` terms behind the first."""
        there = self._where.get(second, set())
        return any(place + step in there for place in self._where.get(first, ()) for step in range(1, NEAR + 1))


def word_for_word(folded: str) -> str:
    """A sentence as it is compared with a copy of it: without what stands around its words."""
    return " ".join(folded.split()).strip(" .。!！;；*_-|")


def stems(listed: Iterable[str]) -> Iterable[str]:
    """The beginnings of the longer Latin words, marked as such."""
    return (f"{term[:STEM]}…" for term in listed if len(term) > STEM and not is_han(term))


class Window(NamedTuple):
    """Sentences that stand together and bear most on a claim.

    Attributes:
        sentences: One to three, in order.
        cover: How much of the claim's words and values stands in them, in words.
        best: The one that has most.
    """

    sentences: tuple[Sentence, ...]
    cover: float
    best: Sentence


class Index:
    """The sentences of some grounds, found by their words."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Reads every text once.

        Args:
            texts: The grounds' texts.
        """
        self.sentences: list[Sentence] = []
        for ground, text in enumerate(texts):
            for strip in split(text):
                self.sentences.append(Sentence(strip.text, ground, len(self.sentences)))
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for sentence in self.sentences:
            for term in sentence.terms:
                self._places[term].append(sentence.place)

    def within(self, grounds: Collection[int] | None) -> "Part":
        """The sentences of some grounds; of all for None."""
        return Part(self, grounds)

    def places(self, term: str) -> list[int]:
        """Where a term stands."""
        return self._places.get(term, [])


class Part:
    """Those sentences of an index that stand in some of its grounds."""

    def __init__(self, index: Index, grounds: Collection[int] | None) -> None:
        """Looks up what they have.

        Args:
            index: All sentences.
            grounds: Which grounds count; None for all.
        """
        self._index = index
        self._grounds = grounds
        self.sentences = [s for s in index.sentences if grounds is None or s.ground in grounds]
        self.values = tuple(dict.fromkeys(value for sentence in self.sentences for value in sentence.values))
        self.folded = "\n".join(sentence.folded for sentence in self.sentences)
        self.letters = frozenset(self.folded)
        self.whole = frozenset(word_for_word(sentence.folded) for sentence in self.sentences)

    def has_near(self, first: str, second: str) -> bool:
        """Whether two terms stand near each other, in this order, in any sentence."""
        places = self._index.places(second)
        if not places:
            return False
        both = set(self._index.places(first)).intersection(places)
        return any(self._here(place) and self._index.sentences[place].has_near(first, second) for place in both)

    def has(self, term: str) -> bool:
        """Whether a word, or one that begins like it, stands anywhere."""
        return any(self._here(place) for name in _names(term) for place in self._index.places(name))

    def _here(self, place: int) -> bool:
        return self._grounds is None or self._index.sentences[place].ground in self._grounds

    def windows(self, terms: Collection[str], values: Sequence[Value], count: int) -> list[Window]:
        """The windows around the sentences that have most of a claim's words and values, best first."""
        scores: Counter[int] = Counter()
        for term in terms:
            weight = width(term)
            for place in {place for name in _names(term) for place in self._index.places(name)}:
                scores[place] += weight  # type: ignore[assignment]  # a Counter of floats
        if values:
            for sentence in self.sentences:
                if sentence.values:
                    scores[sentence.place] += sum(told_by(value, sentence.values) for value in values)
        best = sorted((place for place in scores if self._here(place)), key=lambda place: (-scores[place], place))[:count]
        return sorted((self._around(place, terms, values) for place in best), key=lambda window: -window.cover)

    def _around(self, place: int, terms: Collection[str], values: Sequence[Value]) -> Window:
        """A sentence with those of its neighbours that add to it."""
        best = self._index.sentences[place]
        chosen: tuple[Sentence, ...] = (best,)
        cover = _cover(chosen, terms, values)
        for step in (-1, 1):
            near = place + step
            if 0 <= near < len(self._index.sentences) and self._index.sentences[near].ground == best.ground:
                neighbour = self._index.sentences[near]
                wider = (neighbour, *chosen) if step < 0 else (*chosen, neighbour)
                more = _cover(wider, terms, values)
                if more >= cover + 1:
                    chosen, cover = wider, more
        return Window(chosen, cover, best)


def _names(term: str) -> tuple[str, ...]:
    return (term, *stems((term,)))


def _cover(sentences: Sequence[Sentence], terms: Collection[str], values: Sequence[Value]) -> float:
    told = tuple(value for sentence in sentences for value in sentence.values)
    words = sum(width(term) for term in terms if any(name in sentence.terms for sentence in sentences for name in _names(term)))
    return words + sum(told_by(value, told) for value in values)
