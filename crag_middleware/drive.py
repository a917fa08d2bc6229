"""What performs the steps of a generator: the only two loops, `finish` and, with `await`, `afinish`, and on them `run` and `arun` for a plan.

Deadlines are kept here, for every port alike. A call that is late is left behind: its thread is a daemon, its task is cancelled.
Cancellation, the framework's control flow and tenant errors pass through; any other failure of a port becomes the step's own error.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from langgraph.errors import GraphBubbleUp

from crag_middleware.breaker import COOL_DOWN_S, Permit
from crag_middleware.errors import ConfigError, CRAGError, let_pass
from crag_middleware.findings import Spent
from crag_middleware.pool import completed
from crag_middleware.runs import SeenCall, asee, metered_config, see
from crag_middleware.runs import hidden_config as hidden_config
from crag_middleware.runs import running_under as running_under
from crag_middleware.steps import Call, Plan, Spending, Stage, Step, Timings, Together
from crag_middleware.world import Stopwatch, World

S = TypeVar("S")
T = TypeVar("T")

_OURS = frozenset({"deadline", "busy"})
"""Reasons that say nothing about a port: it was we who ended the call, or did not begin it."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call under way in a thread, or done."""

    call: Call[Any]
    permit: Permit | None
    seen: SeenCall
    future: "Future[Any]"


def finish(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Runs a generator to its end: performs each step it yields, sends it the reply or throws the error into it, and returns its result."""
    try:
        step = next(steps)
        while True:
            try:
                reply = perform(step)
            except Exception as error:  # noqa: BLE001 - thrown into the generator, which answers it or raises it on
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def afinish(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """The async form of `finish`."""
    try:
        step = next(steps)
        while True:
            try:
                reply = await perform(step)
            except Exception as error:  # noqa: BLE001 - thrown into the generator, which answers it or raises it on
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


def run(plan: Plan[T], world: World) -> T:
    """Performs a plan to its end and returns its result.

    Raises:
        ConfigError: A port has no sync form.
    """
    watch = Stopwatch.of(world)
    with world.meter.running():
        return finish(plan, lambda step: _perform(step, world, watch))


async def arun(plan: Plan[T], world: World) -> T:
    """Performs a plan to its end on the running event loop and returns its result."""
    watch = Stopwatch.of(world)
    with world.meter.running():
        return await afinish(plan, lambda step: _aperform(step, world, watch))


def _perform(step: Step, world: World, watch: Stopwatch) -> Any:
    match step:
        case Call():
            call = watch.within(step)
            with running_under(metered_config(world)):
                return _settle(_begin(call, world), world, call.timeout_s)
        case Together(calls):
            with running_under(metered_config(world)):
                return _all(tuple(map(watch.within, calls)), world)
        case Stage() | Timings() | Spending():
            return _local(step, world, watch)
        case _:
            assert_never(step)


async def _aperform(step: Step, world: World, watch: Stopwatch) -> Any:
    match step:
        case Call():
            with running_under(metered_config(world)):
                return await _asettle(watch.within(step), world)
        case Together(calls):
            with running_under(metered_config(world)):
                return await _aall(tuple(map(watch.within, calls)), world)
        case Stage() | Timings() | Spending():
            return _local(step, world, watch)
        case _:
            assert_never(step)


def _local(step: Stage | Timings | Spending, world: World, watch: Stopwatch) -> dict[str, float] | Spent | None:
    match step:
        case Timings():
            return watch.read()
        case Spending():
            return world.meter.spent
        case Stage(name):
            watch.enter(name)
            world.report(name)
            return None


def _start(call: Call[Any], world: World) -> "Future[Any]":
    """The call under way in a thread, with the caller's context variables; an instant one is done already."""
    port = world.ports[call.port]
    if port.sync is None:
        msg = f"`{port.label}` has only an async form: use `ainvoke` or `astream`, or give the port a sync method"
        raise ConfigError(msg)
    sync = port.sync

    def body() -> Any:
        try:
            return sync(*call.arguments, **call.keywords)
        except (StopIteration, asyncio.CancelledError, CancelledError) as error:  # these mean something else to a loop and to a future
            msg = f"raised {type(error).__name__}"
            raise RuntimeError(msg) from None

    return completed(body) if port.instant else world.pools.of(call.port).submit(body, world.tenant)


def _begin(call: Call[Any], world: World) -> _Begun:
    """The call under way, if it may be asked."""
    seen, permit = see(call, world), None
    try:
        permit = world.admit(call)
        with seen.inside():
            return _Begun(call, permit, seen, _start(call, world))
    except CRAGError as error:
        world.settle(call, permit, None)
        seen.end(error)
        raise


def _all(calls: tuple[Call[Any], ...], world: World) -> tuple[Any, ...]:
    """The outcome of each call, all under way at once. If one ends the turn, nobody waits for the others any more."""
    since = time.monotonic()
    under_way: deque[_Begun | CRAGError] = deque()
    outcomes: list[Any] = []
    try:
        for call in calls:
            under_way.append(_begun_or_error(call, world))
        while under_way:
            it = under_way.popleft()
            outcomes.append(it if isinstance(it, CRAGError) else _outcome(it, world, since))
        return tuple(outcomes)
    finally:
        for it in under_way:
            if isinstance(it, _Begun):
                world.pools.of(it.call.port).leave(it.future)
                world.settle(it.call, it.permit, None)
                it.seen.end(CancelledError())


def _begun_or_error(call: Call[Any], world: World) -> _Begun | CRAGError:
    try:
        return _begin(call, world)
    except call.error as error:
        return error


def _settle(begun: _Begun, world: World, timeout_s: float) -> Any:
    """The call's result within the time that is left."""
    call, future = begun.call, begun.future
    try:
        with _told(call, world, begun.permit):
            try:
                result = call.read(future.result(timeout_s))
            except TimeoutError:
                raise _unanswered(call, future, world) from None
    except BaseException as error:
        begun.seen.end(error)
        raise
    begun.seen.end(result)
    return result


def _outcome(begun: _Begun, world: World, since: float) -> Any:
    """The call's result, or its error as a value."""
    try:
        return _settle(begun, world, max(0.0, since + begun.call.timeout_s - time.monotonic()))
    except begun.call.error as error:
        return error


async def _asettle(call: Call[T], world: World) -> T:
    """The call's result within its deadline."""
    seen = await asee(call, world)
    try:
        with seen.inside():
            result = await _aanswer(call, world)
    except BaseException as error:
        await seen.aend(error)
        raise
    await seen.aend(result)
    return result


async def _aanswer(call: Call[T], world: World) -> T:
    """What the port answers; one without async form runs in a thread."""
    port, permit = world.ports[call.port], world.admit(call)
    with _told(call, world, permit):
        if port.async_ is None:
            return call.read(await _in_thread(call, world))
        try:
            async with asyncio.timeout(call.timeout_s):
                return call.read(await port.async_(*call.arguments, **call.keywords))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise call.error(f"the {call.port} cancelled itself", reason="CancelledError") from error


async def _in_thread(call: Call[Any], world: World) -> Any:
    """What a port without async form answers; its thread is left behind if that is late, or nobody waits for it any more."""
    future = _start(call, world)
    if future.done():
        return future.result()
    try:
        async with asyncio.timeout(call.timeout_s):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        raise _unanswered(call, future, world) from None
    except asyncio.CancelledError:
        world.pools.of(call.port).leave(future)
        raise


async def _aoutcome(call: Call[T], world: World) -> T | CRAGError:
    """The call's result, or its error as a value."""
    try:
        return await _asettle(call, world)
    except call.error as error:
        return error


async def _aall(calls: tuple[Call[Any], ...], world: World) -> tuple[Any, ...]:
    """The async form of `_all`. If one ends the turn, or we are cancelled, the others are cancelled and waited for; a TaskGroup would wrap the error."""
    tasks = [asyncio.ensure_future(_aoutcome(call, world)) for call in calls]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _told(call: Call[Any], world: World, permit: Permit | None) -> Iterator[None]:
    """Whatever goes wrong inside is raised as the call's own error, and the port's circuit learns of it.

    Cancellation, the framework's control flow and tenant errors pass as they are.
    """
    learnt: str | None = None
    try:
        yield
        learnt = ""
    except GraphBubbleUp:
        raise
    except call.error as error:
        if call.cut and error.reason == "timeout":
            error.reason = "deadline"
        learnt = None if error.reason in _OURS else error.reason
        raise
    except Exception as error:
        let_pass(error)
        failure = _failure(call, error)
        learnt = None if failure.reason in _OURS else failure.reason if failure.reason in COOL_DOWN_S else "unavailable"
        raise failure from error
    finally:
        world.settle(call, permit, learnt)


def _unanswered(call: Call[Any], future: "Future[Any]", world: World) -> CRAGError:
    """The error of a call that took too long, or found no thread."""
    if future.cancelled() or not (future.done() or world.pools.of(call.port).leave(future)):
        return call.error(f"the {call.port} was not asked: all of its threads are busy with calls that do not return", reason="busy")
    return _failure(call, TimeoutError())


def _failure(call: Call[Any], error: Exception) -> CRAGError:
    """The step's own error for whatever the port raised; the foreign text stays in the cause, since it may be private."""
    if isinstance(error, TimeoutError):
        return call.error(f"the {call.port} did not answer within {call.timeout_s:g} s", reason="deadline" if call.cut else "timeout")
    reason = error.reason if isinstance(error, CRAGError) else type(error).__name__
    return call.error(f"the {call.port} failed with {type(error).__name__}", reason=reason)
