"""Threads for ports that block: few, counted, and left behind where a call never returns."""

import contextvars
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

SIZE = 128
"""Threads of one pool at most; one tenant has half of them at most."""

IDLE_S = 2.0
"""Seconds after which a thread without work ends."""


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """A call, the future that waits for it, whose it is, and the caller's context variables."""

    future: "Future[Any]"
    tenant: str
    body: Callable[[], Any]
    context: contextvars.Context


class Pool:
    """A bounded number of daemon threads. Safe to use from several threads and event loops.

    `concurrent.futures.ThreadPoolExecutor` waits for its threads when the interpreter ends, so that one call that hangs would keep the process alive.

    Args:
        name: What its threads are called.
        size: Threads at most.
    """

    def __init__(self, name: str, size: int = SIZE) -> None:
        self._name = name
        self._size = size
        self._share = max(1, size // 2)
        self._tasks: deque[_Task] = deque()
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition(threading.Lock())
        self._threads = 0
        self._idle = 0
        self._left_behind = 0

    @property
    def left_behind(self) -> int:
        """Calls that nobody waits for any more and that still run."""
        return self._left_behind

    def submit(self, body: Callable[[], Any], tenant: str = "") -> "Future[Any]":
        """The call's future. It runs with the caller's context variables, as soon as a thread is free for the tenant."""
        task = _Task(Future(), tenant, body, contextvars.copy_context())
        with self._changed:
            self._tasks.append(task)
            if len(self._tasks) > self._idle and self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._changed.notify()
        return task.future

    def leave(self, future: "Future[Any]") -> bool:
        """Nobody waits for the call any more.

        Returns:
            Whether it was begun: one that still waits for a thread is forgotten, one that runs is counted until it ends.
        """
        if future.cancel():
            with self._changed:
                self._tasks = deque(task for task in self._tasks if task.future is not future)
            return False
        with self._changed:
            self._left_behind += 1
        future.add_done_callback(self._returned)
        return True

    def _returned(self, _: "Future[Any]") -> None:
        with self._changed:
            self._left_behind -= 1

    def _work(self) -> None:
        while (task := self._next()) is not None:
            if task.future.set_running_or_notify_cancel():
                _settle(task.future, partial(task.context.run, task.body))
            with self._changed:
                self._running -= Counter([task.tenant])  # which also forgets tenants without calls
            del task  # nothing of the last call is kept while idle

    def _next(self) -> _Task | None:
        """The next call; None if none came for a while, and the thread ends."""
        with self._changed:
            self._idle += 1
            task = self._changed.wait_for(self._first, IDLE_S)
            self._idle -= 1
            if task is None:
                self._threads -= 1
                return None
            self._tasks.remove(task)
            self._running[task.tenant] += 1
            return task

    def _first(self) -> _Task | None:
        """The call that has waited for longest of those whose tenant has not its share of the threads already."""
        return next((task for task in self._tasks if self._running[task.tenant] < self._share), None)


def completed(body: Callable[[], Any]) -> "Future[Any]":
    """The future of a call that is made at once, here."""
    future: Future[Any] = Future()
    _settle(future, body)
    return future


def _settle(future: "Future[Any]", body: Callable[[], Any]) -> None:
    try:
        result = body()
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
        future.set_exception(error)
    else:
        future.set_result(result)


class Pools:
    """A pool for each port, so that one port's hanging calls take no thread from the others.

    Args:
        size: Threads of each at most.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._pools: dict[str, Pool] = {}

    def of(self, port: str) -> Pool:
        """The port's pool."""
        return self._pools.get(port) or self._pools.setdefault(port, Pool(f"crag-{port}", self._size))

    @property
    def left_behind(self) -> Mapping[str, int]:
        """Calls that nobody waits for any more and that still run, by port; those ports only that have some."""
        return {port: pool.left_behind for port, pool in list(self._pools.items()) if pool.left_behind}
