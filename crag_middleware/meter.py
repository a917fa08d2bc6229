"""What a turn has cost so far: time, model calls, tokens."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from crag_middleware.findings import Spent
from crag_middleware.stages.assemble import approximate_tokens


class Meter(BaseCallbackHandler):
    """Counts what one turn costs; for that turn only. Safe to use from several threads.

    Tokens are those that the models report, prompt and reply together; of a model that reports none, and of a call that failed, they are estimated.
    No text is kept.

    Args:
        spent: What the turn had cost before.
    """

    run_inline = True  # never from an executor's thread: it takes microseconds

    def __init__(self, spent: Spent | None = None) -> None:
        self._spent = spent or Spent()
        self._seconds = 0.0
        self._since: float | None = None
        self._calls: dict[UUID, int] = {}
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spent:
        """What the turn has cost so far."""
        before, running = self._spent, 0.0 if self._since is None else time.monotonic() - self._since
        with self._lock:
            calls, tokens = len(self._calls), sum(self._calls.values())
        ms = round(before.ms + 1000 * (self._seconds + running), 3)
        return replace(before, ms=ms, model_calls=before.model_calls + calls, tokens=before.tokens + tokens)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The time spent inside is the turn's."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._seconds += time.monotonic() - self._since
            self._since = None

    def heard(self, callbacks: list[BaseCallbackHandler] | BaseCallbackManager | None) -> list[BaseCallbackHandler] | BaseCallbackManager:
        """The callbacks, and this one."""
        if isinstance(callbacks, BaseCallbackManager):
            manager = callbacks.copy()
            manager.add_handler(self)
            return manager
        return [*(callbacks or ()), self]

    def on_chat_model_start(
        self, serialized: Mapping[str, Any], messages: Sequence[Sequence[BaseMessage]], *, run_id: UUID, **_: Any
    ) -> None:
        """A chat model is asked; counted once, however many of its callers tell of it."""
        self._begin(run_id, sum(approximate_tokens(str(message.text)) for batch in messages for message in batch))

    def on_llm_start(self, serialized: Mapping[str, Any], prompts: Sequence[str], *, run_id: UUID, **_: Any) -> None:
        """A model that completes text is asked."""
        self._begin(run_id, sum(map(approximate_tokens, prompts)))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """The model has answered."""
        told = [getattr(getattr(one, "message", None), "usage_metadata", None) for batch in response.generations for one in batch]
        reported = sum(usage["total_tokens"] for usage in told if usage)
        written = sum(approximate_tokens(one.text) for batch in response.generations for one in batch)
        with self._lock:
            self._calls[run_id] = reported or self._calls.get(run_id, 0) + written

    def _begin(self, run_id: UUID, tokens: int) -> None:
        with self._lock:
            self._calls.setdefault(run_id, tokens)
