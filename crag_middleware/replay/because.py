"""Why a verdict was what it was, and what would have changed it. Pure: from a saved receipt alone, and thresholds if they are known."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from crag_middleware.calibration import Calibration
from crag_middleware.errors import ConfigError
from crag_middleware.replay.saved import Saved, SavedPassage
from crag_middleware.stages.decide import decide
from crag_middleware.stages.decide import label as cut
from crag_middleware.types import Grade, Thresholds, Verdict

MOST_NAMED = 5
"""Passages that are named one by one."""

_RUNGS = {
    "cheap_evaluator": "the fallback evaluator graded, with thresholds of its own; the first evaluator might have graded otherwise",
    "plain_passages": "passages have no grade: they keep a verdict from being incorrect and never make it relevant",
    "no_web": "the web was left out: the verdict is on the knowledge and would have been the same, the evidence might not",
    "no_claim_check": "the claims of the answer were not checked: this came after the verdict",
    "untouched": "nothing was added to the messages: the knowledge was not searched in time, so there is no verdict",
}
_NOTES = {
    "no_rewriter": "no rewriter: after `incorrect` no other words were tried; they might have found more",
    "budget_spent": "the budget for model calls was spent: optional calls, such as another query, were left out",
}
_STEPS = {
    "retrieve": "passages of it may be missing, so the verdict may be too low",
    "route": "passages of it may be missing, so the verdict may be too low",
    "rerank": "the fused order stood, so other passages may have been graded",
    "rewrite": "the question was searched as it was",
    "decompose": "the question was searched as a whole",
    "hypothetical": "one way to search was left out",
    "keywords": "the web query is the question itself; the verdict is on the knowledge",
    "search_web": "this came after the verdict",
    "refine": "passages were kept whole; this came after the verdict",
    "grade": "see the labels `ungraded` and the fallback evaluator",
}

Known = Literal["given", "calibration", "labels"]
"""Where thresholds come from: the caller, a calibration that the receipt names, or the labels, which only tell between what they lie."""


_KNOWN: dict[Known, str] = {
    "given": "as they were given",
    "calibration": "by the calibration that the receipt names",
    "labels": "as far as the labels tell",
}


@dataclass(frozen=True, slots=True)
class Cut:
    """A threshold: it lies between the two, in [0, 1]; they are equal where it is known."""

    at_least: float
    at_most: float

    def __str__(self) -> str:
        if self.at_least == self.at_most:
            return f"{self.at_least:.3f}"
        return f"a threshold within {self.at_least:.3f}..{self.at_most:.3f}"


@dataclass(frozen=True, slots=True)
class Turning:
    """What would have made another verdict.

    Attributes:
        to: The other verdict.
        needs: What it takes, in words.
        passages: The ids of the passages that it depends on, the nearest to its threshold first.
    """

    to: Verdict
    needs: str
    passages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Because:
    """Why a verdict was what it was.

    Attributes:
        verdict: The verdict; None if there is none.
        grounds: Why, in words.
        lower: Below it a passage, or with the rule `set` the passages together, are incorrect; None if that can't be told.
        upper: Above it they are relevant; None if that can't be told.
        known_from: Where the thresholds come from.
        turnings: What would have made the other verdicts.
        effects: What failures, fallbacks and missing parts did to the verdict, in words.
    """

    verdict: Verdict | None
    grounds: str
    lower: Cut | None
    upper: Cut | None
    known_from: Known
    turnings: tuple[Turning, ...]
    effects: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    def lines(self) -> tuple[str, ...]:
        """For a person: one fact a line, the receipt's own columns."""
        rows = [("because", self.grounds)]
        rows += [("thresholds", f"{self.lower} and {self.upper}, {_KNOWN[self.known_from]}")] if self.lower and self.upper else []
        rows += [(f"{turning.to}", f"if {turning.needs}") for turning in self.turnings]
        rows += [("effect", effect) for effect in self.effects]
        return tuple(f"{name:<11}{value}" for name, value in rows)


def because(saved: Saved, *, thresholds: Thresholds | None = None, calibrations: Iterable[Calibration] = ()) -> Because:
    """What decided the verdict, against which threshold, and what would have made another one.

    Args:
        saved: The receipt.
        thresholds: Those that were in force for passages, if they are known.
        calibrations: Among these, the one that the receipt names is looked for.

    Raises:
        ConfigError: The thresholds can't have been in force: a passage of the receipt would have another label.
    """
    facts, graded = saved.facts, [p for p in saved.known if p.probability is not None]
    if thresholds is not None and (wrong := _unlike(graded, thresholds)) is not None:
        msg = f"the thresholds {thresholds.lower} and {thresholds.upper} were not in force: a passage with {wrong.probability:.3f} is {wrong.label} there"
        raise ConfigError(msg)
    effects = _effects(saved)
    if facts.verdict is None:
        why = "nothing was looked up" if facts.status == "skipped" else "the knowledge could not be searched"
        return Because(None, f"no verdict: {why}", None, None, "labels", (), effects)
    named = [c for c in calibrations if c.described == facts.calibration]
    if saved.rule == "set":
        return _of_set(saved, named, effects)
    fitting = next((c.cuts for c in named if _unlike(graded, c.cuts) is None), None)
    found = thresholds or fitting
    lower, upper = (Cut(found.lower, found.lower), Cut(found.upper, found.upper)) if found else _bracketed(graded)
    known: Known = "given" if thresholds else "calibration" if fitting else "labels"
    grounds, turnings = _of_passages(saved, facts.verdict, lower, upper)
    return Because(facts.verdict, grounds, lower, upper, known, turnings, effects)


def _of_passages(saved: Saved, verdict: Verdict, lower: Cut | None, upper: Cut | None) -> tuple[str, tuple[Turning, ...]]:
    """By the rule `paper`: any passage relevant, or all incorrect."""
    known = saved.known
    if decide([Grade(p.id, p.probability, p.label) for p in known]) != verdict:
        return "the verdict does not follow from the labels: the receipt was changed, or it is not whole", ()
    if lower is None or upper is None:
        return f"{_counts(known)}; no one pair of thresholds gives these labels: two evaluators graded", ()
    ranked = sorted((p for p in known if p.probability is not None), key=lambda p: -(p.probability or 0.0))
    relevant = [p for p in ranked if p.label == "relevant"]
    standing = [p for p in known if p.label != "incorrect"]
    ungraded = [p for p in known if p.label == "ungraded"]
    also = f"; that takes a grade for {_many(len(ungraded))} that has none" if ungraded else ""
    sunk = Turning("incorrect", f"{_each(standing)} below {lower}{also}", _ids(standing[::-1]))
    if verdict == "relevant":
        some = f"{_many(len(relevant))} above {upper}: {_named(relevant)}" if relevant else "the evaluator said so without a probability"
        lowered = (
            [Turning("ambiguous", f"{_each(relevant)} at most {upper}{_gap(relevant[0], upper)}", _ids(relevant[::-1]))] if relevant else []
        )
        return some, (*lowered, *([sunk] if relevant else []))
    if verdict == "ambiguous":
        best = ranked[0] if ranked else None
        raised = [Turning("relevant", f"{_named([best])} were above {upper}{_gap(best, upper)}", (best.id,))] if best else []
        above = f"no passage is above {upper}, and {_counts(known)}"
        return above, (*raised, sunk)
    if not ranked:
        return "no passage was found" if not known else "every passage is incorrect by the evaluator's word", ()
    (best,) = ranked[:1]
    grounds = f"all {_many(len(ranked))} below {lower}; the best is {_named([best])}"
    return grounds, (
        Turning("ambiguous", f"{_named([best])} were at least {lower}{_gap(best, lower)}", (best.id,)),
        Turning("relevant", f"{_named([best])} were above {upper}{_gap(best, upper)}", (best.id,)),
    )


def _of_set(saved: Saved, named: Sequence[Calibration], effects: tuple[str, ...]) -> Because:
    """By the rule `set`: P(the passages together answer the question)."""
    facts, together = saved.facts, saved.facts.sufficiency
    sets = next((c.sets.thresholds for c in named if c.sets is not None and _agrees(saved, *c.sets.thresholds)), None)
    lower, upper = (Cut(cut, cut) for cut in sets) if sets else (None, None)
    if together is None or facts.verdict is None:
        return Because(facts.verdict, "not every passage has a grade, so it can't be incorrect", lower, upper, "calibration", (), effects)
    said = f"the passages together answer with probability {together:.3f}"
    if lower is None or upper is None:
        return Because(facts.verdict, f"{said}; the thresholds of that calibration are not known here", None, None, "labels", (), effects)
    needs: dict[Verdict, str] = {
        "relevant": f"that were above {upper}, and a passage were not incorrect",
        "ambiguous": f"that were from {lower} to {upper}",
        "incorrect": f"that were below {lower}, and each passage had a grade",
    }
    turnings = tuple(Turning(to, need) for to, need in needs.items() if to != facts.verdict)
    return Because(facts.verdict, f"{said}; the thresholds are {lower} and {upper}", lower, upper, "calibration", turnings, effects)


def _agrees(saved: Saved, lower: float, upper: float) -> bool:
    """Whether the verdict is possible with these thresholds for the set."""
    together = saved.facts.sufficiency
    match saved.facts.verdict:
        case "relevant":
            return together is not None and together > upper
        case "incorrect":
            return not saved.known or (together is not None and together < lower)
    return True


def _unlike(graded: Iterable[SavedPassage], thresholds: Thresholds) -> SavedPassage | None:
    """A passage that would have another label."""
    return next((p for p in graded if cut(Grade(p.id, p.probability, p.label), thresholds).label != p.label), None)


def _bracketed(graded: Sequence[SavedPassage]) -> tuple[Cut | None, Cut | None]:
    """Between what the thresholds lie, by the labels; None if these labels have no one pair."""
    incorrect, relevant = ([p.probability or 0.0 for p in graded if p.label == one] for one in ("incorrect", "relevant"))
    others = [p.probability or 0.0 for p in graded if p.label == "ambiguous"]
    lower = Cut(max(incorrect, default=0.0), min(others + relevant, default=1.0))
    upper = Cut(max(incorrect + others, default=0.0), min(relevant, default=1.0))
    return (lower if lower.at_least <= lower.at_most else None, upper if upper.at_least <= upper.at_most else None)


def _effects(saved: Saved) -> tuple[str, ...]:
    facts = saved.facts
    found = [f"{t.step} failed ({t.reason}): {_STEPS[step]}" for t in facts.degraded if (step := t.step.split(":")[0]) in _STEPS]
    found += [_RUNGS[rung] for rung in facts.rungs if rung in _RUNGS]
    return (*found, *(_NOTES[note] for note in dict.fromkeys(facts.notes) if note in _NOTES))


def _counts(passages: Sequence[SavedPassage]) -> str:
    labels = [p.label for p in passages]
    return ", ".join(f"{labels.count(one)} {one}" for one in dict.fromkeys(labels)) or "no passages"


def _named(passages: Sequence[SavedPassage]) -> str:
    named = [f"{p.named} ({p.probability:.3f})" if p.probability is not None else p.named for p in passages[:MOST_NAMED]]
    return ", ".join(named) + (f" and {len(passages) - MOST_NAMED} more" if len(passages) > MOST_NAMED else "")


def _each(passages: Sequence[SavedPassage]) -> str:
    return f"{_named(passages)} were" if len(passages) == 1 else f"each of {_named(passages)} were"


def _gap(passage: SavedPassage, to: Cut) -> str:
    """How far it is to a threshold that is known."""
    if to.at_least != to.at_most or passage.probability is None:
        return ""
    return f", {abs(to.at_least - passage.probability):.3f} away"


def _many(count: int) -> str:
    return f"{count} passage{'' if count == 1 else 's'}"


def _ids(passages: Sequence[SavedPassage]) -> tuple[str, ...]:
    return tuple(p.id for p in passages)
