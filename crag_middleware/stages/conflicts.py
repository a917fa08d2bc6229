"""Sources that contradict each other: found where it is cheap, and which of them is newer or more trusted."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from crag_middleware.stages.disagreement import ANCHORED, FEWEST, MAX_CHARS, Difference, Statement, differ
from crag_middleware.stages.injection import FLAGGED
from crag_middleware.stages.sentences import pieces
from crag_middleware.stages.stops import HAN
from crag_middleware.stages.values import Value, same, values
from crag_middleware.stages.versions import document, version
from crag_middleware.stages.words import terms
from crag_middleware.types import Conflict, Passage, Side, Source

MOST = 3
"""Conflicts of a turn at most; the first by number stay."""

MAX_STATEMENTS = 400
"""Statements that are compared; those of the last sources are left out."""

COMMON = 60
"""Words in more statements than this tell none from another."""

ROUGHLY = 0.5
"""From what share of words in common two statements are worth to be compared; less than is asked of them then, since whatever differs counts twice here."""

APART = 3.0
"""Words that both must share where the titles have none in common."""

MAX_PAIRS = 400
"""Pairs of statements that are laid side by side, those first that have most words in common."""

CLEARLY_NEWER_MS = 7 * 24 * 3600 * 1000
"""A week: what is stored in one go has nearly one time, and a day's difference tells nothing."""

CLEARLY_TRUSTED = 0.02
"""Evidence scores nearer than this tell nothing."""

SECTIONS = 0.95
"""From what share of words on two places of one document are taken to speak of the same thing."""

_POINTING = re.compile(r"\W*(?:(?i:it|its|they|their|he|his|she|her|this|these|that|those|there)\b|[该其它他她这此])")
_LATIN = re.compile("[a-z]+")
_HAN_RUN = re.compile(f"[{HAN}]+")


class _View:
    """A source as it is compared with others; every part is made when it is first asked for."""

    def __init__(self, source: Source) -> None:
        passage = source.graded.passage
        self.source, self.passage = source, passage
        self.title = f"{passage.title}\n{passage.metadata.get('section') or ''}"

    @cached_property
    def topic(self) -> frozenset[str]:
        """What title and section name; a year tells which edition it is, and not of what."""
        return frozenset(word for word in terms(self.title) if not (len(word) == 4 and word.isdigit()))

    @cached_property
    def spoken(self) -> frozenset[str]:
        """The words of all that is shown of it."""
        return frozenset(terms("\n".join(strip.text for strip in self.source.strips)))

    @cached_property
    def told(self) -> tuple[Value, ...]:
        """The values of all that is shown of it."""
        return tuple(value for strip in self.source.strips for value in values(strip.text))

    @cached_property
    def named(self) -> tuple[Value, ...]:
        """The values of title and section."""
        return values(self.title)


class _Said:
    """A statement of a source."""

    def __init__(self, view: _View, text: str) -> None:
        self.view, self.text = view, text

    @cached_property
    def words(self) -> frozenset[str]:
        """The beginnings of its Latin words, the short ones aside unless there are no others, and its pairs of Chinese characters."""
        words = _LATIN.findall(self.text.casefold())
        found = {word[:5] for word in words if len(word) > 3} or set(words)
        for run in _HAN_RUN.findall(self.text):
            found.update(map(str.__add__, run, run[1:]))
        return frozenset(found)

    @cached_property
    def statement(self) -> Statement:
        """It, taken apart."""
        return Statement(self.text)


class _Found(NamedTuple):
    """Two statements that differ, by their places, the lesser first."""

    first: int
    second: int
    difference: Difference


def conflicts(sources: Sequence[Source], *, query: str = "") -> tuple[Conflict, ...]:
    """What the sources contradict each other in.

    Two sources do if each has a statement of the same words that differs in one value, of one kind and dimension, or in a negation or an opposite. It is
    found by words alone, and seldom where two sources use different ones; where it is not clear that both speak of one thing, nothing is said.

    Args:
        sources: What is shown to the model; of each its kept strips count.
        query: The question: sources that stay apart by what it names speak of different things.

    Returns:
        By the number of the first source, at most `MOST`; no source stands on two sides of one. Which are found does not depend on the sources' order, but
        for those over `MOST` and for huge input.
    """
    said = [said for source in sources for said in _statements(_View(source))][:MAX_STATEMENTS]
    asked = frozenset(terms(query))
    found = [_Found(a, b, difference) for a, b in _pairs(said) if (difference := _difference(said[a], said[b], asked))]
    made = {_conflict(group, said) for group in _groups(found)}
    # A source that stands on two sides speaks of two things, or of one as it was and as it is.
    clear = [conflict for conflict in made if max(Counter(n for side in conflict.sides for n in side.numbers).values()) == 1]
    return tuple(sorted(clear, key=lambda conflict: [(side.numbers, side.says) for side in conflict.sides]))[:MOST]


def _statements(view: _View) -> Iterator[_Said]:
    """What a source states, each once; code and headings state nothing."""
    seen = set()
    for strip in view.source.strips:
        for piece in pieces(strip.text[:MAX_CHARS]):
            text = strip.text[piece.start : piece.end]
            if piece.kind not in ("code", "heading") and text not in seen:
                seen.add(text)
                yield _Said(view, text)


def _pairs(said: Sequence[_Said]) -> list[tuple[int, int]]:
    """Which statements of different sources may say much the same: those with most words in common first, at most `MAX_PAIRS`."""
    where: defaultdict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(said):
        for word in one.words:
            where[word].append(place)
    common: Counter[tuple[int, int]] = Counter()
    for places in where.values():
        if len(places) <= COMMON:
            common.update(combinations(places, 2))
    ranked = []
    for (a, b), count in common.items():
        one, other = said[a], said[b]
        share = count / max(len(one.words), len(other.words))
        if share >= ROUGHLY and one.view is not other.view and one.text != other.text:
            ranked.append((-share, min(one.text, other.text), max(one.text, other.text), (a, b)))
    return [places for *_, places in sorted(ranked)[:MAX_PAIRS]]


def _difference(first: _Said, second: _Said, asked: frozenset[str]) -> Difference | None:
    """In what two statements contradict each other, if their sources speak of one thing."""
    one, other = first.view, second.view
    needed = _needed(one.topic, other.topic, asked - (first.statement.terms & second.statement.terms))
    if needed > FEWEST and (_POINTING.match(first.text) or _POINTING.match(second.text)):
        return None  # Of what, only the titles could say, and those disagree.
    found = differ(first.statement, second.statement, at_least=needed)
    if not found or (found.shared < SECTIONS and _elsewhere(one.passage, other.passage)):
        return None
    if found.values:
        mine, theirs = found.values
        if _tells(other.told, mine) or _tells(one.told, theirs) or (_tells(one.named, mine) and _tells(other.named, theirs)):
            return None
    # Each speaks of what its title names, and the other does not.
    mine_only, theirs_only = one.spoken - other.spoken, other.spoken - one.spoken
    return None if (one.topic - other.topic) & mine_only and (other.topic - one.topic) & theirs_only else found


def _tells(told: Sequence[Value], value: Value) -> bool:
    """Whether a value is among those that a source, or its title, tells: then the source does not contradict it, and it is what the title is about."""
    return any(one.kind == value.kind and one.unit == value.unit and same(one, value) for one in told)


def _needed(one: frozenset[str], other: frozenset[str], asked: frozenset[str]) -> float:
    """How many words two sources' statements must share to speak of one thing.

    Titles say that they may not where they share a word, and each has one of its own (`Basic plan`, `Pro plan`), or where one names what was asked for.
    """
    mine, theirs = one - other, other - one
    if not (mine and theirs):
        return FEWEST
    return ANCHORED if one & other or (mine | theirs) & asked else APART


def _elsewhere(one: Passage, other: Passage) -> bool:
    """Whether two passages are different places of one document, which rarely contradicts itself."""
    return (
        bool(document(one)) and document(one) == document(other) and version(one) == version(other) and one.created_at == other.created_at
    )


def _groups(found: Iterable[_Found]) -> list[list[_Found]]:
    """The differences, those together that are about one value of one statement."""
    groups: list[tuple[set[tuple[int, str]], list[_Found]]] = []
    for one in found:
        keys = {(place, _about(one, side)) for side, place in enumerate((one.first, one.second))}
        near = [group for group in groups if group[0] & keys]
        groups = [group for group in groups if not group[0] & keys]
        groups.append((keys.union(*(k for k, _ in near)), [one, *(f for _, members in near for f in members)]))
    return [members for _, members in groups]


def _about(found: _Found, side: int) -> str:
    return str(found.difference.values[side].start) if found.difference.values else ""


def _conflict(group: Sequence[_Found], said: Sequence[_Said]) -> Conflict:
    """What a group says: who tells which value, the source with the lowest number first."""
    told: list[tuple[Source, str, Value | None]] = []
    for found in group:
        for side, place in enumerate((found.first, found.second)):
            value = found.difference.values[side] if found.difference.values else None
            told.append((said[place].view.source, found.difference.says[side], value))
    told.sort(key=lambda one: (one[0].number, one[1]))
    sides: list[tuple[str, Value | None, list[Source]]] = []
    for source, says, value in told:
        for written, known, members in sides:
            if written == says or (value and known and same(value, known)):
                if source not in members:
                    members.append(source)
                break
        else:
            sides.append((says, value, [source]))
    by_side = [members for *_, members in sides]
    return Conflict(
        kind="value" if group[0].difference.values else "opposite",
        sides=tuple(Side(tuple(s.number for s in members), says) for says, _, members in sides),
        newer=_ahead(by_side, _newer),
        trusted=_ahead(by_side, _more_trusted),
    )


def _ahead(sides: Sequence[Sequence[Source]], beats: Callable[[Passage, Passage], bool]) -> int | None:
    """The number of the first source that beats all of all other sides; None if none does."""
    for side in sides:
        for source in side:
            others = [other for members in sides if members is not side for other in members]
            if others and all(beats(source.graded.passage, other.graded.passage) for other in others):
                return source.number
    return None


def _newer(one: Passage, other: Passage) -> bool:
    """Whether one is clearly newer: by version, which only those of one document have in common, else by time. What gives orders is no better for it."""
    if one.injection_score >= FLAGGED:
        return False
    mine, theirs = version(one), version(other)
    if mine and theirs and mine != theirs and document(one) == document(other):
        return mine > theirs
    return one.created_at is not None and other.created_at is not None and one.created_at - other.created_at >= CLEARLY_NEWER_MS


def _more_trusted(one: Passage, other: Passage) -> bool:
    """Whether one is clearly more trusted, by where it comes from."""
    if one.evidence_score is None or other.evidence_score is None:
        return one.origin == "knowledge" and other.origin == "web"
    return one.evidence_score - other.evidence_score >= CLEARLY_TRUSTED
