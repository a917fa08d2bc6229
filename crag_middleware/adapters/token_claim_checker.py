"""Checking claims by how a chat model would begin its reply: the probability of a yes."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from crag_middleware.adapters.chat_claim_checker import Said, attempt, check_claim_options, deadline_in, language_for, whole
from crag_middleware.adapters.fan_out import aask_each, ask_each
from crag_middleware.adapters.inner_model import ChatModel, model_name, resolve_model
from crag_middleware.adapters.ladder import Ladder, Reply
from crag_middleware.adapters.token_probability import TOP_TOKENS
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ClaimCheckError
from crag_middleware.stages import token_claims
from crag_middleware.stages.claim_grounds import askable, choose, pieces
from crag_middleware.stages.claim_prompt import THRESHOLD, Call
from crag_middleware.stages.token_grading import first_tokens
from crag_middleware.types import Checked, Claim, EvaluatorKey, Ground

SHOWN_PIECES = 5
"""Grounds shown beside a claim: small models lose the thread in more."""

UNREAD = "the chat model's replies begin with neither yes nor no; a model that thinks first must be told not to"


class TokenProbabilityClaimChecker:
    """Checks each claim by one short question to a chat model, read from the log probabilities of the first token of its reply.

    One call a claim, a few at a time, each with one token of output. Beside the claim stand at most five grounds: those of the sources that it cites, then
    those that share most words with it. The number is the model's own doubt and not one that it states, so it ranks better than `ChatModelClaimChecker` on
    small models. It can't tell what is contradicted from what is not mentioned: both are `not_mentioned`. It needs a provider that tells log probabilities
    in OpenAI's form, as OpenAI, DeepSeek and most local servers do.

    Args:
        model: A chat model or its name; None as for `ChatModelEvaluator`.
        language: Language of the instructions; `auto` follows each claim. English by default, for Chinese claims, too: a model of 1.5 billion parameters,
            asked in Chinese, said yes to 16 of the 28 hand-made Chinese claims that no passage supports; asked in English, to 5.
        max_ground_chars: Characters of grounds shown beside a claim, from 1,500 to 100,000.

    Raises:
        ConfigError: The model can't be built, or an argument is out of range.
    """

    threshold: float = THRESHOLD

    def __init__(
        self, model: str | ChatModel | None = None, *, language: Literal["auto", "en", "zh"] = "en", max_ground_chars: int = 3000
    ) -> None:
        check_claim_options(language, max_ground_chars)
        self._model = resolve_model(model)
        options = {"logprobs": True, "top_logprobs": TOP_TOKENS, "max_tokens": 1}
        self._ladder = Ladder(self._model, task="check", error=ClaimCheckError, options=options)
        self._language = language
        self._max_chars = max_ground_chars

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are: the model's name, and the version of the prompt."""
        return EvaluatorKey(type(self).__name__, model_name(self._model), token_claims.VERSION)

    @property
    def model(self) -> ChatModel:
        """The chat model, as it was given or found."""
        return self._model

    def check(
        self, claims: Sequence[Claim], grounds: Sequence[Ground], *, question: str = "", timeout_s: float = 30.0
    ) -> tuple[Checked, ...]:
        """How likely the grounds support each claim, in the claims' order.

        Args:
            claims: Asked about one by one.
            grounds: What the claims may rest on. Without any, every claim is `not_mentioned`, without a call (reason `no_grounds`).
            question: What was asked: claims may be short for what it says.
            timeout_s: For all calls together, where the model's client can be told.

        Returns:
            A claim that is blank, whose call failed, or about which the reply begins with neither yes nor no has no probability and the reason `unchecked`.

        Raises:
            ClaimCheckError: Every call failed; no reply began with yes or no; or the provider tells no log probabilities (reason `no_logprobs`).
        """
        deadline = deadline_in(timeout_s)

        def perform(look: Call) -> Reply:
            return self._ladder.reply(*self._prompt(look, question), timeout_s=deadline - time.monotonic(), max_tokens=1)

        with _explained():
            outcomes = ask_each(self._looks(claims, grounds), lambda look: finish(attempt(_look(look)), perform))
            return whole(claims, grounds, outcomes, unread=UNREAD)

    async def acheck(
        self, claims: Sequence[Claim], grounds: Sequence[Ground], *, question: str = "", timeout_s: float = 30.0
    ) -> tuple[Checked, ...]:
        """The async form of `check`."""
        deadline = deadline_in(timeout_s)

        async def perform(look: Call) -> Reply:
            return await self._ladder.areply(*self._prompt(look, question), timeout_s=deadline - time.monotonic(), max_tokens=1)

        with _explained():
            outcomes = await aask_each(self._looks(claims, grounds), lambda look: afinish(attempt(_look(look)), perform))
            return whole(claims, grounds, outcomes, unread=UNREAD)

    def _looks(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> list[Call]:
        there = pieces(grounds)
        return [
            Call(((place, claim),), choose([claim], there, max_chars=self._max_chars, max_pieces=SHOWN_PIECES))
            for place, claim in (askable(claims) if there else ())
        ]

    def _prompt(self, look: Call, question: str) -> tuple[str, str]:
        ((_, claim),) = look.claims
        return token_claims.prompt(claim, look.pieces, question, language=language_for(self._language, [claim]))


def _look(look: Call) -> Generator[Call, Reply, Said]:
    reply = yield look
    tokens = first_tokens(getattr(reply, "response_metadata", {}).get("logprobs"))
    if not tokens:
        raise _no_logprobs()
    ((place, _),) = look.claims
    return {place: token_claims.read_check(tokens, look)}


@contextmanager
def _explained() -> Iterator[None]:
    """A request that is refused in every form is one for log probabilities from a provider that has none."""
    try:
        yield
    except ClaimCheckError as error:
        if error.reason == "refused":
            raise _no_logprobs() from None
        raise


def _no_logprobs() -> ClaimCheckError:
    msg = "the chat model tells no log probabilities of its tokens, or refuses the request for them; check with ChatModelClaimChecker(model) instead"
    return ClaimCheckError(msg, reason="no_logprobs")
