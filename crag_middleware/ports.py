"""What the outside world must offer: small protocols, sync or async or both.

A port is any object with one of the two methods; it is passed only the keywords that its method accepts.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from crag_middleware.errors import ConfigError
from crag_middleware.types import Exchange, Grade, Passage, Strip, Thresholds


@runtime_checkable
class Retriever(Protocol):
    """Finds passages of one tenant, best first, at most `limit`."""

    def retrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Sequence[Passage]:
        """Passages for the question, best first."""
        ...


@runtime_checkable
class AsyncRetriever(Protocol):
    """The async form of `Retriever`."""

    async def aretrieve(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> Sequence[Passage]:
        """Passages for the question, best first."""
        ...


@runtime_checkable
class Evaluator(Protocol):
    """Grades passages against the question; order and number are free, a passage without a grade counts as ungraded.

    `thresholds` belong to the evaluator's own probabilities.
    """

    @property
    def thresholds(self) -> Thresholds:
        """Where this evaluator's probabilities are cut."""
        ...

    def grade(self, question: str, passages: Sequence[Passage], *, agent_id: str, timeout_s: float) -> Sequence[Grade]:
        """One grade for each passage."""
        ...


@runtime_checkable
class AsyncEvaluator(Protocol):
    """The async form of `Evaluator`."""

    @property
    def thresholds(self) -> Thresholds:
        """Where this evaluator's probabilities are cut."""
        ...

    async def agrade(self, question: str, passages: Sequence[Passage], *, agent_id: str, timeout_s: float) -> Sequence[Grade]:
        """One grade for each passage."""
        ...


@runtime_checkable
class WebSearch(Protocol):
    """Searches the web; `options` are the provider's own."""

    def search(self, query: str, *, agent_id: str, limit: int, timeout_s: float, options: Mapping[str, Any]) -> Sequence[Passage]:
        """Web passages for the query, best first, at most `limit`."""
        ...


@runtime_checkable
class AsyncWebSearch(Protocol):
    """The async form of `WebSearch`."""

    async def asearch(self, query: str, *, agent_id: str, limit: int, timeout_s: float, options: Mapping[str, Any]) -> Sequence[Passage]:
        """Web passages for the query, best first, at most `limit`."""
        ...


@runtime_checkable
class Rewriter(Protocol):
    """Writes a better query.

    With `history` and nothing `tried`: the question made understandable on its own. With `tried`: a query that differs from all of those.
    """

    def rewrite(self, question: str, *, history: Sequence[Exchange], tried: Sequence[str], agent_id: str, timeout_s: float) -> str:
        """The new query in the question's language."""
        ...


@runtime_checkable
class AsyncRewriter(Protocol):
    """The async form of `Rewriter`."""

    async def arewrite(self, question: str, *, history: Sequence[Exchange], tried: Sequence[str], agent_id: str, timeout_s: float) -> str:
        """The new query in the question's language."""
        ...


@runtime_checkable
class Refiner(Protocol):
    """Picks the strips of each passage that bear on the question."""

    def refine(self, question: str, passages: Sequence[Passage], *, agent_id: str, timeout_s: float) -> Sequence[Sequence[Strip]]:
        """One list of strips a passage, in the passages' order; an empty list means "nothing picked": the passage is then kept whole."""
        ...


@runtime_checkable
class AsyncRefiner(Protocol):
    """The async form of `Refiner`."""

    async def arefine(self, question: str, passages: Sequence[Passage], *, agent_id: str, timeout_s: float) -> Sequence[Sequence[Strip]]:
        """One list of strips a passage, in the passages' order."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """A port's method, ready to be called by a driver.

    Attributes:
        label: `Class.method`, for messages.
        sync: The sync form, or None.
        async_: The async form, or None.
    """

    label: str
    sync: Callable[..., Any] | None
    async_: Callable[..., Awaitable[Any]] | None


def bind(port: object, method: str) -> Bound:
    """The sync and async forms of a port's method, each taking only the keywords it accepts.

    A coroutine function under the sync name counts as the async form.

    Raises:
        ConfigError: The object has neither form.
    """
    sync, async_ = getattr(port, method, None), getattr(port, f"a{method}", None)
    if inspect.iscoroutinefunction(sync):
        sync, async_ = None, async_ or sync
    kind = type(port).__name__
    if not callable(sync) and not callable(async_):
        msg = f"a port needs a method `{method}` or `a{method}`, got an object of type {kind} that has neither"
        raise ConfigError(msg)
    return Bound(f"{kind}.{method}", _narrow(sync), _narrow(async_))


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
