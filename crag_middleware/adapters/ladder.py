"""Asking a chat model in the strictest form it supports, and remembering which form that is."""

import logging
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.inner_model import (
    ChatModel,
    ainvoke,
    failed,
    internal_config,
    is_refusal,
    profile,
    protocol_options,
    provider_options,
)
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import CRAGError, let_pass

logger = logging.getLogger(__name__)

Reply = BaseMessage | str
"""What a model answers; a chain that ends in a parser gives a string."""

Climb = Generator[dict[str, Any], Any, Reply]
"""Yields the options of one call after the other, gets each reply or its exception, and returns the one to read."""


@dataclass(frozen=True, slots=True)
class _Rung:
    """One form of a request: what it adds to a call; whether it asks for text only; whether it drops what we know of the provider, too."""

    name: str
    adds: Mapping[str, Any]
    plain: bool = False
    bare: bool = False


class Ladder:
    """Asks one chat model: held to a JSON schema, else in JSON mode, else in plain words, else without the options of its provider either.

    No rung forces a tool call, since thinking models refuse that. A rung that the model refuses is left out from then on, once a lower one has worked;
    so an instance belongs to one model. Safe to use from several threads and event loops.

    Args:
        model: The chat model; it is never changed.
        task: What the calls are for, `grade` or `rewrite`: they are named `crag.<task>` in traces.
        error: What is raised when a call fails.
        schema: The JSON schema of the reply; None asks for text and begins at the plain rung.
        options: What every call asks of the model, on every rung.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        task: str,
        error: type[CRAGError],
        schema: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        rungs = [_Rung("plain", {}, plain=True)]
        if schema is not None:
            rungs.insert(0, _Rung("json_mode", {"response_format": {"type": "json_object"}}))
        if schema is not None and profile(model).get("structured_output", True):
            held = {"type": "json_schema", "json_schema": {"name": f"crag_{task}", "strict": True, "schema": dict(schema)}}
            rungs.insert(0, _Rung("json_schema", {"response_format": held}))
        if provider_options(model, max_tokens=1):
            rungs.append(_Rung("bare", {}, plain=True, bare=True))
        self._model = model
        self._task = task
        self._error = error
        self._options = dict(options or {})
        self._rungs = tuple(rungs)
        self._refused: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def ask(self, system: str, user: str, *, timeout_s: float, max_tokens: int) -> str:
        """The reply's text; blank if the model wrote nothing twice.

        Raises:
            CRAGError: Of the kind given: the model could not be reached, or refuses every form of the request.
        """
        return _text(self.reply(system, user, timeout_s=timeout_s, max_tokens=max_tokens))

    async def aask(self, system: str, user: str, *, timeout_s: float, max_tokens: int) -> str:
        """The async form of `ask`."""
        return _text(await self.areply(system, user, timeout_s=timeout_s, max_tokens=max_tokens))

    def reply(self, system: str, user: str, *, timeout_s: float, max_tokens: int) -> Reply:
        """The whole reply, with what the provider tells beside the text; fails as `ask` does."""
        messages = _messages(system, user)

        def perform(options: Mapping[str, Any]) -> Any:
            return self._model.invoke(messages, internal_config(self._task), **options)

        return finish(self._climb(timeout_s, max_tokens), perform)

    async def areply(self, system: str, user: str, *, timeout_s: float, max_tokens: int) -> Reply:
        """The async form of `reply`."""
        messages = _messages(system, user)

        async def perform(options: Mapping[str, Any]) -> Any:
            return await ainvoke(self._model, messages, internal_config(self._task), options)

        return await afinish(self._climb(timeout_s, max_tokens), perform)

    def _climb(self, timeout_s: float, max_tokens: int) -> Climb:
        """Down the ladder until a rung holds. A blank reply in a JSON mode is asked for once more without it."""
        deadline = time.monotonic() + timeout_s
        refused: list[str] = []
        rungs = [rung for rung in self._rungs if rung.name not in self._refused]
        while rungs:
            rung = rungs.pop(0)
            left = deadline - time.monotonic()
            if left <= 0:
                msg = f"the chat model took too long to {self._task}"
                raise self._error(msg, reason="timeout")
            provider = {} if rung.bare else provider_options(self._model, max_tokens=max_tokens)
            try:
                reply = yield {**protocol_options(self._model, timeout_s=left), **provider, **self._options, **rung.adds}
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001 - raised on as ours
                let_pass(error)
                broken_off = _broken_off(error)
                if broken_off is None and is_refusal(error) and rungs:
                    refused.append(rung.name)
                    continue
                if broken_off is None:
                    # Not `from error`: providers quote the prompt in theirs, and causes are printed with every traceback.
                    raise failed(self._error, self._task, error) from None
                reply = broken_off
            if not isinstance(reply, BaseMessage | str):
                msg = f"the chat model must answer with a message or a text, got {type(reply).__name__}"
                raise self._error(msg, reason="invalid_reply")
            self._remember(refused, rung)
            if rung.plain or _text(reply).strip():
                return reply
            rungs = [lower for lower in rungs if lower.plain][:1]
        return ""

    def _remember(self, refused: list[str], works: _Rung) -> None:
        """Leaves the refused rungs out from now on; told once."""
        with self._lock:
            news = frozenset(refused) - self._refused
            self._refused |= news
        if news:
            logger.info("crag.%s: the model refuses %s; %s is used from now on", self._task, ", ".join(sorted(news)), works.name)


def _messages(system: str, user: str) -> list[BaseMessage]:
    return [SystemMessage(system), HumanMessage(user)]


def _text(reply: Reply) -> str:
    """The reply's text without reasoning blocks."""
    return reply if isinstance(reply, str) else str(reply.text)


def _broken_off(error: Exception) -> str | None:
    """The text of a reply that ran into the token limit, which OpenAI's client raises instead of returning; None for other errors."""
    choices = getattr(getattr(error, "completion", None), "choices", None)
    return (choices[0].message.content or "") if choices else None
