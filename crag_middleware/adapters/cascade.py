"""A cheap evaluator for the clear cases, a costly one for the rest."""

import logging
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from crag_middleware.adapters.fan_out import SHARE_OF_TIME
from crag_middleware.adapters.given import as_evaluator, calibration_of, evaluator_key, thresholds_of
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.calibration import Calibration
from crag_middleware.drive import afinish, arun, finish, run
from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.ports import AsyncEvaluator, Bound, Evaluator, bind
from crag_middleware.stages.decide import calibrated, label
from crag_middleware.steps import Call, ask, grade
from crag_middleware.tenancy import Scope
from crag_middleware.types import EvaluatorKey, Grade, Passage, Thresholds
from crag_middleware.world import World

logger = logging.getLogger(__name__)

CLEAR = (0.05, 0.95)
"""Calibrated probabilities of the first evaluator below and above which the second is not asked."""

FIRST_SHARE = 0.5
"""Of the deadline, for the first evaluator: if it hangs, the second still has time for all passages."""

Grades = tuple[Grade, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One of the two evaluators is asked."""

    evaluator: Bound
    call: Call[Grades]

    @property
    def world(self) -> World:
        return World({"evaluator": self.evaluator}, report=lambda stage: None)


class CascadeEvaluator:
    """Grades all passages by the first evaluator, and by the second those on which the first is not clear, in one call.

    Each one's probabilities go through its own calibration, so that both mean the same; those that come out are calibrated already. Whatever
    the first calls clear lies outside of `thresholds`, too.

    If one of the two fails, the other does what it can. Without the first, the second grades all. Without the second, the clear passages keep
    their grades and the others are `ungraded`: the first has said that it can't tell. Either is logged as a warning.

    Args:
        first: Sees every passage: a cheap evaluator, such as `EmbeddingEvaluator` or `RerankerEvaluator`.
        second: Sees the passages that are not clear: an evaluator, a chat model or its name, or None for the default chat model.
        clear: Below the one and above the other of these calibrated probabilities the first is believed.

    Raises:
        ConfigError: One of them is no evaluator, or `clear` is out of order or of range.
    """

    def __init__(
        self,
        first: Evaluator | AsyncEvaluator,
        second: Evaluator | AsyncEvaluator | ChatModel | str | None = None,
        *,
        clear: tuple[float, float] = CLEAR,
    ) -> None:
        match clear:
            case (int() | float() as low, int() | float() as high) if 0 <= low <= high <= 1:
                pass
            case _:
                msg = f"`clear` must be two probabilities in order and in [0, 1], got {clear!r}"
                raise ConfigError(msg)
        self._parts = as_evaluator(first), as_evaluator(second)
        self._first, self._second = (bind(part, "grade") for part in self._parts)
        self._own: tuple[Calibration | None, ...] = tuple(map(calibration_of, self._parts))
        self._thresholds = self._own[1].cuts if self._own[1] else thresholds_of(self._parts[1])
        self._clear = Thresholds(min(low, self._thresholds.lower), max(high, self._thresholds.upper))

    @property
    def thresholds(self) -> Thresholds:
        """Where the probabilities are cut: those of the second evaluator, after its calibration if it has one."""
        return self._thresholds

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are: both evaluators, their prompts, and what is clear."""
        keys = [evaluator_key(part) for part in self._parts]
        prompts = " > ".join(key.prompt for key in keys)
        models = " > ".join(f"{key.evaluator} {key.model}".strip() for key in keys)
        return EvaluatorKey(type(self).__name__, models, f"{prompts}, clear {self._clear.lower:g} {self._clear.upper:g}")

    @property
    def model(self) -> object:
        """The second evaluator's chat model, which the middleware may rewrite with, too; None if it has none."""
        return getattr(self._parts[1], "model", None)

    def grade(self, question: str, passages: Sequence[Passage], *, agent_id: str, timeout_s: float = 30.0) -> Grades:
        """One grade for each passage, in their order.

        Args:
            question: What the passages should answer.
            passages: Graded by the first in one go, and then, as far as they are not clear, by the second.
            agent_id: The tenant, for evaluators that ask for it.
            timeout_s: For both together; the first may use half of it.

        Raises:
            GradingError: Nothing could be graded; the second's error.
            ConfigError: One of the evaluators has only an async form.
        """
        return finish(self._steps(question, passages, Scope(agent_id), timeout_s), lambda asked: run(ask(asked.call), asked.world))

    async def agrade(self, question: str, passages: Sequence[Passage], *, agent_id: str, timeout_s: float = 30.0) -> Grades:
        """The async form of `grade`; an evaluator without one runs in a thread."""
        return await afinish(self._steps(question, passages, Scope(agent_id), timeout_s), lambda asked: arun(ask(asked.call), asked.world))

    def _steps(self, question: str, passages: Sequence[Passage], scope: Scope, timeout_s: float) -> Generator[_Asked, Grades, Grades]:
        deadline = time.monotonic() + SHARE_OF_TIME * timeout_s
        grades = {p.id: Grade(passage_id=p.id, probability=None, label="ungraded") for p in passages}
        if not passages:
            return ()
        try:
            found = yield _Asked(self._first, grade(question, tuple(passages), scope, timeout_s=FIRST_SHARE * timeout_s))
        except GradingError as error:
            logger.warning("the first evaluator failed (%s): the second grades all %d passages", error.reason, len(passages))
        else:
            grades |= {g.passage_id: self._if_clear(calibrated(g, self._own[0])) for g in found}
        unclear = tuple(p for p in passages if grades[p.id].probability is None)
        if unclear:
            try:
                found = yield _Asked(self._second, grade(question, unclear, scope, timeout_s=deadline - time.monotonic()))
            except GradingError as error:
                if len(unclear) == len(passages):
                    raise
                logger.warning(
                    "the second evaluator failed (%s): %d of %d passages stay ungraded", error.reason, len(unclear), len(passages)
                )
            else:
                grades |= {g.passage_id: self._cut(calibrated(g, self._own[1])) for g in found}
        return tuple(grades[p.id] for p in passages)

    def _if_clear(self, first: Grade) -> Grade:
        """The first evaluator's grade, or `ungraded` if it is not clear."""
        p = first.probability
        if p is not None and (p < self._clear.lower or p > self._clear.upper):
            return self._cut(first)
        reason = "" if p is None else f"not clear to the first evaluator: {p:.2f}"
        return Grade(passage_id=first.passage_id, probability=None, label="ungraded", reason=reason)

    def _cut(self, grade: Grade) -> Grade:
        """The grade as ours: what it was before calibration is nobody's concern."""
        return replace(label(grade, self._thresholds), raw=None)
