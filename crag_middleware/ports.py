"""What the outside world must offer: small protocols, sync or async or both.

A port is any object with one of the two methods. It is passed only the keywords that its method accepts, so that a method may name fewer than
are offered; that is why the protocols leave the parameters open and the docstrings name them.

A port that only computes, for no longer than a few milliseconds, may say so with an attribute `instant = True`: it is then called in place, where
any other sync method runs in a thread that can be left behind.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from crag_middleware.errors import ConfigError
from crag_middleware.findings import WebFound
from crag_middleware.types import Checked, Grade, Passage, Strip


@runtime_checkable
class Retriever(Protocol):
    """Finds passages of one tenant, best first, at most `limit`.

    `retrieve(question, *, agent_id, limit, timeout_s) -> Sequence[Passage]`

    It may also have `neighbours`, or `aneighbours`: `neighbours(passages, *, agent_id, reach, timeout_s) -> Sequence[Sequence[Passage]]`, for each passage
    the chunks of its document that stand at most `reach` places before or after it, without itself, in the document's order; empty where nothing is known.
    """

    def retrieve(self, *arguments: Any, **keywords: Any) -> Sequence[Passage]:
        """Passages for the question, best first."""
        ...


@runtime_checkable
class AsyncRetriever(Protocol):
    """The async form of `Retriever`: `aretrieve`, with the same arguments and result."""

    async def aretrieve(self, *arguments: Any, **keywords: Any) -> Sequence[Passage]:
        """Passages for the question, best first."""
        ...


@runtime_checkable
class Evaluator(Protocol):
    """Grades passages against the question.

    `grade(question, passages, *, agent_id, timeout_s) -> Sequence[Grade]`

    It may have an attribute `thresholds`: a `Thresholds`, where its own probabilities are cut; by default those for stated probabilities.
    """

    def grade(self, *arguments: Any, **keywords: Any) -> Sequence[Grade]:
        """A grade for each passage, in any order; a passage without one counts as ungraded."""
        ...


@runtime_checkable
class AsyncEvaluator(Protocol):
    """The async form of `Evaluator`: `agrade`, with the same arguments and result."""

    async def agrade(self, *arguments: Any, **keywords: Any) -> Sequence[Grade]:
        """A grade for each passage, in any order; a passage without one counts as ungraded."""
        ...


@runtime_checkable
class WebSearch(Protocol):
    """Searches the web; `options` are the provider's own, `policy` (a `WebPolicy`) is the tenant's.

    `search(query, *, agent_id, limit, timeout_s, options, policy) -> Sequence[Passage] | WebFound`

    It may have a method `check_options(options)` that raises `ConfigError`; it is called once, with the settings' `web_options`, when the
    middleware is built.
    """

    def search(self, *arguments: Any, **keywords: Any) -> Sequence[Passage] | WebFound:
        """Web passages for the query, best first, at most `limit`."""
        ...


@runtime_checkable
class AsyncWebSearch(Protocol):
    """The async form of `WebSearch`: `asearch`, with the same arguments and result."""

    async def asearch(self, *arguments: Any, **keywords: Any) -> Sequence[Passage] | WebFound:
        """Web passages for the query, best first, at most `limit`."""
        ...


@runtime_checkable
class Rewriter(Protocol):
    """Writes a better query.

    `rewrite(question, *, history, tried, agent_id, timeout_s) -> str`

    With `history` (of `Exchange`) and nothing `tried`: the question made understandable on its own. With `tried` (of str): a query that differs
    from all of those.

    It may also have `keywords`, or `akeywords`: `keywords(question, *, agent_id, timeout_s) -> str`, what to type into a web search engine to find the answer.
    It is given the question as it may leave and nothing else; what it returns is composed once more, so that it can set nothing but the text.

    It may also have `decompose`, or `adecompose`: `decompose(question, *, agent_id, timeout_s) -> Sequence[str]`, the questions, three at most, that together
    make up a compound one; empty for a question that is none. And `hypothetical`, or `ahypothetical`: `hypothetical(question, *, agent_id, timeout_s) -> str`,
    a passage as it might stand in a document that answers the question; it is searched with, and shown to nobody.
    """

    def rewrite(self, *arguments: Any, **keywords: Any) -> str:
        """The new query in the question's language."""
        ...


@runtime_checkable
class AsyncRewriter(Protocol):
    """The async form of `Rewriter`: `arewrite`, with the same arguments and result."""

    async def arewrite(self, *arguments: Any, **keywords: Any) -> str:
        """The new query in the question's language."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Scores passages against the question, for their order alone: what they are worth is the evaluator's to say.

    `rerank(question, passages, *, agent_id, timeout_s) -> Sequence[float | None]`

    It may have an attribute `floor`: passages with a score below it are left out, by this scorer's own scale.
    """

    def rerank(self, *arguments: Any, **keywords: Any) -> Sequence[float | None]:
        """A score for each passage, in the passages' order, higher is better; None for one that it could not score."""
        ...


@runtime_checkable
class AsyncReranker(Protocol):
    """The async form of `Reranker`: `arerank`, with the same arguments and result."""

    async def arerank(self, *arguments: Any, **keywords: Any) -> Sequence[float | None]:
        """A score for each passage, in the passages' order, higher is better; None for one that it could not score."""
        ...


@runtime_checkable
class ClaimChecker(Protocol):
    """Checks statements against what they may rest on.

    `check(claims, grounds, *, question, agent_id, timeout_s) -> Sequence[Checked]`

    `claims` are `Claim`s, `grounds` are `Ground`s. It may have an attribute `threshold`: claims whose P(supported) lies below it count as unsupported, by this
    checker's own scale; by default 0.5.
    """

    def check(self, *arguments: Any, **keywords: Any) -> Sequence[Checked]:
        """What is thought of each claim, in the claims' order."""
        ...


@runtime_checkable
class AsyncClaimChecker(Protocol):
    """The async form of `ClaimChecker`: `acheck`, with the same arguments and result."""

    async def acheck(self, *arguments: Any, **keywords: Any) -> Sequence[Checked]:
        """What is thought of each claim, in the claims' order."""
        ...


@runtime_checkable
class EvidenceKeeper(Protocol):
    """Keeps web evidence of a checked answer for later turns, such as `WriteBack`.

    `keep(receipt, *, agent_id) -> Sequence[str]`
    """

    def keep(self, *arguments: Any, **keywords: Any) -> Sequence[str]:
        """The ids under which something was kept; none if nothing was worth it."""
        ...


@runtime_checkable
class AsyncEvidenceKeeper(Protocol):
    """The async form of `EvidenceKeeper`: `akeep`, with the same arguments and result."""

    async def akeep(self, *arguments: Any, **keywords: Any) -> Sequence[str]:
        """The ids under which something was kept; none if nothing was worth it."""
        ...


@runtime_checkable
class Refiner(Protocol):
    """Picks the strips of each passage that bear on the question.

    `refine(question, passages, *, agent_id, timeout_s, memo) -> Sequence[Sequence[Strip]]`

    It may also have `rank`, or `arank`, with the same arguments: every strip of every passage with its worth, nothing left out. `crag eval refinement`
    draws the curve of recall against kept share from it.
    """

    def refine(self, *arguments: Any, **keywords: Any) -> Sequence[Sequence[Strip]]:
        """A list of strips for each passage, in the passages' order; of a passage with an empty list everything is kept."""
        ...


@runtime_checkable
class AsyncRefiner(Protocol):
    """The async form of `Refiner`: `arefine`, with the same arguments and result."""

    async def arefine(self, *arguments: Any, **keywords: Any) -> Sequence[Sequence[Strip]]:
        """A list of strips for each passage, in the passages' order; of a passage with an empty list everything is kept."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """A port's method, ready to be called by a driver.

    Attributes:
        label: `Class.method`, for messages.
        sync: The sync form, or None.
        async_: The async form, or None.
        instant: The sync form never waits.
        owner: Whose method it is.
    """

    label: str
    sync: Callable[..., Any] | None
    async_: Callable[..., Awaitable[Any]] | None
    instant: bool
    owner: object = None


def bind(port: object, method: str) -> Bound:
    """The sync and async forms of a port's method, each taking only the keywords it accepts.

    A coroutine function under the sync name counts as the async form. An object that says `async_only` has no sync form, whatever it has: one made of
    others that have none.

    Raises:
        ConfigError: The object has neither form.
    """
    sync, async_ = getattr(port, method, None), getattr(port, f"a{method}", None)
    if inspect.iscoroutinefunction(sync):
        sync, async_ = None, async_ or sync
    if getattr(port, "async_only", False) is True:
        sync = None
    kind = type(port).__name__
    if not callable(sync) and not callable(async_):
        msg = f"a port needs a method `{method}` or `a{method}`, got an object of type {kind} that has neither"
        raise ConfigError(msg)
    instant = sync is not None and getattr(port, "instant", False) is True
    return Bound(f"{kind}.{method}", _narrow(sync), _narrow(async_), instant=instant, owner=port)


def _narrow(method: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The method, called with only those keywords that its signature has."""
    if method is None:
        return None
    parameters = inspect.signature(method).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return method
    accepted = frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))

    def narrowed(*arguments: object, **keywords: object) -> Any:
        return method(*arguments, **{k: v for k, v in keywords.items() if k in accepted})

    return narrowed
