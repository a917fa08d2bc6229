"""What a plan may ask of the world."""

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Generic, TypeVar

from crag_middleware.errors import (
    ClaimCheckError,
    CRAGError,
    GradingError,
    IngestError,
    RefineError,
    RerankError,
    RetrievalError,
    RewriteError,
    WebSearchError,
)
from crag_middleware.findings import Dropped, Found, Spent, Trouble, WebAttempt, WebFound
from crag_middleware.stages.decomposing import MAX_PARTS
from crag_middleware.tenancy import Scope, check_owners
from crag_middleware.types import Checked, Claim, Exchange, Grade, Ground, Memo, Origin, Passage, Strip
from crag_middleware.web_policy import WebPolicy

T = TypeVar("T")
_NUMBERS = ("score", "confidence", "created_at", "evidence_score", "injection_score")
PortName = str
"""`retriever`, `evaluator` and so on, or `route:` and the name of a further route."""

MAIN = "retriever"
"""The port of the main store."""


RESERVE: Mapping[PortName, float] = {
    "rewriter": 0.5,
    "decompose": 0.5,
    "hypothetical": 0.5,
    "keywords": 0.35,
    "retriever": 0.3,
    "neighbours": 0.1,
    "embedder": 0.3,
    "reranker": 0.25,
    "approver": 0.25,
    "web_search": 0.2,
    "evaluator": 0.15,
    "fallback_evaluator": 0.05,
    "refiner": 0.05,
}
"""The share of a turn's time that a call must leave for what comes after it; of a port that is not named, none."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of a port; a driver performs it within its deadline and answers with `read(reply)`, or raises `error`.

    With `cut`, `timeout_s` is what the turn's own deadline leaves it, and less than it would have had.
    """

    port: PortName
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    timeout_s: float
    read: Callable[[Any], T]
    error: type[CRAGError]
    cut: bool = False

    @property
    def reserve(self) -> float:
        """The share of the turn's time that it must leave for what comes after it."""
        return RESERVE.get(MAIN if self.port.startswith("route:") else self.port, 0.0)


@dataclass(frozen=True, slots=True)
class Together:
    """Calls performed at the same time; the answer is a tuple with each call's result or its `CRAGError`, in order."""

    calls: tuple[Call[Any], ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A new stage begins: its name is shown to the user, and time is counted for it. The answer is None."""

    name: str


@dataclass(frozen=True, slots=True)
class Timings:
    """The answer is the milliseconds spent in each stage so far, as a dict by name."""


@dataclass(frozen=True, slots=True)
class Spending:
    """The answer is what the turn has cost so far, as `Spent`."""


Step = Call[Any] | Together | Stage | Timings | Spending
Plan = Generator[Step, Any, T]
"""A plan yields steps and returns a T."""


def ask(call: Call[T]) -> Plan[T]:
    """Performs one call inside a plan, with its type."""
    reply: T = yield call
    return reply


def retrieve(question: str, scope: Scope, *, limit: int, timeout_s: float, port: PortName = MAIN) -> Call[Found]:
    """Search one route: passages with unique ids, ranked from 1; one that says `agent_id` in its metadata must be the tenant's."""

    def read(reply: Any) -> Found:
        passages = _owned(_passages(reply, limit, "knowledge", RetrievalError), scope)
        return Found(passages, tuple(_each(getattr(reply, "troubles", ()), Trouble, RetrievalError)))

    keywords = {"agent_id": scope.agent_id, "limit": limit, "timeout_s": timeout_s}
    return Call(port, (question,), keywords, timeout_s, read, RetrievalError)


def find_neighbours(passages: tuple[Passage, ...], scope: Scope, *, reach: int, timeout_s: float) -> Call[tuple[tuple[Passage, ...], ...]]:
    """Find the chunks around each passage in its document: one tuple for each, in document order."""

    def read(reply: Any) -> tuple[tuple[Passage, ...], ...]:
        found = tuple(_owned(_passages(each, 2 * reach, "knowledge", RetrievalError), scope) for each in reply)
        if len(found) != len(passages):
            msg = f"a retriever must return one list of neighbours for each of the {len(passages)} passages, got {len(found)}"
            raise RetrievalError(msg, reason="invalid_reply")
        return found

    keywords = {"agent_id": scope.agent_id, "reach": reach, "timeout_s": timeout_s}
    return Call("neighbours", (passages,), keywords, timeout_s, read, RetrievalError)


def embed(texts: tuple[str, ...], *, timeout_s: float, memo: Memo) -> Call[tuple[Sequence[float], ...]]:
    """Embed texts as the main store's passages are embedded: a vector of length 1 for each."""

    def read(reply: Any) -> tuple[Sequence[float], ...]:
        return tuple(reply)

    return Call("embedder", (texts,), {"memo": memo}, timeout_s, read, RetrievalError)


def rerank(question: str, passages: tuple[Passage, ...], scope: Scope, *, timeout_s: float) -> Call[tuple[float | None, ...]]:
    """Score passages for their order: a finite number for each, or None for one that was not scored."""

    def read(reply: Any) -> tuple[float | None, ...]:
        scores = list(reply) if isinstance(reply, Iterable) and not isinstance(reply, str | bytes) else []
        if len(scores) != len(passages) or not all(s is None or (isinstance(s, Real) and math.isfinite(s)) for s in scores):
            msg = f"a reranker must return one finite number or None for each of the {len(passages)} passages"
            raise RerankError(msg, reason="invalid_reply")
        return tuple(None if s is None else float(s) for s in scores)

    return Call("reranker", (question, passages), {"agent_id": scope.agent_id, "timeout_s": timeout_s}, timeout_s, read, RerankError)


def spending() -> Plan[Spent]:
    """What the turn has cost so far."""
    spent: Spent = yield Spending()
    return spent


def grade(
    question: str, passages: tuple[Passage, ...], scope: Scope, *, timeout_s: float, port: PortName = "evaluator"
) -> Call[tuple[Grade, ...]]:
    """Grade passages: one grade for each, in their order; those the evaluator left out are `ungraded`."""

    def read(reply: Any) -> tuple[Grade, ...]:
        found = {g.passage_id: g for g in _each(reply, Grade, GradingError) if g.probability is None or 0 <= g.probability <= 1}
        return tuple(found.get(p.id) or Grade(passage_id=p.id, probability=None, label="ungraded") for p in passages)

    keywords = {"agent_id": scope.agent_id, "timeout_s": timeout_s}
    return Call(port, (question, passages), keywords, timeout_s, read, GradingError)


def search_web(
    query: str, scope: Scope, *, limit: int, timeout_s: float, options: Mapping[str, Any], policy: WebPolicy | None = None
) -> Call[WebFound]:
    """Search the web: passages with unique ids, ranked from 1, and who was asked."""

    def read(reply: Any) -> WebFound:
        told = reply if isinstance(reply, WebFound) else WebFound()
        attempts, dropped = _each(told.attempts, WebAttempt, WebSearchError), _each(told.dropped, Dropped, WebSearchError)
        return WebFound(_passages(reply, limit, "web", WebSearchError), tuple(attempts), tuple(dropped))

    keywords = {"agent_id": scope.agent_id, "limit": limit, "timeout_s": timeout_s, "options": options, "policy": policy}
    return Call("web_search", (query,), keywords, timeout_s, read, WebSearchError)


def draft_keywords(question: str, scope: Scope, *, timeout_s: float) -> Call[str]:
    """Draft a web query from the question alone; never blank."""
    return Call("keywords", (question,), {"agent_id": scope.agent_id, "timeout_s": timeout_s}, timeout_s, _read_query, RewriteError)


def approve(query: str, scope: Scope, *, timeout_s: float) -> Call[str]:
    """Ask whether a web query may leave: the text that may, empty if none."""

    def read(reply: Any) -> str:
        if reply is not None and not isinstance(reply, str):
            msg = f"who approves web queries must return the text that may leave, or None, got {type(reply).__name__}"
            raise WebSearchError(msg, reason="invalid_reply", sent=False)
        return (reply or "").strip()

    return Call("approver", (query,), {"agent_id": scope.agent_id, "timeout_s": timeout_s}, timeout_s, read, WebSearchError)


def rewrite(question: str, history: tuple[Exchange, ...], tried: tuple[str, ...], scope: Scope, *, timeout_s: float) -> Call[str]:
    """Write a better query; never blank."""
    keywords = {"history": history, "tried": tried, "agent_id": scope.agent_id, "timeout_s": timeout_s}
    return Call("rewriter", (question,), keywords, timeout_s, _read_query, RewriteError)


def decompose(question: str, scope: Scope, *, timeout_s: float) -> Call[tuple[str, ...]]:
    """Take a compound question apart: the parts, at most `MAX_PARTS`; none if it is not compound."""

    def read(reply: Any) -> tuple[str, ...]:
        return tuple(part.strip() for part in _each(reply, str, RewriteError)[:MAX_PARTS] if part.strip())

    return Call("decompose", (question,), {"agent_id": scope.agent_id, "timeout_s": timeout_s}, timeout_s, read, RewriteError)


def imagine(question: str, scope: Scope, *, timeout_s: float) -> Call[str]:
    """Write a passage that might answer the question; never blank."""
    return Call("hypothetical", (question,), {"agent_id": scope.agent_id, "timeout_s": timeout_s}, timeout_s, _read_query, RewriteError)


def _read_query(reply: Any) -> str:
    if not isinstance(reply, str) or not reply.strip():
        msg = "the rewriter returned no text"
        raise RewriteError(msg, reason="empty")
    return reply.strip()


def check_claims(
    claims: tuple[Claim, ...], grounds: tuple[Ground, ...], question: str, scope: Scope, *, timeout_s: float
) -> Call[tuple[Checked, ...]]:
    """Check what an answer says against what it may rest on: one result for each claim, in their order."""

    def read(reply: Any) -> tuple[Checked, ...]:
        said = tuple(_each(reply, Checked, ClaimCheckError))
        if len(said) != len(claims) or not all(_sound(one, len(grounds)) for one in said):
            msg = f"a claim checker must return one Checked for each of the {len(claims)} claims, with a probability in [0, 1] or None"
            raise ClaimCheckError(msg, reason="invalid_reply")
        return said

    keywords = {"question": question, "agent_id": scope.agent_id, "timeout_s": timeout_s}
    return Call("claim_checker", (claims, grounds), keywords, timeout_s, read, ClaimCheckError)


def keep_evidence(receipt: Mapping[str, Any], scope: Scope, *, timeout_s: float) -> Call[tuple[str, ...]]:
    """Keep web evidence of a checked answer: the ids under which it was kept."""

    def read(reply: Any) -> tuple[str, ...]:
        return tuple(_each(reply, str, IngestError))

    return Call("write_back", (receipt,), {"agent_id": scope.agent_id}, timeout_s, read, IngestError)


def _sound(said: Checked, grounds: int) -> bool:
    probability, place = said.probability, said.decided_by
    return (probability is None or (isinstance(probability, Real) and 0 <= probability <= 1)) and (place is None or 0 <= place < grounds)


def refine(
    question: str, passages: tuple[Passage, ...], scope: Scope, *, timeout_s: float, memo: Memo | None = None
) -> Call[tuple[tuple[Strip, ...], ...]]:
    """Pick strips: one tuple for each passage, in document order, each strip verbatim."""

    def read(reply: Any) -> tuple[tuple[Strip, ...], ...]:
        picked = tuple(tuple(sorted(_each(strips, Strip, RefineError), key=lambda s: s.start)) for strips in reply)
        if len(picked) != len(passages):
            msg = f"the refiner must return one list for each of the {len(passages)} passages, got {len(picked)}"
            raise RefineError(msg, reason="invalid_reply")
        for passage, strips in zip(passages, picked, strict=True):
            ends = (0, *(s.end for s in strips))
            if not all(_stands(s, passage.text, end) for s, end in zip(strips, ends, strict=False)):
                msg = "the refiner returned a strip that is empty, overlaps another, or is not in its passage, or whose `worth` or `unit` is no number"
                raise RefineError(msg, reason="invalid_reply")
        return picked

    keywords = {"agent_id": scope.agent_id, "timeout_s": timeout_s, "memo": {} if memo is None else memo}
    return Call("refiner", (question, passages), keywords, timeout_s, read, RefineError)


def _stands(strip: Strip, text: str, begin: int) -> bool:
    """Whether a strip is not empty, begins at `begin` or later, is in the text, and has numbers where numbers belong."""
    if not isinstance(strip.worth, Real | None) or not isinstance(strip.unit, int | None):
        return False
    return begin <= strip.start < strip.end <= len(text) and text[strip.start : strip.end] == strip.text


def _each(reply: Any, kind: type[T], error: type[CRAGError]) -> Sequence[T]:
    """The reply as a list of one kind of value."""
    items = list(reply) if isinstance(reply, Sequence) and not isinstance(reply, str | bytes) else None
    if items is None or not all(isinstance(item, kind) for item in items):
        got = type(reply).__name__ if items is None else "a list with other values"
        msg = f"the port must return a list of {kind.__name__}, got {got}"
        raise error(msg, reason="invalid_reply")
    return items


def _owned(passages: tuple[Passage, ...], scope: Scope) -> tuple[Passage, ...]:
    """The passages, if those that say whose they are say the tenant's."""
    check_owners((p.metadata["agent_id"] for p in passages if "agent_id" in p.metadata), scope)
    return passages


def _passages(reply: Any, limit: int, origin: Origin, error: type[CRAGError]) -> tuple[Passage, ...]:
    """At most `limit` passages with unique ids, ranked from 1; a repeated id keeps its first place.

    Where they come from is decided by who was asked, not by what the port says.
    """
    unique: dict[str, Passage] = {}
    for passage in _each(reply, Passage, error):
        _check(passage, error)
        unique.setdefault(passage.id, passage)
    ranked = enumerate([*unique.values()][:limit], start=1)
    return tuple(p if (p.rank, p.origin) == (rank, origin) else replace(p, rank=rank, origin=origin) for rank, p in ranked)


def _is_vector(vector: Any) -> bool:
    """Whether it is None or a list of numbers."""
    try:
        return vector is None or isinstance(math.fsum(vector), float)
    except (ValueError, OverflowError):  # infinite, which the merge knows how to leave out
        return not isinstance(vector, str)
    except TypeError:
        return False


def _check(passage: Passage, error: type[CRAGError]) -> None:
    """Passes if every field is of its type: a port may be anybody's, and types are not checked when it runs."""
    texts = (passage.id, passage.text, passage.source, passage.title, passage.url)
    numbers = (getattr(passage, name) for name in _NUMBERS)
    if (
        all(isinstance(text, str) for text in texts)
        and all(number is None or isinstance(number, Real) for number in numbers)
        and isinstance(passage.metadata, Mapping)
        and _is_vector(passage.vector)
    ):
        return
    shown = {
        name: type(getattr(passage, name)).__name__ for name in ("id", "text", "source", "title", "url", *_NUMBERS, "vector", "metadata")
    }
    msg = (
        f"a passage must have str id, text, source, title and url, numbers or None as {', '.join(_NUMBERS)}, a list of numbers or None as vector, "
        f"a mapping as metadata, got {shown}"
    )
    raise error(msg, reason="invalid_reply")
