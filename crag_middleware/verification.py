"""The verification pass: one answer while it is written, its citations mended and its claims checked. The counterpart of `plan.py`.

What can be decided as the text arrives is let go as it arrives; what needs the whole answer waits for it. Here stands what happens when a claim has no
support, and when the checker fails: then the answer goes out, and what is known of it says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from crag_middleware.errors import ClaimCheckError, IngestError
from crag_middleware.findings import Rung, Trouble
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.budget import SHORT, has_room
from crag_middleware.stages.citations import Mender, mend
from crag_middleware.stages.claims import claims
from crag_middleware.stages.footnotes import footnotes, told_claims
from crag_middleware.stages.gate import Gate
from crag_middleware.stages.grounding import GENERAL_LABEL, REFUSAL, correction
from crag_middleware.stages.mending import after_dropped, with_citations, without
from crag_middleware.steps import Plan, Stage, ask, check_claims, keep_evidence, spending
from crag_middleware.tenancy import Scope
from crag_middleware.types import Checked, Claim, Ground, Language, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the answer of one model call is checked against.

    Attributes:
        scope: The tenant.
        question: What the user asked.
        sources: The turn's sources by citation number, as the receipt has them, those of other instances included.
        foreign: Numbers that tools cite by: not ours, and left alone.
        grounds: What claims may rest on.
        block: The injected evidence.
        settings: Every number and choice.
        language: Language of corrections, refusals and labels.
        threshold: Claims whose P(supported) lies below it are unsupported; None without a checker.
        is_instant: Whether the checker never waits.
        is_bare: Whether no evidence was found and no tool has answered in this turn.
        repairs_left: How often the model may be asked for another draft.
        key: Where an answer's metadata holds what is known of it.
    """

    scope: Scope
    question: str
    sources: Mapping[int, Mapping[str, Any]]
    foreign: frozenset[int]
    grounds: tuple[Ground, ...]
    block: str
    settings: CRAGSettings
    language: Language
    threshold: float | None
    is_instant: bool
    is_bare: bool
    repairs_left: int
    key: str

    @property
    def refuses(self) -> bool:
        """Whether nothing may be answered."""
        return self.is_bare and self.settings.when_no_evidence == "refuse"

    @property
    def waits(self) -> bool:
        """Whether nothing may be shown before the whole answer was judged."""
        settings = self.settings
        changes = settings.on_unsupported in ("repair", "refuse") or settings.add_citations
        return self.refuses or (self.threshold is not None and (changes or (settings.on_unsupported == "drop" and not self.is_instant)))

    @property
    def by_sentence(self) -> bool:
        """Whether each sentence is checked before it is shown."""
        return self.threshold is not None and self.settings.on_unsupported == "drop" and not self.waits


class Verification:
    """What is done to one answer; see `adapters.verified_model.Answer`.

    Args:
        basis: What it is checked against.
    """

    def __init__(self, basis: Basis) -> None:
        self.waits = basis.waits
        self._basis = basis
        self._origins: dict[int, Origin] = {number: source["origin"] for number, source in basis.sources.items()}
        self._mender = Mender(self._origins, basis.settings.unknown_citations, basis.foreign)
        self._gate = Gate()
        self._shown = ""
        self._instead: str | None = None
        self._unknown: tuple[str, ...] = ()
        self._checked: list[tuple[Claim, Checked]] = []
        self._state = "off" if basis.threshold is None else "nothing_to_check"
        self._rungs: list[Rung] = []
        self._action = ""
        self._repairs = 0
        self._is_final = False
        self._dropped = ""
        self._troubles: list[Trouble] = []

    def feed(self, text: str) -> Plan[str]:
        """What can be shown after this piece."""
        if self._instead is not None:
            return ""
        return (yield from self._let_go(self._mender.feed(text)))

    def end(self, *, is_final: bool) -> Plan[str]:
        """What is left to show, when nothing more comes; final is an answer that calls no tools."""
        self._is_final = is_final
        if self._instead is not None:
            self._shown = self._instead
            return self._instead
        shown = yield from self._let_go(self._mender.end(), is_last=True)
        if is_final and not self.waits and not self._basis.by_sentence:
            yield from self._check(self._shown)
            self._flag()
        if is_final and self._action == "dropped" and not self._shown.strip():
            shown = self._shown = self._refusal
        if is_final and self._shown.strip() and self._basis.is_bare and self._basis.settings.when_no_evidence == "general":
            label = f"\n\n{self._basis.settings.general_label or GENERAL_LABEL[self._basis.language]}"
            self._shown, shown = self._shown + label, shown + label
        return shown

    def judge(self, draft: str) -> Plan[str | None]:
        """What to tell the model so that it writes another draft; None if this is the last."""
        basis, settings = self._basis, self._basis.settings
        if basis.refuses:
            self._instead, self._action = self._refusal, "refused"
            return None
        mended = mend(draft, self._origins, when_unknown=settings.unknown_citations, foreign=basis.foreign)
        yield from self._check(mended.text)
        failing = self._failing
        may_repair = failing and settings.on_unsupported == "repair" and self._repairs < basis.repairs_left
        if may_repair and (yield from self._affords()):
            self._repairs += 1
            return correction([claim.text for claim in failing], basis.block, basis.language)
        what = settings.after_repair if settings.on_unsupported == "repair" else settings.on_unsupported
        text, unknown = mended.text, mended.unknown
        if failing and what == "refuse":
            text, unknown, self._action = self._refusal, (), "refused"
        elif failing and what == "drop":
            text, self._action = without(text, failing) or self._refusal, "dropped"
        else:
            self._action = "flagged" if failing else "repaired" if self._repairs else ""
            text = with_citations(text, self._checked, basis.grounds) if settings.add_citations else text
        if text != mended.text:  # else the draft goes through `feed`, which tells its citations
            self._instead, self._unknown = text, unknown
        return None

    def failed(self, reason: str) -> None:
        """The model did not write another draft: the last one goes out, and what is known of it says so."""
        self._troubles.append(Trouble("repair", reason))
        if self._basis.settings.after_repair == "refuse":
            self._instead, self._action = self._refusal, "refused"
        self._flag()

    def told(self) -> dict[str, Any] | None:
        """What is known of the answer, as plain JSON under the instance's key; None for a step on the way to it."""
        if not self._is_final and not self._repairs:
            return None
        settings = self._basis.settings
        unknown = self._mender.unknown if self._instead is None else self._unknown
        found = mend(self._shown, self._origins, when_unknown="flag", foreign=self._basis.foreign)
        known = {
            "citations": footnotes(found.citations, self._basis.sources, quoted=settings.save_evidence),
            "unknown_citations": list(unknown),
            "checked": self._state,
            "claims": told_claims(self._checked, self._basis.grounds, quoted=settings.save_evidence),
            "action": self._action or ("mended" if unknown and settings.unknown_citations == "remove" else ""),
            "repairs": self._repairs,
            "rungs": list(self._rungs),
            "degraded": [{"step": trouble.step, "reason": trouble.reason} for trouble in self._troubles],
        }
        return {self._basis.key: known}

    @property
    def shown(self) -> str:
        """What was let go so far."""
        return self._shown

    @property
    def _refusal(self) -> str:
        return self._basis.settings.refusal_text or REFUSAL[self._basis.language]

    @property
    def _failing(self) -> list[Claim]:
        return [claim for claim, said in self._checked if self._fails(said)]

    def _fails(self, said: Checked) -> bool:
        threshold = self._basis.threshold
        return threshold is not None and said.probability is not None and said.probability < threshold

    def _flag(self) -> None:
        if self._failing:
            self._action = self._action or "flagged"

    def _let_go(self, text: str, *, is_last: bool = False) -> Plan[str]:
        """The mended text as it is shown: as it is, or sentence by sentence without those that nothing supports."""
        shown = text
        if self._basis.by_sentence:
            shown = ""
            for sentence in [*self._gate.feed(text), *(self._gate.end() if is_last else ())]:
                shown += (yield from self._passed(sentence.text, self._shown + shown)) if not sentence.is_code else sentence.text
        self._shown += shown
        return shown

    def _passed(self, sentence: str, before: str) -> Plan[str]:
        """The sentence; empty if it is dropped, and what cites for it after its full stop with it."""
        text, place = after_dropped(sentence, self._dropped, before), len(before)
        earlier, self._checked = self._checked, []
        yield from self._check(text)
        self._dropped = self._dropped + sentence if self._failing else ""
        moved = [(replace(claim, start=claim.start + place, end=claim.end + place), said) for claim, said in self._checked]
        self._checked = [*earlier, *moved]
        if self._dropped:
            self._action = "dropped"
            return ""
        return text

    def _check(self, text: str) -> Plan[None]:
        """Checks the claims of a text; told, and none of them known, if that fails."""
        basis = self._basis
        found = () if basis.threshold is None else claims(text, lambda part: _cited(part, self._origins))
        self._checked = []
        if not found:
            return
        if not basis.is_instant:
            if not (yield from self._affords()):
                self._skip("budget")
                return
            yield Stage("checking")
        try:
            said = yield from ask(check_claims(found, basis.grounds, basis.question, basis.scope, timeout_s=basis.settings.claim_timeout_s))
        except ClaimCheckError as error:
            if error.reason in SHORT:
                self._skip(error.reason)
                return
            self._state = "failed"
            self._troubles += [Trouble("check_claims", error.reason)] if not self._troubles else []
            return
        self._state = "checked" if self._state not in ("failed", "skipped") else self._state
        self._checked = list(zip(found, said, strict=True))

    def _affords(self) -> Plan[bool]:
        """Whether the turn's time and budget have room for another model call."""
        settings, spent = self._basis.settings, (yield from spending())
        spent = replace(spent, model_calls=spent.model_calls + self._repairs)
        in_time = settings.turn_timeout_s is None or spent.ms < 1000 * settings.turn_timeout_s
        return in_time and has_room(spent, settings)

    def _skip(self, reason: str) -> None:
        """Claims are not checked, and what is known of the answer says so."""
        self._state, self._rungs = "skipped", ["no_claim_check"]
        self._troubles += [Trouble("check_claims", reason)] if not self._troubles else []


def kept(receipt: Mapping[str, Any], scope: Scope, *, timeout_s: float) -> Plan[dict[str, Any]]:
    """The receipt of a checked answer, with the ids under which web evidence of it was kept; told, and none, if that failed."""
    try:
        ids = yield from ask(keep_evidence(receipt, scope, timeout_s=timeout_s))
    except IngestError as error:
        return {**receipt, "degraded": [*receipt["degraded"], {"step": "write_back", "reason": error.reason}]}
    return {**receipt, "written_back": list(ids)}


def _cited(text: str, origins: Mapping[int, Origin]) -> tuple[int, ...]:
    """The numbers of the sources that a text cites, each once, in order."""
    return tuple(dict.fromkeys(number for citation in mend(text, origins).citations for number in citation.numbers))
