"""The suite for claim checkers: every check of it can fail, and passes a checker without a fault."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from crag_middleware.errors import CRAGError
from crag_middleware.testing.claim_suite import ClaimCheckerSuite
from crag_middleware.types import Checked, Claim, EvaluatorKey, Ground


class Good:
    """A checker without a fault; the others below have one each."""

    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
        return [self.one(claim, grounds) for claim in claims]

    def one(self, claim: Claim, grounds: Sequence[Ground]) -> Checked:
        words = claim.text.split(" [")[0]
        by = next((place for place, ground in enumerate(grounds) if words in ground.text), None)
        return Checked("not_mentioned", 0.1) if by is None else Checked("supported", 0.9, by)


def bad(**faults: Any) -> Any:
    """A good checker but for these attributes."""
    return type("Bad", (Good,), faults)()


def checking(check: Any) -> Any:
    """A faulty `check(claims, grounds)`."""
    return bad(check=lambda self, claims, grounds: check(claims, grounds))


def plain(claims: Sequence[Claim], grounds: Sequence[Ground]) -> list[Checked]:
    return list(Good().check(claims, grounds))


def changed(**fields: Any) -> Any:
    return checking(lambda claims, grounds: [replace(one, **fields) for one in plain(claims, grounds)])


class Counter(Good):
    """Gives every call another probability."""

    calls = 0

    def one(self, claim: Claim, grounds: Sequence[Ground]) -> Checked:
        self.calls += 1
        return Checked("not_mentioned", 1 / (1 + self.calls))


class DiffersAsync(Good):
    async def acheck(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
        return [replace(one, probability=0.3) for one in self.check(claims, grounds)]


class OneLoopOnly(Good):
    """Its async form keeps the event loop that it first ran on."""

    def __init__(self) -> None:
        self.loop: Any = None

    async def acheck(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop(), "Event loop is closed"
        return self.check(claims, grounds)


class WritesClaims(Good):
    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
        if isinstance(claims, list):
            claims.reverse()
        return super().check(claims, grounds)


class WritesGrounds(Good):
    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
        if isinstance(grounds, list):
            grounds.append(Ground("more"))
        return super().check(claims, grounds)


class WantsMore(Good):
    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground], *, collection: str) -> Sequence[Checked]:  # type: ignore[override]
        return super().check(claims, grounds)


class WantsQuestions(Good):
    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground], *, question: str) -> Sequence[Checked]:  # type: ignore[override]
        return super().check(claims, grounds) if question.strip() else []


class ChangingKey(Good):
    asked = 0

    @property
    def key(self) -> EvaluatorKey:
        return EvaluatorKey("ChangingKey", str(self.asked))

    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
        self.asked += 1
        return super().check(claims, grounds)


EVERY = "test_every_claim_is_checked_in_order"
NONE = "test_no_claims_get_no_results"
GROUNDLESS = "test_without_grounds_nothing_is_supported"
ODD = "test_odd_claims_and_grounds_are_checked"
ODD_QUESTION = "test_odd_questions_are_no_obstacle"
ORDER = "test_results_stand_in_the_claims_order"
EVERYWHERE = "test_it_gives_the_same_sync_and_async_from_threads_and_event_loops"
UNTOUCHED = "test_what_it_is_given_stays_as_it_was"
SIGNATURE = "test_it_can_be_called_with_what_is_offered"
THRESHOLD = "test_its_threshold_is_a_probability_or_missing"
KEY = "test_its_key_says_whose_probabilities_they_are"

BAD_CHECKERS = [
    (EVERY, checking(lambda cs, gs: plain(cs[1:], gs))),
    (EVERY, checking(lambda cs, gs: plain([*cs, *cs], gs))),
    (EVERY, checking(lambda cs, gs: iter(plain(cs, gs)))),
    (EVERY, checking(lambda cs, gs: None)),
    (EVERY, checking(lambda cs, gs: [0.5 for _ in cs])),
    (EVERY, changed(probability=None)),
    (EVERY, changed(probability=1.2)),
    (EVERY, changed(probability=float("nan"))),
    (EVERY, changed(probability="0.5")),
    (EVERY, changed(probability=True)),
    (EVERY, changed(label="relevant")),
    (EVERY, changed(decided_by=3)),
    (EVERY, changed(decided_by=-1)),
    (EVERY, changed(decided_by="0")),
    (EVERY, changed(decided_by=True)),
    (EVERY, changed(reason=None)),
    (NONE, checking(lambda cs, gs: plain(cs, gs) or [Checked("supported", 1.0)])),
    (GROUNDLESS, checking(lambda cs, gs: plain(cs, gs) if gs else [Checked("supported", 1.0) for _ in cs])),
    (GROUNDLESS, checking(lambda cs, gs: gs[0] and plain(cs, gs))),
    (ODD, checking(lambda cs, gs: plain([c for c in cs if c.text.strip()], gs))),
    (ODD, checking(lambda cs, gs: list({c.text: one for c, one in zip(cs, plain(cs, gs), strict=True)}.values()))),
    (ODD, checking(lambda cs, gs: plain(cs, gs) if all(g.text for g in gs) else [])),
    (ODD_QUESTION, WantsQuestions()),
    (ORDER, checking(lambda cs, gs: sorted(plain(cs, gs), key=lambda one: one.probability or 0))),
    (EVERYWHERE, Counter()),
    (EVERYWHERE, DiffersAsync()),
    (EVERYWHERE, OneLoopOnly()),
    (UNTOUCHED, WritesClaims()),
    (UNTOUCHED, WritesGrounds()),
    (SIGNATURE, WantsMore()),
    (THRESHOLD, bad(threshold=1.5)),
    (THRESHOLD, bad(threshold="0.5")),
    (KEY, bad(key="mine")),
    (KEY, bad(key=EvaluatorKey(""))),
    (KEY, ChangingKey()),
]


def checks() -> set[str]:
    return {name for name in dir(ClaimCheckerSuite) if name.startswith("test_")}


@pytest.mark.parametrize(("check", "checker"), BAD_CHECKERS)
def test_a_bad_checker_is_caught(check: str, checker: Any) -> None:
    with pytest.raises((AssertionError, CRAGError, IndexError)):
        getattr(ClaimCheckerSuite(), check)(checker)


def test_each_check_is_shown_to_fail_and_passes_a_good_checker() -> None:
    assert {check for check, _ in BAD_CHECKERS} == checks()
    for check in checks():
        getattr(ClaimCheckerSuite(), check)(Good())


def test_what_a_checker_does_not_claim_is_not_asked_of_it() -> None:
    class Lenient(ClaimCheckerSuite):
        order_free = False
        deterministic = False

    getattr(Lenient(), ORDER)(Counter())
    getattr(Lenient(), EVERYWHERE)(Counter())
