"""Picking strips by any LangChain chat model."""

import logging
import time
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from crag_middleware.adapters.fan_out import SHARE_OF_TIME, aask_each, ask_each
from crag_middleware.adapters.inner_model import ChatModel, model_name, resolve_model
from crag_middleware.adapters.ladder import Ladder
from crag_middleware.drive import afinish, finish
from crag_middleware.errors import ConfigError, CRAGError, RefineError
from crag_middleware.settings import MAX_STRIPS
from crag_middleware.stages import strip_picking as picking
from crag_middleware.stages.company import Page
from crag_middleware.stages.refine import Turn, checked_max_strips
from crag_middleware.stages.strip_picking import Choice, Spot
from crag_middleware.stages.words import language as language_of
from crag_middleware.types import EvaluatorKey, Memo, Passage, Strip

logger = logging.getLogger(__name__)

CALL_CHARS = 30_000
"""Characters of strips in one call, after clipping."""

CALL_LINES = 300
"""Strips in one call: more numbers than these are beyond what models keep apart."""

WORD_STRIPS = 3
"""Strips picked by words among those of a passage that the model could not be asked about."""

Call = tuple[Spot, ...]
"""The strips of one call."""

Outcome = tuple[Call, Choice | CRAGError]
"""What one call gave, or its error."""

Kept = tuple[tuple[Strip, ...], ...]
"""The strips of each passage."""


class ChatModelRefiner:
    """Picks strips by a chat model: all passages of a turn in one call, answered with numbers of strips.

    The model sees the strips numbered over all passages and can name numbers only, so whatever it says, what is kept stands in a passage word for word.
    What a picked strip needs beside it comes along.

    Of a passage of which it picks nothing, the strip that shares most words with the question is kept. Of strips that a failed call was about, the three of
    each passage that do, and a warning is logged.

    Args:
        model: A chat model or its name; None as for `ChatModelEvaluator`.
        language: Language of the instructions; `auto` follows the question.
        max_strips: How many strips are picked of one passage at most, at least 1; strips that must come along are not counted.
        instructions: Replaces the built-in instructions. How to reply is added in any case.

    Raises:
        ConfigError: The model can't be built, or an argument is out of range.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        language: Literal["auto", "en", "zh"] = "auto",
        max_strips: int = MAX_STRIPS,
        instructions: str | None = None,
    ) -> None:
        if language not in ("auto", "en", "zh"):
            msg = f'`language` must be "auto", "en" or "zh", got {language!r}'
            raise ConfigError(msg)
        self._model = resolve_model(model)
        self._ladder = Ladder(self._model, task="refine", error=RefineError, schema=picking.SCHEMA)
        self._language = language
        self._max_strips = checked_max_strips(max_strips)
        self._instructions = instructions

    @property
    def model(self) -> ChatModel:
        """The chat model, as it was given or found."""
        return self._model

    @property
    def key(self) -> EvaluatorKey:
        """Who picks: a run of `crag eval refinement` belongs to it."""
        return EvaluatorKey(type(self).__name__, model_name(self._model), picking.VERSION)

    def refine(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0, memo: Memo | None = None) -> Kept:
        """The strips that the model picked, with what they need beside them.

        Args:
            question: What the strips should answer.
            passages: Asked about in one call; very many strips, or those that the model's context can't hold together, in several.
            timeout_s: For all calls together, where the model's client can be told.
            memo: Where the picks are kept for the rest of the turn, for `rank`.

        Returns:
            One tuple a passage, in document order; empty where nothing was picked and no word agrees.

        Raises:
            RefineError: Every call failed, or no reply could be read.
        """
        slate = _Slate.of(question, passages)
        return slate.kept(self._pick(slate, timeout_s, memo), self._max_strips)

    async def arefine(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0, memo: Memo | None = None) -> Kept:
        """The async form of `refine`."""
        slate = _Slate.of(question, passages)
        return slate.kept(await self._apick(slate, timeout_s, memo), self._max_strips)

    def rank(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0, memo: Memo | None = None) -> Kept:
        """Every strip of every passage with its worth: above 1 for those that the model picked, in its order, and below for the others, by words.

        Fails as `refine` does.
        """
        slate = _Slate.of(question, passages)
        return slate.ranked(self._pick(slate, timeout_s, memo))

    async def arank(self, question: str, passages: Sequence[Passage], *, timeout_s: float = 30.0, memo: Memo | None = None) -> Kept:
        """The async form of `rank`."""
        slate = _Slate.of(question, passages)
        return slate.ranked(await self._apick(slate, timeout_s, memo))

    def _pick(self, slate: "_Slate", timeout_s: float, memo: Memo | None) -> "_Picked":
        known, key = {} if memo is None else memo, self._key(slate)
        deadline = _deadline(timeout_s)

        def perform(call: Call) -> str:
            return self._ladder.ask(*self._prompt(slate, call), timeout_s=deadline - time.monotonic(), max_tokens=_room(call))

        if key not in known:
            known[key] = _Picked.of(ask_each(slate.calls(), lambda call: finish(_outcomes(call), perform)))
        picked: _Picked = known[key]
        return picked

    async def _apick(self, slate: "_Slate", timeout_s: float, memo: Memo | None) -> "_Picked":
        known, key = {} if memo is None else memo, self._key(slate)
        deadline = _deadline(timeout_s)

        async def perform(call: Call) -> str:
            return await self._ladder.aask(*self._prompt(slate, call), timeout_s=deadline - time.monotonic(), max_tokens=_room(call))

        if key not in known:
            known[key] = _Picked.of(await aask_each(slate.calls(), lambda call: afinish(_outcomes(call), perform)))
        picked: _Picked = known[key]
        return picked

    def _key(self, slate: "_Slate") -> Hashable:
        """What picks are remembered under."""
        return (type(self), id(self), slate.question, tuple(page.text for page in slate.pages))

    def _prompt(self, slate: "_Slate", call: Call) -> tuple[str, str]:
        language = language_of(slate.question) if self._language == "auto" else self._language
        return picking.prompt(slate.question, slate.passages, slate.pages, call, language=language, instructions=self._instructions)


def _outcomes(call: Call) -> Generator[Call, str, list[Outcome]]:
    """What a call gave; if the model's context can't hold it, what its halves gave, down to the strip that is too long by itself."""
    try:
        choice = picking.read_choice((yield call), len(call))
    except RefineError as error:
        if error.reason != "too_long" or len(call) == 1:
            return [(call, error)]
    else:
        if choice is not None:
            return [(call, choice)]
        return [(call, RefineError("no number of a strip could be read from the chat model's reply", reason="invalid_reply"))]
    first, second = picking.halves(call)
    return [*(yield from _outcomes(first)), *(yield from _outcomes(second))]


@dataclass(frozen=True, slots=True)
class _Picked:
    """What the model picked, each strip with its place in the model's order, counted from 0; and the strips that it could not be asked about."""

    places: dict[Spot, int]
    unasked: frozenset[Spot]

    @classmethod
    def of(cls, calls: Sequence[list[Outcome] | CRAGError]) -> "_Picked":
        """From what each call gave.

        Raises:
            RefineError: All failed; the first one's error.
        """
        outcomes = [outcome for call in calls if isinstance(call, list) for outcome in call]
        errors = [got for _, got in outcomes if isinstance(got, CRAGError)]
        if errors and len(errors) == len(outcomes):
            raise errors[0]
        if errors:
            logger.warning("%d of %d refining calls failed: %s", len(errors), len(outcomes), ", ".join(sorted({e.reason for e in errors})))
        if unknown := sum(got.unknown for _, got in outcomes if isinstance(got, Choice)):
            logger.info("the chat model picked %d strips that do not exist", unknown)
        places = {call[n - 1]: at for call, got in outcomes if isinstance(got, Choice) for at, n in enumerate(got.numbers)}
        return cls(places, frozenset(spot for call, got in outcomes if isinstance(got, CRAGError) for spot in call))


@dataclass(frozen=True, slots=True)
class _Slate:
    """A question, the passages and their strips, and how much each strip shares with the question by words, in [0, 1)."""

    question: str
    passages: Sequence[Passage]
    pages: Sequence[Page]
    shared: Sequence[Sequence[float]]

    @classmethod
    def of(cls, question: str, passages: Sequence[Passage]) -> "_Slate":
        pages = [Page.of(passage.text) for passage in passages]
        return cls(question, passages, pages, Turn([passage.title for passage in passages], pages).by_words(question))

    def calls(self) -> list[Call]:
        return picking.batches(self.pages, call_chars=CALL_CHARS, call_lines=CALL_LINES)

    def kept(self, picked: _Picked, max_strips: int) -> Kept:
        """The picked strips of each passage with their company; of one without any, the best by words."""
        found = []
        for place, (page, worth) in enumerate(zip(self.pages, self._worth(picked), strict=True)):
            best = sorted(filter(worth.__getitem__, range(len(worth))), key=worth.__getitem__, reverse=True)
            chosen = [i for i in best if (place, i) in picked.places][:max_strips]
            unasked = [i for i in best if (place, i) in picked.unasked][:WORD_STRIPS]
            found.append(page.complete(chosen + unasked or best[:1], worth))
        return tuple(found)

    def ranked(self, picked: _Picked) -> Kept:
        """All strips with their worth."""
        return tuple(
            tuple(page.strip(i, w) for i, w in enumerate(worth)) for page, worth in zip(self.pages, self._worth(picked), strict=True)
        )

    def _worth(self, picked: _Picked) -> list[list[float]]:
        """For each strip: in (1, 2] if it was picked, else its share of words."""
        return [
            [1 + 1 / (1 + picked.places[place, i]) if (place, i) in picked.places else w for i, w in enumerate(shared)]
            for place, shared in enumerate(self.shared)
        ]


def _deadline(timeout_s: float) -> float:
    return time.monotonic() + SHARE_OF_TIME * timeout_s


def _room(call: Call) -> int:
    """Tokens for the numbers of all strips, where a limit is set."""
    return 100 + 6 * len(call)
