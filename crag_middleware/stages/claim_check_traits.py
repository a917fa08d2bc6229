"""What tells a supported claim from others, as numbers."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from crag_middleware.stages.claim_check_index import Part, Sentence, word_for_word
from crag_middleware.stages.claim_check_tokens import AT_LEAST, AT_MOST, NOT, Token, is_han, plain, term_list, tokens, width
from crag_middleware.stages.claim_check_words import charged, opposed
from crag_middleware.stages.sentences import split
from crag_middleware.stages.values import Value, rivals, told_by
from crag_middleware.stages.words import language

WINDOWS = 3
"""How many places are compared sign by sign."""

MAX_TOKENS = 200
"""Of a claim and of a window; what is longer is compared up to here."""

LOCAL = 4
"""A negation in so short a gap between words that the claim shares, or right before one of them, belongs to what the claim says."""

FEW = 0.5
"""Words that every claim is short of: one word found says less than ten."""

ALONE = 0.75
"""A sentence that has this share of a claim in order is what the claim was made from: its neighbours are not looked at."""

_NAME = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Za-z0-9]*(?:[-'’][A-Za-z]+)*")


class Traits(NamedTuple):
    """One claim's numbers.

    Attributes:
        words: Share of its words and values that stand in the best window, in [0, 1].
        order: Share that stands there in the same order, in [0, 1].
        pairs: Share of its neighbouring words that stand near each other in one sentence, in [0, 1].
        copied: 1 if all of it stands there in order, else 0.
        absent: How many of its words stand nowhere, at most 4.
        numbers: How many of its values are told nowhere, at most 2.
        changed: 1 if another value stands where the claim has one of its own, else 0.
        swapped: How close it comes to a copy in which a name or value, or any Chinese word, is another one; in [0, 1], 0 if none is.
        negated: 1 if one of the two denies what the other says, else 0.
        opposite: 1 if one of its words has its opposite there, else 0.
        names: How many of its names stand nowhere, at most 2.
    """

    words: float
    order: float
    pairs: float
    copied: float
    absent: float
    numbers: float
    changed: float
    swapped: float
    negated: float
    opposite: float
    names: float


class Claimed:
    """A claim, taken apart once for all it is compared with."""

    def __init__(self, text: str) -> None:
        """Takes it apart.

        Args:
            text: The claim, with or without citations.
        """
        bare = plain(text)
        self.sentences = tuple(filter(None, (word_for_word(strip.text.casefold()) for strip in split(bare))))
        self.language = language(bare)
        self.tokens = tokens(bare)[:MAX_TOKENS]
        self.listed = term_list(self.tokens)
        self.terms = tuple(dict.fromkeys(self.listed))
        self.values = tuple(token.value for token in self.tokens if token.value)
        self.weight = sum(map(width, self.terms)) + len(self.values)
        self.names = _names(bare)


class Reading(NamedTuple):
    """A claim's numbers, and the sentence that they rest on most; None if no word of it stands anywhere."""

    traits: Traits
    best: Sentence | None


def read(claim: Claimed, part: Part) -> Reading:
    """Compares a claim with some grounds."""
    windows = part.windows(claim.terms, claim.values, WINDOWS)
    looks = [(_compare(claim, (window.best,)), window) for window in windows]
    if not any(look.order >= ALONE for look, _ in looks):
        looks += [(_compare(claim, window.sentences), window) for window in windows if len(window.sentences) > 1]
    missing = min(2, sum(not told_by(value, part.values) for value in claim.values))
    absent = sum(width(t) for t in claim.terms if not is_han(t) and not part.has(t))
    absent += sum(width(t.key) for t in claim.tokens if is_han(t.key) and not t.value and t.key not in part.letters)
    strange = sum(name not in part.folded for name in claim.names)
    pairs = list(zip(claim.listed, claim.listed[1:], strict=False))
    near = sum(part.has_near(*pair) for pair in pairs) / len(pairs) if pairs else float(all(map(part.has, claim.terms)))
    look, window = max(looks, key=lambda found: found[0].order - found[0].conflict / 100, default=(_NOTHING, None))
    cover = max((window.cover for window in windows), default=0.0)
    return Reading(
        Traits(
            words=cover / (claim.weight + FEW),
            order=look.order,
            pairs=near,
            copied=float(look.order > 0.999),
            absent=min(4.0, absent),
            numbers=float(missing),
            changed=look.changed,
            swapped=look.swapped,
            negated=look.negated,
            opposite=look.opposite,
            names=float(min(2, strange)),
        ),
        window.best if window else None,
    )


class _Look(NamedTuple):
    order: float
    changed: float
    swapped: float
    negated: float
    opposite: float

    @property
    def conflict(self) -> float:
        return self.changed + self.negated + self.opposite


_NOTHING = _Look(0.0, 0.0, 0.0, 0.0, 0.0)


def _compare(claim: Claimed, sentences: Sequence[Sentence]) -> _Look:
    """Lays a claim and sentences that stand together side by side."""
    there = tuple(token for sentence in sentences for token in sentence.tokens)[:MAX_TOKENS]
    mine, theirs = _keys(claim.tokens, there)
    steps = SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes()
    weights = [_weight(token) for token in claim.tokens]
    total = sum(weights)
    order = sum(sum(weights[a:b]) for step, a, b, _, _ in steps if step == "equal") / total if total else 0.0
    known = frozenset(theirs)
    told = [token.value for token in there if token.value]
    equal = [place for place, step in enumerate(steps) if step[0] == "equal"]
    changed = swapped = negated = opposite = False
    for place, (step, a, b, c, d) in enumerate(steps):
        if step == "equal" or not equal:
            continue
        inside = equal[0] < place < equal[-1]
        claimed, given = claim.tokens[a:b], there[c:d]
        own = [v.value for v in claimed if v.value and not told_by(v.value, told)]
        changed |= any(rivals(value, [v.value for v in given if v.value]) for value in own)
        fresh = [token for key, token in zip(mine[a:b], claimed, strict=True) if key not in known and token.key != NOT]
        new = any(_may_name(token) for token in fresh) and any(_may_name(token) for token in given)
        new |= any(token.value for token in claimed) and any(token.value for token in given)
        swapped |= step == "replace" and new and b - a <= 6 and d - c <= 8
        here, over = (any(token.key == NOT for token in some) for some in (claimed, given))
        reaches = over and ((inside and d - c <= LOCAL) or (given[-1].key == NOT and place < equal[-1]))
        negated |= here != over and (here or reaches)
        opposite |= opposed(_charged(claim.tokens, a, b), _charged(there, c, d))
        bounds = {token.key for token in claimed}, {token.key for token in given}
        negated |= (AT_LEAST in bounds[0] and AT_MOST in bounds[1]) or (AT_MOST in bounds[0] and AT_LEAST in bounds[1])
    return _Look(
        order,
        float(changed),
        max(0.0, 2 * order - 1) if swapped else 0.0,
        float(negated),
        float(opposite),
    )


def _charged(found: Sequence[Token], start: int, end: int) -> frozenset[str]:
    """The words with an opposite in a stretch of tokens; Chinese ones may begin a sign before it and end one behind."""
    first = max(0, start - 1) if start < len(found) and found[start].glued else start
    last = end + 1 if end < len(found) and found[end].glued else end
    return charged("".join(token.written if token.glued else f" {token.written}" for token in found[first:last]).casefold())


def _may_name(token: Token) -> bool:
    """Whether a token could be of a name: a capital tells it, a Chinese character does not."""
    return token.value is not None or is_han(token.key) or token.written[0].isupper()


def _weight(token: Token) -> float:
    return 1.0 if token.value else width(token.key)


def _keys(claim: Sequence[Token], there: Sequence[Token]) -> tuple[list[str], list[str]]:
    """What the tokens of both sides are compared by: values of the claim that the other side tells have one key."""
    values = {_exact(token.value): token.value for token in claim if token.value}
    mine = [_exact(token.value) if token.value else token.key for token in claim]
    theirs = []
    for token in there:
        key = _exact(token.value) if token.value else token.key
        if token.value and key not in values:
            key = next((name for name, value in values.items() if told_by(value, (token.value,))), key)
        theirs.append(key)
    return mine, theirs


def _exact(value: Value) -> str:
    said = "/".join(map(str, value.parts)) or value.written
    return f"{value.kind} {said} {value.unit}"


def _names(text: str) -> tuple[str, ...]:
    """The names of a text, folded: words with a capital that is not its first."""
    begin = len(text) - len(text.lstrip())
    if text.isupper():
        return ()
    found = (m.group() for m in _NAME.finditer(text) if m.start() > begin and len(m.group()) > 1)
    return tuple(dict.fromkeys(name.casefold().removesuffix("'s").removesuffix("’s") for name in found))
