"""What performs the steps of a generator: the only two loops, `finish` and, with `await`, `afinish`, and on them `run` and `arun` for a plan.

Deadlines are kept here, for every port alike. A call that is late is left behind: its thread is a daemon, its task is cancelled.
Cancellation, the framework's control flow and tenant errors pass through; any other failure of a port becomes the step's own error.
"""

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, assert_never

from langchain.agents.middleware.internal_call_transformer import internal_call_metadata
from langchain_core.runnables.config import RunnableConfig, ensure_config, var_child_runnable_config
from langgraph.errors import GraphBubbleUp

from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.ports import Bound
from crag_middleware.steps import Call, Plan, PortName, Stage, Step, Timings, Together

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class World:
    """What a driver works with.

    Attributes:
        ports: The ports by name.
        report: Where progress is told.
        timeout_s: Deadline of a whole plan, in seconds; None for that of each step only.
    """

    ports: Mapping[PortName, Bound]
    report: Callable[[str], None]
    timeout_s: float | None = None


@dataclass(slots=True)
class _Stopwatch:
    """Counts milliseconds by stage, and what is left until the plan's deadline; one for each run of a plan."""

    spent: dict[str, float] = field(default_factory=dict)
    stage: str = "reading"
    since: float = field(default_factory=time.perf_counter)
    deadline: float = math.inf

    def within(self, call: Call[T]) -> Call[T]:
        """The call with no more time than is left."""
        left = max(0.0, self.deadline - time.monotonic())
        if left >= call.timeout_s:
            return call
        told = {"timeout_s": left} if "timeout_s" in call.keywords else {}
        return replace(call, timeout_s=left, keywords={**call.keywords, **told})

    def enter(self, stage: str) -> None:
        now = time.perf_counter()
        self.spent[self.stage] = self.spent.get(self.stage, 0.0) + (now - self.since) * 1000
        self.stage, self.since = stage, now

    def read(self) -> dict[str, float]:
        self.enter(self.stage)
        return {stage: round(ms, 3) for stage, ms in self.spent.items()}


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
    watch = _Stopwatch(deadline=_deadline(world))
    with running_under(hidden_config()):
        return finish(plan, lambda step: _perform(step, world, watch))


async def arun(plan: Plan[T], world: World) -> T:
    """Performs a plan to its end on the running event loop and returns its result."""
    watch = _Stopwatch(deadline=_deadline(world))
    with running_under(hidden_config()):
        return await afinish(plan, lambda step: _aperform(step, world, watch))


def _deadline(world: World) -> float:
    return math.inf if world.timeout_s is None else time.monotonic() + world.timeout_s


def hidden_config() -> RunnableConfig:
    """The running config, marked as that of an inner call: callbacks and traces see it, the streams of the user don't."""
    config = ensure_config()  # Not `merge_configs`, which would name each callback of it twice.
    tags, metadata = config.get("tags") or [], config.get("metadata") or {}
    return {**config, "tags": list(dict.fromkeys([*tags, "nostream"])), "metadata": {**metadata, **internal_call_metadata()}}


@contextmanager
def running_under(config: RunnableConfig) -> Iterator[None]:
    """Whatever is called inside runs under this config; under `hidden_config`, models are seen by callbacks and traces, and hidden from the user's streams."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _perform(step: Step, world: World, watch: _Stopwatch) -> Any:
    match step:
        case Call():
            call = watch.within(step)
            if not call.timeout_s:
                raise _late(call)
            return _settle(call, _start(call, world), call.timeout_s)
        case Together(calls):
            begun = time.monotonic()
            under_way = [(call, _start(call, world) if call.timeout_s else None) for call in map(watch.within, calls)]
            return tuple(_outcome(call, future, begun) if future else _late(call) for call, future in under_way)
        case Stage() | Timings():
            return _local(step, world, watch)
        case _:
            assert_never(step)


async def _aperform(step: Step, world: World, watch: _Stopwatch) -> Any:
    match step:
        case Call():
            return await _asettle(watch.within(step), world)
        case Together(calls):
            return await _together(tuple(map(watch.within, calls)), world)
        case Stage() | Timings():
            return _local(step, world, watch)
        case _:
            assert_never(step)


def _local(step: Stage | Timings, world: World, watch: _Stopwatch) -> dict[str, float] | None:
    if isinstance(step, Timings):
        return watch.read()
    watch.enter(step.name)
    world.report(step.name)
    return None


def _start(call: Call[Any], world: World) -> "Future[Any]":
    """The call under way in a thread of its own, with the caller's context variables; an instant one is done already."""
    port = world.ports[call.port]
    if port.sync is None:
        msg = f"`{port.label}` has only an async form: use `ainvoke` or `astream`, or give the port a sync method"
        raise ConfigError(msg)
    sync = port.sync
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def body() -> None:
        try:
            result = sync(*call.arguments, **call.keywords)
        except (StopIteration, asyncio.CancelledError, CancelledError) as error:  # these mean something else to a loop and to a future
            future.set_exception(RuntimeError(f"raised {type(error).__name__}"))
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
            future.set_exception(error)
        else:
            future.set_result(result)

    if port.instant:
        body()
    else:  # A daemon, so that a call that never returns can't keep the process alive.
        threading.Thread(target=contextvars.copy_context().run, args=(body,), name="crag-port", daemon=True).start()
    return future


def _settle(call: Call[T], future: "Future[Any]", timeout_s: float) -> T:
    """The call's result within the time that is left."""
    try:
        return call.read(future.result(timeout_s))
    except (GraphBubbleUp, call.error):
        raise
    except Exception as error:
        raise _failure(call, error) from error


def _outcome(call: Call[T], future: "Future[Any]", begun: float) -> T | CRAGError:
    """The call's result, or its error as a value."""
    try:
        return _settle(call, future, max(0.0, begun + call.timeout_s - time.monotonic()))
    except call.error as error:
        return error


async def _asettle(call: Call[T], world: World) -> T:
    """The call's result within its deadline; a port without async form runs in a thread."""
    if not call.timeout_s:
        raise _late(call)
    port = world.ports[call.port]
    try:
        async with asyncio.timeout(call.timeout_s):
            if port.async_ is None:
                return call.read(await asyncio.wrap_future(_start(call, world)))
            return call.read(await port.async_(*call.arguments, **call.keywords))
    except (GraphBubbleUp, call.error):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise call.error(f"the {call.port} cancelled itself", reason="CancelledError") from error
    except Exception as error:
        raise _failure(call, error) from error


async def _aoutcome(call: Call[T], world: World) -> T | CRAGError:
    """The call's result, or its error as a value."""
    try:
        return await _asettle(call, world)
    except call.error as error:
        return error


async def _together(calls: tuple[Call[Any], ...], world: World) -> tuple[Any, ...]:
    """All calls at once. If one ends the turn, or we are cancelled, the others are cancelled and waited for; a TaskGroup would wrap the error."""
    tasks = [asyncio.ensure_future(_aoutcome(call, world)) for call in calls]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _late(call: Call[Any]) -> CRAGError:
    """The error of a call that was not begun."""
    return call.error(f"the {call.port} was not asked: the turn's time was up", reason="deadline")


def _failure(call: Call[Any], error: Exception) -> CRAGError:
    """The step's own error for whatever the port raised; the foreign text stays in the cause, since it may be private."""
    if isinstance(error, TimeoutError):
        return call.error(f"the {call.port} did not answer within {call.timeout_s:g} s", reason="timeout")
    reason = error.reason if isinstance(error, CRAGError) else type(error).__name__
    return call.error(f"the {call.port} failed with {type(error).__name__}", reason=reason)
