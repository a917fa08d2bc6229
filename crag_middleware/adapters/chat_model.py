"""Grading and rewriting by any LangChain chat model."""

from collections.abc import Generator, Sequence
from hashlib import sha256
from typing import Any, Literal

from crag_middleware.adapters.fan_out import aask_each, ask_each, settled
from crag_middleware.adapters.inner_model import ChatModel, model_name, resolve_model
from crag_middleware.adapters.ladder import Ladder
from crag_middleware.calibration import Calibration, shipped
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ConfigError, GradingError, RewriteError
from crag_middleware.settings import CHAT_THRESHOLDS
from crag_middleware.stages import decomposing, grading, hypothetical, keywords, rewriting
from crag_middleware.stages.words import language as language_of
from crag_middleware.types import EvaluatorKey, Exchange, Grade, Passage, Thresholds

CALL_PASSAGES = 20
"""Passages graded by one call; more are split into several calls."""

CALL_CHARS = 30_000
"""Characters of passages in one call, after clipping."""

GRADE_TOKENS = 120
QUERY_TOKENS = 500
"""Room for one grade with its reason, and for a query, where a limit is set."""

Batch = tuple[Passage, ...]
"""The passages of one call."""


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
        check_prompt_options(language, max_passage_chars)
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
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are: the model's name, and the version of the prompt, with a digest of instructions of one's own."""
        own = "" if self._instructions is None else f"+{sha256(self._instructions.encode()).hexdigest()[:8]}"
        return EvaluatorKey(type(self).__name__, model_name(self._model), grading.VERSION + own)

    @property
    def calibration(self) -> Calibration | None:
        """The shipped calibration of this evaluator on this model, if there is one."""
        return shipped(self.key)

    @property
    def model(self) -> ChatModel:
        """The chat model, as it was given or found."""
        return self._model

    def grade(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0) -> tuple[Grade, ...]:
        """One grade for each passage, in their order.

        Args:
            question: What the passages should answer.
            passages: Graded in one call; very many, or very long ones, in several, as are those that a small model's context can't hold together.
                Those of a call that failed are `ungraded`.
            timeout_s: Limits each request where the model's client can be told; the whole is limited by whoever calls.

        Raises:
            GradingError: Every call failed, or no grade could be read.
        """

        def perform(call: Batch) -> str:
            return self._ladder.ask(*self._prompt(question, call), timeout_s=timeout_s, max_tokens=_room(call))

        def ask(call: Batch) -> tuple[Grade, ...]:
            return finish(self._grade(call), perform)

        calls = self._calls(passages)
        return self._whole(calls, ask_each(calls, ask))

    async def agrade(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0) -> tuple[Grade, ...]:
        """The async form of `grade`."""

        async def perform(call: Batch) -> str:
            return await self._ladder.aask(*self._prompt(question, call), timeout_s=timeout_s, max_tokens=_room(call))

        async def ask(call: Batch) -> tuple[Grade, ...]:
            return await afinish(self._grade(call), perform)

        calls = self._calls(passages)
        return self._whole(calls, await aask_each(calls, ask))

    def _grade(self, call: Batch) -> Generator[Batch, str, tuple[Grade, ...]]:
        """The grades of one call; if the model's context can't hold it, of its halves, down to the passage that is too long by itself."""
        try:
            return grading.read_grades((yield call), call, self.thresholds)
        except GradingError as error:
            if error.reason != "too_long" or len(call) == 1:
                raise
        halves = [call[: len(call) // 2], call[len(call) // 2 :]]
        outcomes: list[tuple[Grade, ...] | GradingError] = []
        for half in halves:
            try:
                outcomes.append((yield from self._grade(half)))
            except GradingError as error:
                outcomes.append(error)
        return self._whole(halves, settled(outcomes))

    def _calls(self, passages: Sequence[Passage]) -> list[Batch]:
        return grading.batches(passages, max_chars=self._max_chars, call_chars=CALL_CHARS, call_passages=CALL_PASSAGES)

    def _prompt(self, question: str, call: Batch) -> tuple[str, str]:
        language = language_of(question) if self._language == "auto" else self._language
        return grading.prompt(question, call, language=language, max_chars=self._max_chars, instructions=self._instructions)

    def _whole(self, calls: Sequence[Batch], outcomes: Sequence[tuple[Grade, ...] | GradingError]) -> tuple[Grade, ...]:
        """The grades of all calls; a call that failed gives `ungraded` ones."""
        each = (
            grading.read_grades("", call, self.thresholds) if isinstance(outcome, GradingError) else outcome
            for call, outcome in zip(calls, outcomes, strict=True)
        )
        grades = tuple(grade for grades in each for grade in grades)
        if grades and all(grade.label == "ungraded" for grade in grades):
            msg = "no grade could be read from the chat model's reply"
            raise GradingError(msg, reason="invalid_reply")
        return grades


class ChatModelRewriter:
    """Writes, by a chat model, stand-alone questions, other queries, the parts of a question, a passage that may answer it, and keywords for the web.

    Args:
        model: A chat model or its name; None as for `ChatModelEvaluator`.

    Raises:
        ConfigError: The model can't be built.
    """

    def __init__(self, model: str | ChatModel | None = None) -> None:
        self._model = resolve_model(model)
        self._ladder = Ladder(self._model, task="rewrite", error=RewriteError)

    @property
    def key(self) -> EvaluatorKey:
        """Whose keywords these are: the model's name, and the version of their prompt."""
        return EvaluatorKey(type(self).__name__, model_name(self._model), keywords.VERSION)

    def rewrite(self, question: str, *, history: Sequence[Exchange] = (), tried: Sequence[str] = (), timeout_s: float = 15.0) -> str:
        """The question made understandable on its own, or, with `tried`, a query that differs from all of those.

        Raises:
            RewriteError: The call failed, or its reply holds no such query.
        """
        return rewriting.read_query(self._ladder.ask(*_ask(question, history, tried), **_limits(timeout_s)), question, tried)

    async def arewrite(self, question: str, *, history: Sequence[Exchange] = (), tried: Sequence[str] = (), timeout_s: float = 15.0) -> str:
        """The async form of `rewrite`."""
        return rewriting.read_query(await self._ladder.aask(*_ask(question, history, tried), **_limits(timeout_s)), question, tried)

    def keywords(self, question: str, *, timeout_s: float = 15.0) -> str:
        """What to ask a web search engine, drafted from a stand-alone question and nothing else.

        Args:
            question: As it may leave: what it lacks, the keywords can't have.
            timeout_s: As for `rewrite`.

        Raises:
            RewriteError: The call failed, or its reply holds no keywords or something of its own.
        """
        return keywords.read_keywords(self._ladder.ask(*_draft(question), **_limits(timeout_s)), question)

    async def akeywords(self, question: str, *, timeout_s: float = 15.0) -> str:
        """The async form of `keywords`."""
        return keywords.read_keywords(await self._ladder.aask(*_draft(question), **_limits(timeout_s)), question)

    def decompose(self, question: str, *, timeout_s: float = 15.0) -> list[str]:
        """The sub-questions, two or three and each stand-alone, that together make up a compound question.

        Args:
            question: A stand-alone question: the model sees nothing else, and sub-questions with names or numbers that it has not are left out.
            timeout_s: As for `rewrite`.

        Returns:
            Empty for a question that is not compound.

        Raises:
            RewriteError: The call failed, or its reply is blank.
        """
        return decomposing.read_parts(self._ladder.ask(*_take_apart(question), **_limits(timeout_s)), question)

    async def adecompose(self, question: str, *, timeout_s: float = 15.0) -> list[str]:
        """The async form of `decompose`."""
        return decomposing.read_parts(await self._ladder.aask(*_take_apart(question), **_limits(timeout_s)), question)

    def hypothetical(self, question: str, *, timeout_s: float = 15.0) -> str:
        """A passage as it might stand in a document that answers the question: to search with, and never to be shown, since it may be untrue.

        Args:
            question: A stand-alone question: the model sees nothing else.
            timeout_s: As for `rewrite`.

        Returns:
            One line of at most `stages.hypothetical.MAX_CHARS` characters.

        Raises:
            RewriteError: The call failed, or its reply holds no passage, such as a refusal.
        """
        return hypothetical.read_passage(self._ladder.ask(*_imagine(question), **_limits(timeout_s)), question)

    async def ahypothetical(self, question: str, *, timeout_s: float = 15.0) -> str:
        """The async form of `hypothetical`."""
        return hypothetical.read_passage(await self._ladder.aask(*_imagine(question), **_limits(timeout_s)), question)


def check_prompt_options(language: str, max_passage_chars: int) -> None:
    """Passes if these can be worked with.

    Raises:
        ConfigError: They can't.
    """
    if language not in ("auto", "en", "zh"):
        msg = f'`language` must be "auto", "en" or "zh", got {language!r}'
        raise ConfigError(msg)
    if not 100 <= max_passage_chars <= CALL_CHARS:
        msg = f"`max_passage_chars` must be from 100 to {CALL_CHARS}, got {max_passage_chars!r}"
        raise ConfigError(msg)


def _room(call: Batch) -> int:
    return (len(call) + 1) * GRADE_TOKENS


def _ask(question: str, history: Sequence[Exchange], tried: Sequence[str]) -> tuple[str, str]:
    return rewriting.prompt(question, history, tried, language=language_of(question))


def _draft(question: str) -> tuple[str, str]:
    return keywords.prompt(question, language=language_of(question))


def _take_apart(question: str) -> tuple[str, str]:
    return decomposing.prompt(question, language=language_of(question))


def _imagine(question: str) -> tuple[str, str]:
    return hypothetical.prompt(question, language=language_of(question))


def _limits(timeout_s: float) -> dict[str, Any]:
    return {"timeout_s": timeout_s, "max_tokens": QUERY_TOKENS}
