"""Checking claims by any LangChain chat model."""

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from hashlib import sha256
from typing import Literal, TypeVar

from crag_middleware.adapters.fan_out import SHARE_OF_TIME, aask_each, ask_each
from crag_middleware.adapters.inner_model import ChatModel, model_name, resolve_model
from crag_middleware.adapters.ladder import Ladder
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ClaimCheckError, ConfigError, CRAGError
from crag_middleware.stages import claim_prompt
from crag_middleware.stages.claim_grounds import PIECE_CHARS, Piece, askable, choose, pieces
from crag_middleware.stages.claim_prompt import Call
from crag_middleware.stages.words import language as language_of
from crag_middleware.types import Checked, Claim, EvaluatorKey, Ground, Language

logger = logging.getLogger(__name__)

CALL_CLAIMS = 20
"""Claims checked by one call; more are split into several calls."""

CALL_PIECES = 100
"""Pieces of grounds shown in one call: more numbers than these are beyond what models keep apart."""

MAX_GROUND_CHARS = 100_000
"""The most that can be shown in one call."""

CHECK_TOKENS = 60
"""Room for what is said of one claim, where a limit is set."""

UNREAD = "nothing about any claim could be read from the chat model's reply"

Said = Mapping[int, Checked]
"""What was said of claims, by their places in the list of all."""

S = TypeVar("S")
R = TypeVar("R")


class ChatModelClaimChecker:
    """Checks all claims of an answer in one call of a chat model.

    The model sees the claims without their citations, and the grounds: all of them if they fit, those of cited sources first.

    Args:
        model: A chat model or its name; None as for `ChatModelEvaluator`.
        language: Language of the instructions; `auto` follows the claims.
        max_ground_chars: Characters of grounds that one call shows, from 1,500 to 100,000. Of more, those of cited sources are shown, and those that share
            most words with the claims.
        instructions: Replaces the built-in instructions. How to reply is added in any case.

    Raises:
        ConfigError: The model can't be built, or an argument is out of range.
    """

    threshold: float = claim_prompt.THRESHOLD

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        language: Literal["auto", "en", "zh"] = "auto",
        max_ground_chars: int = 30_000,
        instructions: str | None = None,
    ) -> None:
        check_claim_options(language, max_ground_chars)
        self._model = resolve_model(model)
        self._ladder = Ladder(self._model, task="check", error=ClaimCheckError, schema=claim_prompt.SCHEMA)
        self._language = language
        self._max_chars = max_ground_chars
        self._instructions = instructions

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are: the model's name, and the version of the prompt, with a digest of instructions of one's own."""
        own = "" if self._instructions is None else f"+{sha256(self._instructions.encode()).hexdigest()[:8]}"
        return EvaluatorKey(type(self).__name__, model_name(self._model), claim_prompt.VERSION + own)

    @property
    def model(self) -> ChatModel:
        """The chat model, as it was given or found."""
        return self._model

    def check(
        self, claims: Sequence[Claim], grounds: Sequence[Ground], *, question: str = "", timeout_s: float = 30.0
    ) -> tuple[Checked, ...]:
        """What the grounds say of each claim, in the claims' order.

        Args:
            claims: Checked in one call; more than 20 in several, as are those that a small model's context can't hold together. None need no call.
            grounds: What the claims may rest on. Without any, every claim is `not_mentioned`, without a call (reason `no_grounds`).
            question: What was asked: claims may be short for what it says.
            timeout_s: For all calls together, where the model's client can be told.

        Returns:
            A claim that is blank, that the reply does not mention, or whose call failed has no probability and the reason `unchecked`. `decided_by` is what
            the model named; None for what is not mentioned.

        Raises:
            ClaimCheckError: Every call failed, or nothing could be read of any claim.
        """
        deadline = deadline_in(timeout_s)

        def perform(call: Call) -> str:
            return self._ladder.ask(*self._prompt(call, question), timeout_s=deadline - time.monotonic(), max_tokens=_room(call))

        outcomes = ask_each(self._calls(claims, grounds), lambda call: finish(attempt(_check(call)), perform))
        return whole(claims, grounds, outcomes, unread=UNREAD)

    async def acheck(
        self, claims: Sequence[Claim], grounds: Sequence[Ground], *, question: str = "", timeout_s: float = 30.0
    ) -> tuple[Checked, ...]:
        """The async form of `check`."""
        deadline = deadline_in(timeout_s)

        async def perform(call: Call) -> str:
            return await self._ladder.aask(*self._prompt(call, question), timeout_s=deadline - time.monotonic(), max_tokens=_room(call))

        outcomes = await aask_each(self._calls(claims, grounds), lambda call: afinish(attempt(_check(call)), perform))
        return whole(claims, grounds, outcomes, unread=UNREAD)

    def _calls(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> list[Call]:
        there = pieces(grounds)
        asked = askable(claims) if there else ()
        batches = [asked[at : at + CALL_CLAIMS] for at in range(0, len(asked), CALL_CLAIMS)]
        return [Call(batch, self._shown([claim for _, claim in batch], there)) for batch in batches]

    def _shown(self, claims: Sequence[Claim], there: Sequence[Piece]) -> tuple[Piece, ...]:
        return choose(claims, there, max_chars=self._max_chars, max_pieces=CALL_PIECES)

    def _prompt(self, call: Call, question: str) -> tuple[str, str]:
        language = language_for(self._language, [claim for _, claim in call.claims])
        return claim_prompt.prompt(call, question, language=language, instructions=self._instructions)


def check_claim_options(language: str, max_ground_chars: int) -> None:
    """Passes if these can be worked with.

    Raises:
        ConfigError: They can't.
    """
    if language not in ("auto", "en", "zh"):
        msg = f'`language` must be "auto", "en" or "zh", got {language!r}'
        raise ConfigError(msg)
    if not PIECE_CHARS <= max_ground_chars <= MAX_GROUND_CHARS:
        msg = f"`max_ground_chars` must be from {PIECE_CHARS} to {MAX_GROUND_CHARS}, got {max_ground_chars!r}"
        raise ConfigError(msg)


def language_for(asked: Literal["auto", "en", "zh"], claims: Sequence[Claim]) -> Language:
    """The language of the instructions: the one asked for, or that of the claims together."""
    return language_of("\n".join(claim.text for claim in claims)) if asked == "auto" else asked


def deadline_in(timeout_s: float) -> float:
    """When the calls of a check must have ended, by `time.monotonic`."""
    return time.monotonic() + SHARE_OF_TIME * timeout_s


def attempt(checking: Generator[S, R, Said]) -> Generator[S, R, Said | ClaimCheckError]:
    """What a check gives, or its error as a value."""
    try:
        return (yield from checking)
    except ClaimCheckError as error:
        return error


def settle(outcomes: Sequence[Said | CRAGError]) -> list[Said]:
    """What each call said; nothing for one that failed, and a warning is logged.

    Raises:
        ClaimCheckError: Every call failed; the first one's error.
    """
    errors = [outcome for outcome in outcomes if isinstance(outcome, CRAGError)]
    if errors and len(errors) == len(outcomes):
        raise errors[0]
    if errors:
        logger.warning(
            "%d of %d claim checking calls failed: %s", len(errors), len(outcomes), ", ".join(sorted({e.reason for e in errors}))
        )
    return [{} if isinstance(outcome, CRAGError) else outcome for outcome in outcomes]


def whole(claims: Sequence[Claim], grounds: Sequence[Ground], outcomes: Sequence[Said | CRAGError], *, unread: str) -> tuple[Checked, ...]:
    """What all calls say of each claim, in the claims' order.

    Args:
        claims: All claims.
        grounds: All grounds.
        outcomes: What each call said, or its error.
        unread: The message if no claim has a probability though calls were made.

    Raises:
        ClaimCheckError: Every call failed, or no claim has a probability.
    """
    said = {place: one for part in settle(outcomes) for place, one in part.items()}
    if said and all(one.probability is None for one in said.values()):
        raise ClaimCheckError(unread, reason="invalid_reply")
    missing = claim_prompt.UNCHECKED if pieces(grounds) else claim_prompt.NO_GROUNDS
    return tuple(said.get(place, missing) for place in range(len(claims)))


def _check(call: Call) -> Generator[Call, str, Said]:
    """What one call says; if the model's context can't hold it, what its halves say, down to the claim and the piece that are too long by themselves."""
    try:
        return claim_prompt.read_checks((yield call), call)
    except ClaimCheckError as error:
        halves = call.halves() if error.reason == "too_long" else None
        if not halves:
            raise
    outcomes = [(yield from attempt(_check(halves[0]))), (yield from attempt(_check(halves[1])))]
    parts = list(zip(halves, settle(outcomes), strict=True))
    return {
        place: claim_prompt.join([said.get(place, claim_prompt.UNCHECKED) for half, said in parts if place in dict(half.claims)])
        for place, _ in call.claims
    }


def _room(call: Call) -> int:
    return (len(call.claims) + 1) * CHECK_TOKENS
