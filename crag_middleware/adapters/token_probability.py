"""Grading by how a chat model would begin its reply: the probabilities of the first token."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from crag_middleware.adapters.chat_model import check_prompt_options
from crag_middleware.adapters.fan_out import SHARE_OF_TIME, aask_each, ask_each
from crag_middleware.adapters.inner_model import ChatModel, model_name, resolve_model
from crag_middleware.adapters.ladder import Ladder, Reply
from crag_middleware.calibration import Calibration, shipped
from crag_middleware.errors import GradingError
from crag_middleware.stages import token_grading
from crag_middleware.stages.decide import label
from crag_middleware.stages.words import language as language_of
from crag_middleware.types import EvaluatorKey, Grade, Passage, Thresholds

TOKEN_THRESHOLDS = Thresholds(lower=0.2, upper=0.8)
"""For an uncalibrated chat model."""

TOP_TOKENS = 20
"""Log probabilities asked for, the most that OpenAI's and DeepSeek's protocols allow: yes, no and none in every spelling must be among them."""


class TokenProbabilityEvaluator:
    """Grades each passage by two short questions to a chat model, read from the log probabilities of the first token of its replies.

    Two calls a passage, a few at a time, each with one token of output; the second repeats all of the first but its last words, which providers and local
    servers keep. The number is the model's own doubt and not one that it states, so it ranks better than `ChatModelEvaluator`, most of all on small models.
    It needs a provider that tells log probabilities in OpenAI's form, as OpenAI, DeepSeek and most local servers do.

    Args:
        model: A chat model or its name; None as for `ChatModelEvaluator`.
        language: Language of the question to the model; `auto` follows the user's question.
        max_passage_chars: Longer passages are clipped for grading to head, best-matching window and tail; refinement still sees all of them.

    Raises:
        ConfigError: The model can't be built, or an argument is out of range.
    """

    def __init__(
        self, model: str | ChatModel | None = None, *, language: Literal["auto", "en", "zh"] = "auto", max_passage_chars: int = 1500
    ) -> None:
        check_prompt_options(language, max_passage_chars)
        self._model = resolve_model(model)
        options = {"logprobs": True, "top_logprobs": TOP_TOKENS, "max_tokens": 1}
        self._ladder = Ladder(self._model, task="grade", error=GradingError, options=options)
        self._language = language
        self._max_chars = max_passage_chars

    @property
    def thresholds(self) -> Thresholds:
        """Where the probabilities are cut without a calibration."""
        return TOKEN_THRESHOLDS

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are: the model's name, and the version of the prompt."""
        return EvaluatorKey(type(self).__name__, model_name(self._model), token_grading.VERSION)

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
            passages: Asked about one by one. `ungraded` if one of the two calls fails, or the second is answered with neither yes nor no.
            timeout_s: For all calls together, where the model's client can be told.

        Raises:
            GradingError: Calls about every passage failed; no reply began with yes or no; or the provider tells no log probabilities (reason `no_logprobs`).
        """
        deadline = _deadline(timeout_s)

        def ask(passage: Passage) -> Grade:
            system, looks = self._prompts(question, passage)
            return self._read(
                passage, [self._ladder.reply(system, look, timeout_s=deadline - time.monotonic(), max_tokens=1) for look in looks]
            )

        with _explained():
            return _whole(passages, ask_each(passages, ask))

    async def agrade(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0) -> tuple[Grade, ...]:
        """The async form of `grade`."""
        deadline = _deadline(timeout_s)

        async def ask(passage: Passage) -> Grade:
            system, looks = self._prompts(question, passage)
            return self._read(
                passage, [await self._ladder.areply(system, look, timeout_s=deadline - time.monotonic(), max_tokens=1) for look in looks]
            )

        with _explained():
            return _whole(passages, await aask_each(passages, ask))

    def _prompts(self, question: str, passage: Passage) -> tuple[str, tuple[str, str]]:
        language = language_of(question) if self._language == "auto" else self._language
        return token_grading.prompts(question, passage, language=language, max_chars=self._max_chars)

    def _read(self, passage: Passage, replies: Sequence[Reply]) -> Grade:
        tokens = [token_grading.first_tokens(getattr(reply, "response_metadata", {}).get("logprobs")) for reply in replies]
        if not all(tokens):
            raise _no_logprobs()
        probability = token_grading.probability(*tokens)
        return label(Grade(passage_id=passage.id, probability=probability, label="ungraded"), self.thresholds)


def _deadline(timeout_s: float) -> float:
    return time.monotonic() + SHARE_OF_TIME * timeout_s


def _whole(passages: Sequence[Passage], outcomes: Sequence[Grade | GradingError]) -> tuple[Grade, ...]:
    """The grades, `ungraded` where a call failed.

    Raises:
        GradingError: No reply said yes or no.
    """
    grades = tuple(
        Grade(passage_id=passage.id, probability=None, label="ungraded") if isinstance(outcome, GradingError) else outcome
        for passage, outcome in zip(passages, outcomes, strict=True)
    )
    if grades and all(grade.probability is None for grade in grades):
        msg = "the chat model's replies begin with neither yes nor no; a model that thinks first must be told not to"
        raise GradingError(msg, reason="invalid_reply")
    return grades


@contextmanager
def _explained() -> Iterator[None]:
    """A request that is refused in every form is one for log probabilities from a provider that has none."""
    try:
        yield
    except GradingError as error:
        if error.reason == "refused":
            raise _no_logprobs() from None
        raise


def _no_logprobs() -> GradingError:
    msg = "the chat model tells no log probabilities of its tokens, or refuses the request for them; grade with ChatModelEvaluator(model) instead"
    return GradingError(msg, reason="no_logprobs")
