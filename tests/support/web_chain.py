"""What tests of the chain of web searches share: a way to ask, a clock that stands still, providers that change their mind."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from crag_middleware.adapters.web_attempt import Clock
from crag_middleware.adapters.web_chain import WebSearchChain
from crag_middleware.errors import WebSearchError
from crag_middleware.findings import WebAttempt, WebFound
from crag_middleware.types import Passage
from tests.support.web_server import Answer, Handler

both = pytest.mark.parametrize("form", ["sync", "async"])

Reply = Sequence[Passage] | WebFound | Exception


class FakeTime:
    """A clock that goes on only when somebody waits, or when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.midnight = datetime(2026, 3, 1, tzinfo=UTC).timestamp() - self.now
        self.chance = 1.0
        self.pauses: list[float] = []

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.midnight + self.now, self._sleep, self._asleep, lambda: self.chance)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def _asleep(self, seconds: float) -> None:
        self._sleep(seconds)


class Provider:
    """A provider that gives its replies in order, the last one again and again; each takes `seconds` on the clock, if it is given one."""

    def __init__(self, *replies: Reply, time: FakeTime | None = None, seconds: float = 0.0) -> None:
        self.replies = replies or ([],)
        self.time = time
        self.seconds = seconds
        self.asked: list[dict[str, Any]] = []

    def search(self, query: str, **keywords: Any) -> Sequence[Passage] | WebFound:
        reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append({"query": query, **keywords})
        if self.time:
            self.time.now += self.seconds
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def asearch(self, query: str, **keywords: Any) -> Sequence[Passage] | WebFound:
        return self.search(query, **keywords)


def found(*texts: str) -> list[Passage]:
    return [Passage(id=text, text=text, origin="web") for text in texts or ("a page",)]


def failed(reason: str, **more: Any) -> WebSearchError:
    return WebSearchError(f"no: {reason}", reason=reason, **more)


def search(chain: WebSearchChain, form: str, query: str = "milvus port", **keywords: Any) -> WebFound:
    """What the chain found, sync, or async on an event loop of its own."""
    keywords = {"agent_id": "a", "limit": 3, "timeout_s": 10.0, **keywords}
    return chain.search(query, **keywords) if form == "sync" else asyncio.run(chain.asearch(query, **keywords))


def refused(chain: WebSearchChain, form: str, query: str = "milvus port", **keywords: Any) -> WebSearchError:
    """The error of a chain in which every provider fails."""
    with pytest.raises(WebSearchError) as caught:
        search(chain, form, query, **keywords)
    return caught.value


def told(attempts: Sequence[WebAttempt]) -> list[tuple[str, int, int]]:
    """Reason, results and requests of each attempt."""
    return [(a.reason, a.results, a.requests) for a in attempts]


def in_turn(*answers: Answer) -> Answer:
    """A server's answers in order, the last one again and again."""
    left = list(answers)

    def answer(handler: Handler) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(handler)

    return answer
