"""What a search, a route and a whole turn came to: frozen values, like those of `types.py` that they are made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from crag_middleware.types import Conflict, Graded, Passage, Question, Source, Verdict, VerdictRule


@dataclass(frozen=True, slots=True)
class WebQuery:
    """What is to leave for the web.

    Attributes:
        text: The query; empty if nothing worth searching is left.
        include_domains: Hosts that the user asked to search in (`site:`), in lower case and ASCII.
    """

    text: str
    include_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAttempt:
    """One provider's part in a web search.

    Attributes:
        provider: Its class name, or the name it was given.
        reason: Empty if it answered, else a short code.
        results: How many passages it gave.
        requests: How many requests left for it, repetitions included; 0 if the answer came from a cache or none was sent.
        ms: How long it took, in milliseconds.
    """

    provider: str
    reason: str = ""
    results: int = 0
    requests: int = 1
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Dropped:
    """A web result that no model gets to see: its address and title, and why in a short code."""

    url: str
    title: str
    reason: str


class WebFound(tuple[Passage, ...]):
    """The passages that a web search found, and how.

    Attributes:
        attempts: Who was asked for them, in order.
        dropped: Results that were left out before anybody saw them.
    """

    attempts: tuple[WebAttempt, ...]
    dropped: tuple[Dropped, ...]

    def __new__(
        cls, passages: Iterable[Passage] = (), attempts: tuple[WebAttempt, ...] = (), dropped: tuple[Dropped, ...] = ()
    ) -> "WebFound":
        """The passages as a tuple that says more."""
        found = super().__new__(cls, passages)
        found.attempts, found.dropped = attempts, dropped
        return found

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages alone."""
        return tuple(self)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A step that failed and was done without: its name, and a short reason code."""

    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class Routed:
    """One route's answer to one query.

    Attributes:
        route: The route's name.
        query: Which of the turn's queries, counted from 0.
        found: How many passages it brought.
        reason: Empty if it answered, else a short code.
    """

    route: str
    query: int
    found: int = 0
    reason: str = ""


class Found(tuple[Passage, ...]):
    """The passages that a retriever found, and what it had to do without.

    Attributes:
        troubles: Parts of the search that failed, such as a leg: the leg's name as `step`, and a short reason code.
    """

    troubles: tuple[Trouble, ...]

    def __new__(cls, passages: Iterable[Passage] = (), troubles: tuple[Trouble, ...] = ()) -> "Found":
        """The passages as a tuple that says more."""
        found = super().__new__(cls, passages)
        found.troubles = troubles
        return found


Status = Literal["grounded", "no_evidence", "retrieval_failed", "skipped"]
"""What a turn ended with; `retrieval_failed` stays even if the web helped out."""


Rung = Literal["no_claim_check", "cheap_evaluator", "no_web", "plain_passages", "untouched"]
"""What a turn does without when its time, model calls or tokens run short, from the least to the most (docs/budget.md)."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What the middleware spent in one turn.

    Attributes:
        ms: Milliseconds, without the agent's own model and tools.
        model_calls: Calls of chat models inside evaluator, rewriter, claim checker and so on; repairs, which the agent's model writes, included.
        tokens: Of those calls without repairs, prompt and reply together.
        web_requests: Requests that left for the web.
    """

    ms: float = 0.0
    model_calls: int = 0
    tokens: int = 0
    web_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything one corrective pass found out; the receipt is made from it.

    Attributes:
        question: What the user asked.
        query: The question as it was searched and graded: understandable on its own.
        status: What the turn ended with.
        verdict: The decision on the knowledge; None if nothing was retrieved or retrieval failed.
        rule: What the verdict was cut from; None for a skipped turn.
        sufficiency: P(the knowledge passages together answer the question), in [0, 1]; None without a calibration that tells it.
        calibration: Which calibration the grades went through, in a few words; None if none.
        graded: Every passage seen, knowledge before web, best first.
        sources: What was injected, by number.
        conflicts: What the sources contradict each other in, as far as it was found.
        cut_strips: How many strips were kept and did not fit into the token budget.
        block: The text to inject; empty for a skipped turn.
        rules: The version of the rules in it, or `own`; empty for a skipped turn.
        tokens: Size of the block by the token counter.
        queries: What the knowledge was asked, in order.
        routed: What each route answered to each query.
        web_queries: The exact texts that went to the web, in order.
        web_attempts: Who was asked for them, in order, as far as the web search says.
        web_dropped: Web results that were not graded, and why.
        troubles: Steps that failed and were done without.
        notes: Codes of steps that were left out, such as `no_rewriter`.
        rungs: What was done without since time or budget ran short.
        calls: How often each port was called.
        spent: What all of it cost.
        timings_ms: Milliseconds spent in each stage.
    """

    question: Question
    query: str = ""
    status: Status
    verdict: Verdict | None = None
    rule: VerdictRule | None = None
    sufficiency: float | None = None
    calibration: str | None = None
    graded: tuple[Graded, ...] = ()
    sources: tuple[Source, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    cut_strips: int = 0
    block: str = ""
    rules: str = ""
    tokens: int = 0
    queries: tuple[str, ...] = ()
    routed: tuple[Routed, ...] = ()
    web_queries: tuple[str, ...] = ()
    web_attempts: tuple[WebAttempt, ...] = ()
    web_dropped: tuple[Dropped, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    notes: tuple[str, ...] = ()
    rungs: tuple[Rung, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    spent: Spent = Spent()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
