"""Grading and rewriting by any LangChain chat model."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.runnables.config import ContextThreadPoolExecutor

from crag_middleware.adapters.inner_model import ChatModel, resolve_model
from crag_middleware.adapters.ladder import Ladder
from crag_middleware.errors import ConfigError, GradingError, RewriteError
from crag_middleware.settings import CHAT_THRESHOLDS
from crag_middleware.stages import grading, rewriting
from crag_middleware.stages.words import language as language_of
from crag_middleware.types import Exchange, Grade, Passage, Thresholds

logger = logging.getLogger(__name__)

CALL_PASSAGES = 20
"""Passages graded by one call; more are split into several calls."""

CALL_CHARS = 30_000
"""Characters of passages in one call, after clipping."""

PARALLEL_CALLS = 3
"""Grading calls of one turn that run at the same time; providers limit the rate."""

GRADE_TOKENS = 120
QUERY_TOKENS = 500
"""Room for one grade with its reason, and for a query, where a limit is set."""

Calls = list[tuple[Passage, ...]]
Outcome = str | GradingError


class ChatModelEvaluator:
    """Grades all passages of a turn in one call of a chat model.

    Args:
        model: A chat model or its name; None for the one named by the environment variable `CRAG_MODEL`, else `settings.DEFAULT_MODEL`.
        language: Language of the instructions; `auto` follows the question.
        max_passage_chars: Longer passages are clipped for grading to head, best-matching window and tail; refinement still sees all of them.
        instructions: Replaces the built-in instructions. How to reply is added in any case.

    Raises:
        ConfigError: The model can't be built; the message names the ways out.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        language: Literal["auto", "en", "zh"] = "auto",
        max_passage_chars: int = 1500,
        instructions: str | None = None,
    ) -> None:
        if language not in ("auto", "en", "zh"):
            msg = f'`language` must be "auto", "en" or "zh", got {language!r}'
            raise ConfigError(msg)
        if not 100 <= max_passage_chars <= CALL_CHARS:
            msg = f"`max_passage_chars` must be from 100 to {CALL_CHARS}, got {max_passage_chars!r}"
            raise ConfigError(msg)
        self._model = resolve_model(model)
        self._ladder = Ladder(self._model, task="grade", error=GradingError, schema=grading.SCHEMA)
        self._language = language
        self._max_chars = max_passage_chars
        self._instructions = instructions

    @property
    def thresholds(self) -> Thresholds:
        """Where the stated probabilities are cut."""
        return CHAT_THRESHOLDS

    @property
    def model(self) -> ChatModel:
        """The chat model, as it was given or found."""
        return self._model

    def grade(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0) -> tuple[Grade, ...]:
        """One grade for each passage, in their order.

        Args:
            question: What the passages should answer.
            passages: Graded in one call; very many, or very long ones, in several. Those of a call that failed are `ungraded`.
            timeout_s: Limits each request where the model's client can be told; the whole is limited by whoever calls.

        Raises:
            GradingError: Every call failed, or no grade could be read.
        """

        def ask(call: tuple[Passage, ...]) -> Outcome:
            try:
                return self._ladder.ask(*self._prompt(question, call), timeout_s=timeout_s, max_tokens=_room(call))
            except GradingError as error:
                return error

        calls = self._calls(passages)
        if len(calls) < 2:
            return self._read(calls, [ask(call) for call in calls])
        with ContextThreadPoolExecutor(PARALLEL_CALLS) as pool:
            return self._read(calls, list(pool.map(ask, calls)))

    async def agrade(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0) -> tuple[Grade, ...]:
        """The async form of `grade`."""
        gate = asyncio.Semaphore(PARALLEL_CALLS)

        async def ask(call: tuple[Passage, ...]) -> Outcome:
            try:
                async with gate:
                    return await self._ladder.aask(*self._prompt(question, call), timeout_s=timeout_s, max_tokens=_room(call))
            except GradingError as error:
                return error

        calls = self._calls(passages)
        return self._read(calls, await asyncio.gather(*map(ask, calls)))

    def _calls(self, passages: Sequence[Passage]) -> Calls:
        return grading.batches(passages, max_chars=self._max_chars, call_chars=CALL_CHARS, call_passages=CALL_PASSAGES)

    def _prompt(self, question: str, call: tuple[Passage, ...]) -> tuple[str, str]:
        language = language_of(question) if self._language == "auto" else self._language
        return grading.prompt(question, call, language=language, max_chars=self._max_chars, instructions=self._instructions)

    def _read(self, calls: Calls, outcomes: Sequence[Outcome]) -> tuple[Grade, ...]:
        """The grades of all calls; a call that failed gives `ungraded` ones, unless all did."""
        errors = [outcome for outcome in outcomes if isinstance(outcome, GradingError)]
        if errors and len(errors) == len(calls):
            raise errors[0]
        if errors:
            logger.warning("%d of %d grading calls failed: %s", len(errors), len(calls), ", ".join(sorted({e.reason for e in errors})))
        texts = ("" if isinstance(outcome, GradingError) else outcome for outcome in outcomes)
        grades = tuple(g for text, call in zip(texts, calls, strict=True) for g in grading.read_grades(text, call, self.thresholds))
        if grades and all(grade.label == "ungraded" for grade in grades):
            msg = "no grade could be read from the chat model's reply"
            raise GradingError(msg, reason="invalid_reply")
        return grades


class ChatModelRewriter:
    """Writes stand-alone questions and other queries by a chat model.

    Args:
        model: A chat model or its name; None as for `ChatModelEvaluator`.

    Raises:
        ConfigError: The model can't be built.
    """

    def __init__(self, model: str | ChatModel | None = None) -> None:
        self._ladder = Ladder(resolve_model(model), task="rewrite", error=RewriteError)

    def rewrite(self, question: str, *, history: Sequence[Exchange] = (), tried: Sequence[str] = (), timeout_s: float = 15.0) -> str:
        """The question made understandable on its own, or, with `tried`, a query that differs from all of those.

        Raises:
            RewriteError: The call failed, or its reply holds no such query.
        """
        return rewriting.read_query(self._ladder.ask(*_ask(question, history, tried), **_limits(timeout_s)), question, tried)

    async def arewrite(self, question: str, *, history: Sequence[Exchange] = (), tried: Sequence[str] = (), timeout_s: float = 15.0) -> str:
        """The async form of `rewrite`."""
        return rewriting.read_query(await self._ladder.aask(*_ask(question, history, tried), **_limits(timeout_s)), question, tried)


def _room(call: tuple[Passage, ...]) -> int:
    return (len(call) + 1) * GRADE_TOKENS


def _ask(question: str, history: Sequence[Exchange], tried: Sequence[str]) -> tuple[str, str]:
    return rewriting.prompt(question, history, tried, language=language_of(question))


def _limits(timeout_s: float) -> dict[str, Any]:
    return {"timeout_s": timeout_s, "max_tokens": QUERY_TOKENS}
