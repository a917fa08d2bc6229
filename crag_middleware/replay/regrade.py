"""A saved receipt against today's settings and evaluator: graded and decided again, and what came out differently."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Unpack

from crag_middleware.drive import run
from crag_middleware.errors import ConfigError
from crag_middleware.findings import Trouble
from crag_middleware.ledger import Run
from crag_middleware.parts import Given, Parts
from crag_middleware.passes import graded, weighed
from crag_middleware.replay.saved import Saved, SavedPassage
from crag_middleware.steps import Plan
from crag_middleware.tenancy import Scope, check_agent_id
from crag_middleware.types import Graded, Label, Passage, Verdict

State = Literal["same", "changed", "gone"]
"""What became of a passage's text since: changed as far as the receipt's own text and strips tell, or no more there."""


class _NoSearch:
    """Knowledge that is not searched: the passages are known."""

    instant = True

    def __init__(self, collection: str) -> None:
        self.collection_name = collection

    def retrieve(self, *arguments: Any, **keywords: Any) -> Sequence[Passage]:
        return ()

    def neighbours(self, passages: Sequence[Passage], **keywords: Any) -> Sequence[Sequence[Passage]]:
        return [() for _ in passages]


@dataclass(frozen=True, slots=True)
class Difference:
    """One passage, then and now.

    Attributes:
        id: The passage's id.
        named: Its title, address or source.
        text: What became of its text.
        label: Then.
        label_now: Now; None if it is gone.
        probability: Then, in [0, 1]; None if it was ungraded.
        probability_now: Now.
    """

    id: str
    named: str
    text: State
    label: Label
    label_now: Label | None
    probability: float | None
    probability_now: float | None

    @property
    def differs(self) -> bool:
        """Whether its label or its text is another one."""
        return self.text != "same" or self.label != self.label_now


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a turn's passages come to today. The search itself is not repeated.

    Attributes:
        verdict: Then.
        verdict_now: Now, on the passages that are still there.
        calibration: What the grades went through then, in words; None if nothing.
        calibration_now: The same now.
        thresholds_now: The thresholds for passages that are in force: (lower, upper).
        passages: Each passage of the knowledge, in the receipt's order.
        troubles: What failed now: step and reason.
    """

    verdict: Verdict
    verdict_now: Verdict
    calibration: str | None
    calibration_now: str | None
    thresholds_now: tuple[float, float]
    passages: tuple[Difference, ...]
    troubles: tuple[Trouble, ...]

    @property
    def differs(self) -> bool:
        """Whether the verdict is another one."""
        return self.verdict != self.verdict_now

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"differs": self.differs, **asdict(self)}


def replay(saved: Saved, texts: Mapping[str, Passage], *, agent_id: str, collection: str = "", **given: Unpack[Given]) -> Replayed:
    """Grades the receipt's passages again and decides anew.

    Args:
        saved: The receipt.
        texts: The passages as they are today, by id (`fetched`), or as they were (`own_texts`).
        agent_id: The tenant, whose settings and calibration count.
        collection: The collection's name, for calibrations that belong to one.
        given: Evaluator, calibration, settings and so on as `CRAGMiddleware` takes them; nothing is searched.

    Raises:
        ConfigError: The turn has no verdict to compare with, or an argument can't work.
        TenantError: `agent_id` is no tenant id.
    """
    if saved.facts.verdict is None:
        msg = f"there is nothing to replay: the turn's status is {saved.facts.status!r} and it has no verdict"
        raise ConfigError(msg)
    scope = Scope(check_agent_id(agent_id))
    parts = Parts(_NoSearch(collection), agent_id=agent_id, **given)
    policy = parts.policy_of(scope)
    turn = Run(scope, policy, saved.facts.query, troubles=list(policy.troubles))
    found = tuple(texts[p.id] for p in saved.known if p.id in texts)
    now, verdict = run(_decided(saved.facts.query, found, turn), parts.world(scope, policy.settings, lambda _: None))
    scale = policy.fallback if turn.fell_back and policy.fallback else turn.scale
    by_id = {g.passage.id: g for g in now}
    return Replayed(
        verdict=saved.facts.verdict,
        verdict_now=verdict,
        calibration=saved.facts.calibration,
        calibration_now=turn.calibration.described if turn.calibration else None,
        thresholds_now=(scale.thresholds.lower, scale.thresholds.upper),
        passages=tuple(_difference(p, by_id.get(p.id), saved) for p in saved.known),
        troubles=tuple(turn.troubles),
    )


def _decided(query: str, passages: tuple[Passage, ...], turn: Run) -> Plan[tuple[tuple[Graded, ...], Verdict]]:
    now = yield from graded(query, weighed(passages, turn), "grade", turn)
    return now, turn.decide(now)


def _difference(then: SavedPassage, now: Graded | None, saved: Saved) -> Difference:
    text: State = "gone" if now is None else "same" if _is_same(then, now.passage.text, saved) else "changed"
    grade = now.grade if now else None
    return Difference(
        then.id, then.named, text, then.label, grade.label if grade else None, then.probability, grade.probability if grade else None
    )


def _is_same(then: SavedPassage, text: str, saved: Saved) -> bool:
    """Whether the text is the same, as far as the receipt tells."""
    if then.text is not None:
        return then.text == text
    sources = (s for s in saved.facts.sources if (s.id, s.origin) == (then.id, then.origin))
    return all(text[strip.start : strip.end] == strip.text for source in sources for strip in source.strips)
