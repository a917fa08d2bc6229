"""Checking claims against what they may rest on without any model: a heuristic over words, their order, values, names and negations.

It reads nothing: a claim in other words than its source's looks unsupported, and one that twists what the source's own words say may look supported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crag_middleware.calibration import sigmoid
from crag_middleware.stages.claim_check_index import Index, Part
from crag_middleware.stages.claim_check_traits import Claimed, Reading, Traits, read
from crag_middleware.stages.words import language
from crag_middleware.types import Checked, Claim, ClaimLabel, Ground, Language

THRESHOLD = 0.5
"""Claims whose probability lies below it count as unsupported. Where it lies was chosen for few false alarms: see docs/claims.md."""

UNREAD = 0.6
"""P(supported) of a claim that can't be compared: no ground has words, or none is in the claim's language. It speaks neither for nor against."""

CONFLICT_AT_MOST = 0.5
"""Probabilities of claims that something speaks against outright stay below it; at most `THRESHOLD`."""

NEAR, NEARER = 0.6, 0.75
"""From what share in the same order on a sentence says the same, so that a conflict with it is one; the latter where a single Chinese word differs."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What each number of `Traits` counts in the log odds, and the constant."""

    constant: float
    traits: Traits


WEIGHTS: Mapping[Language, Weights] = {
    "en": Weights(-0.74, Traits(2.43, 0.36, 0.03, 1.64, -0.05, -0.93, 0.0, -1.49, -0.84, -0.29, -0.76)),
    "zh": Weights(-0.30, Traits(1.47, 0.0, 1.86, 1.84, -0.32, -2.69, -1.68, -1.32, -2.28, -0.42, -2.83)),
}
"""Fitted by tools/claims/fit_claims.py, which says on what. A Chinese character tells less than an English word, hence two."""


def check(claims: Sequence[Claim], grounds: Sequence[Ground]) -> tuple[Checked, ...]:
    """What the grounds say of each claim, in the claims' order.

    Each claim is compared with the sources that it cites, then, if they don't support it or it cites none, with all grounds together.

    Returns:
        `supported` where the probability reaches `THRESHOLD`, except for what could not be compared (`unread`, `no_words`), which is `not_mentioned` at
        `UNREAD`. `contradicted` where a sentence that says much the same has another value, a negation or an opposite. Reasons: `copied`, `words`,
        `other_source` (the sources cited don't support it, another ground does); `number`, `negation`, `opposite`, `name`, `word`, `coverage`; `unread`,
        `no_words`, `no_grounds`.
    """
    index = Index([ground.text for ground in grounds])
    tongues: dict[int, Language] = {place: language(ground.text) for place, ground in enumerate(grounds)}
    everything = frozenset(range(len(grounds)))
    parts: dict[frozenset[int], Part] = {}

    def judge(claimed: Claimed, among: frozenset[int]) -> Checked:
        if among not in parts:
            parts[among] = index.within(among)
        return _judged(claimed, parts[among], foreign=all(tongues[place] != claimed.language for place in among))

    found = []
    for claim in claims:
        if not grounds:
            found.append(Checked("not_mentioned", 0.0, None, "no_grounds"))
            continue
        claimed = Claimed(claim.text)
        cited = frozenset(place for place, ground in enumerate(grounds) if ground.number is not None and ground.number in claim.cited)
        first = judge(claimed, cited or everything)
        if first.label == "supported" or not cited or cited == everything:
            found.append(first)
            continue
        second = judge(claimed, everything)
        if second.label == "supported":
            found.append(Checked("supported", second.probability, second.decided_by, "other_source"))
        else:
            found.append(first if first.decided_by is not None else second)
    return tuple(found)


def probability(traits: Traits, tongue: Language) -> float:
    """P(supported), in [0, 1]: logistic regression; with a conflict the odds against it are those of `CONFLICT_AT_MOST`, too."""
    weights = WEIGHTS[tongue]
    p = sigmoid(weights.constant + sum(weight * number for weight, number in zip(weights.traits, traits, strict=True)))
    return lowered(p) if conflict(traits, tongue) else p


def conflict(traits: Traits, tongue: Language) -> tuple[ClaimLabel, str] | None:
    """What speaks against a claim outright, and whether it is contradicted by it; None if nothing does."""
    near = traits.order >= NEAR
    if traits.numbers or (traits.changed and near):
        return ("contradicted" if near else "not_mentioned"), "number"
    if traits.negated and near:
        return "contradicted", "negation"
    if traits.opposite and near:
        return "contradicted", "opposite"
    if traits.swapped and traits.order >= NEARER:
        return ("contradicted", "name") if tongue == "en" or traits.names else ("not_mentioned", "word")
    return ("not_mentioned", "name") if traits.names and near else None


def _judged(claimed: Claimed, part: Part, *, foreign: bool) -> Checked:
    """What some grounds together say of a claim."""
    readable = any(sentence.tokens for sentence in part.sentences)
    found = read(claimed, part)
    best = found.best.ground if found.best else None
    if claimed.sentences and part.whole.issuperset(claimed.sentences):
        return Checked("supported", probability(_COPY, claimed.language), best, "copied")
    if not readable or not claimed.weight or foreign:
        if foreign and readable and found.traits.numbers:
            return Checked("not_mentioned", lowered(UNREAD), None, "number")
        return Checked("not_mentioned", UNREAD, None, "unread" if claimed.weight else "no_words")
    return _labelled(found, best, claimed.language)


def _labelled(found: Reading, best: int | None, tongue: Language) -> Checked:
    p = probability(found.traits, tongue)
    against = conflict(found.traits, tongue)
    if against:
        return Checked(against[0], p, best, against[1])
    if p >= THRESHOLD:
        return Checked("supported", p, best, "copied" if found.traits.copied else "words")
    return Checked("not_mentioned", p, best, "coverage")


def lowered(p: float) -> float:
    """A probability below `CONFLICT_AT_MOST`, in the same order."""
    return p * CONFLICT_AT_MOST / (p + CONFLICT_AT_MOST - p * CONFLICT_AT_MOST)


_COPY = Traits(words=1, order=1, pairs=1, copied=1, absent=0, numbers=0, changed=0, swapped=0, negated=0, opposite=0, names=0)
