"""Shadow mode: the corrective pass and the check of the answer run beside the turn, and nothing of them reaches the model or the user.

The pass runs while the model answers: in a thread under `invoke`, as a task under `ainvoke`. The turn's end waits for it only where the receipt has no other
place than the agent's state. Whatever goes wrong, a broken tenant boundary included, is told in the receipt and raised to nobody.
"""

import asyncio
import contextvars
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from uuid import uuid4

from langchain.agents.middleware import AgentState, ModelRequest, ModelResponse
from langgraph.runtime import Runtime

from crag_middleware.adapters.messages import read_question
from crag_middleware.drive import arun, run, running_under
from crag_middleware.receipt import shadowed, unasked
from crag_middleware.runs import silent, unseen_config
from crag_middleware.steps import Plan
from crag_middleware.telemetry import reason_of
from crag_middleware.tenancy import digest
from crag_middleware.turn import Turn
from crag_middleware.turns import Turns
from crag_middleware.types import Question
from crag_middleware.world import World

logger = logging.getLogger(__name__)

MOST = 256
"""Turns that are known at the same time, of one instance; beyond, the oldest is stopped, and its receipt says `busy`."""

GRACE_S = 1.0
"""Seconds after a turn's own deadline (`turn_timeout_s`) at which what still runs is stopped."""

POOL = "shadow"
"""The threads that passes run in, as `left_behind` counts them."""


@dataclass(slots=True, eq=False)
class _Beside:
    """What runs beside one turn.

    Attributes:
        question: What was asked.
        tenant: A digest; empty if there is no tenant.
        until: When it is stopped, in seconds of the monotonic clock.
        found: The state update that the corrective pass would have made.
        stop: Ends the pass, or leaves it behind if it can't be ended.
        answer: The latest model call and what came of it.
    """

    question: Question
    tenant: str
    until: float
    found: "Future[dict[str, Any]]"
    stop: Callable[[], object]
    answer: tuple[ModelRequest[Any], ModelResponse[Any]] | None = None

    @property
    def left_s(self) -> float | None:
        """Seconds until it is stopped; None for never."""
        return None if self.until == math.inf else max(0.0, self.until - time.monotonic())


_Begun = tuple["Future[dict[str, Any]]", Callable[[], object]]
_Start = Callable[[AgentState[Any], Runtime[Any], Turn], _Begun]


class Shadow:
    """The hooks of shadow mode. Safe to use from several threads and event loops.

    Args:
        turns: The instance.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._known: OrderedDict[str, _Beside] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()

    def begin(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Begins the corrective pass, once per turn; the state update by which later hooks find it."""
        return self._begin(state, runtime, self._in_thread)

    async def abegin(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The async form of `begin`."""
        return self._begin(state, runtime, self._in_task)

    def call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> ModelResponse[Any]:
        """Calls the model as it would be called without us, and remembers what it answered."""
        response = handler(request)
        self._heard(request, response)
        return response

    async def acall(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """The async form of `call`; a cancelled call ends what runs beside it."""
        try:
            response = await handler(request)
        except asyncio.CancelledError:
            if beside := self._taken(request.state):
                beside.stop()
            raise
        self._heard(request, response)
        return response

    def end(self, state: AgentState[Any]) -> dict[str, Any] | None:
        """Checks the answer and tells the receipt; the state update that holds it, unless somebody else takes it."""
        beside = self._taken(state)
        if beside is None:
            return self._told(self._unrun(state))
        if self._turns._outlets.sink is None:
            return self._told(self._receipt(beside))
        context = contextvars.copy_context()
        body = partial(context.run, lambda: self._told(self._receipt(beside)))
        beside.found.add_done_callback(lambda _: self._turns._parts.pools.of(POOL).submit(body, beside.tenant))
        return None

    async def aend(self, state: AgentState[Any]) -> dict[str, Any] | None:
        """The async form of `end`."""
        beside = self._taken(state)
        if beside is None:
            return self._told(self._unrun(state))
        if self._turns._outlets.sink is None:
            return self._told(await self._areceipt(beside))
        task = asyncio.get_running_loop().create_task(self._atold(beside))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    def _begin(self, state: AgentState[Any], runtime: Runtime[Any], start: _Start) -> dict[str, Any] | None:
        turns, memo = self._turns, self._turns._memo(state)
        question = read_question(state["messages"], history=0)
        if memo.get("shadow") in self._known and (question is None or question.message_id == memo["message_id"]):
            return None
        asked = question or Question(text="", skip="empty")
        try:
            if (off := turns._off(state, runtime)) is not None:
                return off or None
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the user
            beside = _broken(asked, error)
        else:
            anew = cast("AgentState[Any]", {**cast("Mapping[str, Any]", state), turns._turn_key: {}})
            beside = self._started(anew, silent(runtime), asked, start)
        if earlier := self._taken(state):
            earlier.stop()
        token = uuid4().hex
        self._keep(token, beside)
        return {turns._turn_key: {"message_id": asked.message_id, "text": digest(asked.text), "block": "", "last": 0, "shadow": token}}

    def _started(self, state: AgentState[Any], runtime: Runtime[Any], question: Question, start: _Start) -> _Beside:
        """The pass under way, or what kept it from beginning."""
        tenant, until = "", math.inf
        try:
            turn = self._turns._begin(state, runtime)
            if turn is None:
                msg = "a turn without a memory is always new"
                raise AssertionError(msg)
            tenant, timeout_s = digest(turn.scope.agent_id), turn.settings.turn_timeout_s
            until = math.inf if timeout_s is None else time.monotonic() + timeout_s + GRACE_S
            found, stop = start(state, runtime, turn)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the user
            return _broken(question, error, tenant)
        return _Beside(question, tenant, until, found, stop)

    def _in_thread(self, state: AgentState[Any], runtime: Runtime[Any], turn: Turn) -> _Begun:
        def body() -> dict[str, Any]:
            with running_under(unseen_config()):
                return self._turns._corrected(state, runtime, turn)

        pool = self._turns._parts.pools.of(POOL)
        found = pool.submit(body, digest(turn.scope.agent_id))
        return found, lambda: found.done() or pool.leave(found)

    def _in_task(self, state: AgentState[Any], runtime: Runtime[Any], turn: Turn) -> _Begun:
        async def body() -> dict[str, Any]:
            with running_under(unseen_config()):
                return await self._turns._acorrected(state, runtime, turn)

        loop = asyncio.get_running_loop()
        task, found = loop.create_task(body()), Future[dict[str, Any]]()
        task.add_done_callback(partial(_hand_over, found))
        return found, lambda: loop.is_closed() or loop.call_soon_threadsafe(task.cancel)

    def _keep(self, token: str, beside: _Beside) -> None:
        """Remembers what runs beside a turn, and stops the oldest if there is no room."""
        with self._lock:
            self._known[token] = beside
            oldest = self._known.popitem(last=False)[1] if len(self._known) > MOST else None
        if oldest is not None:
            oldest.stop()

    def _taken(self, state: Mapping[str, Any]) -> _Beside | None:
        """What runs beside the turn, which from now on is the caller's."""
        with self._lock:
            return self._known.pop(self._turns._memo(state).get("shadow", ""), None)

    def _heard(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
        beside = self._known.get(self._turns._memo(request.state).get("shadow", ""))
        if beside is not None:
            beside.answer = (request, response)

    def _unrun(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """The receipt of a turn beside which nothing runs: switched off, not reached, or stopped for want of room; None if nothing is known."""
        memo = self._turns._memo(state)
        if memo.get("off") is not None:
            return self._turns._unasked(memo)
        if "shadow" in memo:
            return self._failed(Question(text="", message_id=memo["message_id"]), "", "busy")
        return None if memo else state.get(self._turns._receipt_key)

    def _receipt(self, beside: _Beside) -> dict[str, Any]:
        """What would have been done in the turn. Waits for what still runs, until its deadline."""
        try:
            update = beside.found.result(beside.left_s)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the user
            return self._stopped(beside, error)
        try:
            with running_under(unseen_config()):
                check = self._check(beside, update)
                return self._marked(beside, update | (run(*check) if check else {}))
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the user
            return self._unchecked(beside, update, error)

    async def _areceipt(self, beside: _Beside) -> dict[str, Any]:
        """The async form of `_receipt`."""
        try:
            async with asyncio.timeout(beside.left_s):
                update = await asyncio.shield(asyncio.wrap_future(beside.found))
        except asyncio.CancelledError:
            beside.stop()
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            return self._failed(beside.question, beside.tenant, "cancelled")
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the user
            return self._stopped(beside, error)
        try:
            with running_under(unseen_config()):
                check = self._check(beside, update)
                return self._marked(beside, update | (await arun(*check) if check else {}))
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the user
            return self._unchecked(beside, update, error)

    def _check(self, beside: _Beside, update: Mapping[str, Any]) -> tuple[Plan[dict[str, Any]], World] | None:
        """The check of the latest answer, as it would have been with the evidence remembered, and what performs it; None if nothing is to be checked."""
        if beside.answer is None:
            return None
        request, response = beside.answer
        state: Any = {**request.state, **update}
        request = replace(request, state=state, runtime=silent(request.runtime))
        watch = self._turns._watch(request)
        if watch is None:
            return None

        def plan() -> Plan[dict[str, Any]]:
            _, known = yield from self._turns._checked(request, response, watch)
            return known

        return plan(), watch.world

    def _marked(self, beside: _Beside, update: Mapping[str, Any]) -> dict[str, Any]:
        return shadowed(update[self._turns._receipt_key], tenant=beside.tenant)

    def _unchecked(self, beside: _Beside, update: Mapping[str, Any], error: Exception) -> dict[str, Any]:
        """The receipt of a pass whose answer could not be checked."""
        reason = reason_of(error)
        logger.warning("crag shadow: an answer could not be checked: %s", reason)
        receipt = self._marked(beside, update)
        return {**receipt, "degraded": [*receipt["degraded"], {"step": "check", "reason": reason}]}

    def _stopped(self, beside: _Beside, error: Exception) -> dict[str, Any]:
        """The receipt of a pass that failed, or did not end in time."""
        is_late = isinstance(error, TimeoutError) and not beside.found.done()
        if is_late:
            beside.stop()
        is_cancelled = isinstance(error, CancelledError)
        return self._failed(beside.question, beside.tenant, "deadline" if is_late else "cancelled" if is_cancelled else reason_of(error))

    def _failed(self, question: Question, tenant: str, reason: str) -> dict[str, Any]:
        logger.warning("crag shadow: a turn failed: %s", reason)
        return shadowed(unasked("failed", question, name=self._turns.name, reasons={"shadow": reason}), tenant=tenant)

    def _told(self, receipt: dict[str, Any] | None) -> dict[str, Any] | None:
        """Tells of a turn that is over."""
        if receipt is None:
            return None
        try:
            self._turns._outlets.tell(receipt)
        except Exception as error:  # noqa: BLE001 - nothing of ours reaches the user
            logger.warning("crag shadow: a turn could not be told: %s", reason_of(error))
        return self._turns._kept(receipt) or None

    async def _atold(self, beside: _Beside) -> None:
        """Tells of a turn that went on after the agent's end. When the event loop ends first, the receipt says `cancelled`."""
        try:
            receipt = await self._areceipt(beside)
        except asyncio.CancelledError:
            self._told(self._failed(beside.question, beside.tenant, "cancelled"))
            raise
        self._told(receipt)


def _broken(question: Question, error: Exception, tenant: str = "") -> _Beside:
    """What could not begin."""
    found: Future[dict[str, Any]] = Future()
    found.set_exception(error)
    return _Beside(question, tenant, math.inf, found, lambda: None)


def _hand_over(found: "Future[dict[str, Any]]", task: "asyncio.Task[dict[str, Any]]") -> None:
    """The task's outcome, where threads and other event loops find it."""
    if not found.set_running_or_notify_cancel():
        return
    if task.cancelled():
        found.set_exception(CancelledError())
    elif error := task.exception():
        found.set_exception(error)
    else:
        found.set_result(task.result())
