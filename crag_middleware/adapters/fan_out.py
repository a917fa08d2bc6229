"""Several grading calls of one turn, a few at a time, where some may fail."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from crag_middleware.errors import GradingError
from crag_middleware.pool import Pool

logger = logging.getLogger(__name__)

PARALLEL_CALLS = 3
"""Grading calls of one turn that run at the same time; providers limit the rate."""

SHARE_OF_TIME = 0.95
"""Of a grading's deadline, for all its calls: whoever waits for the whole then still gets those that were in time."""

C = TypeVar("C")
R = TypeVar("R")


def ask_each(calls: Sequence[C], ask: Callable[[C], R]) -> list[R | GradingError]:
    """What each call gave, or its error, in order.

    Raises:
        GradingError: Every call failed; the first one's error.
    """

    def outcome(call: C) -> R | GradingError:
        try:
            return ask(call)
        except GradingError as error:
            return error

    if len(calls) < 2:
        return settled([outcome(call) for call in calls])
    # Not an executor of the standard library, which would keep the process alive until the last call returns. One tenant has half of a pool.
    pool = Pool("crag-grading", 2 * PARALLEL_CALLS)
    futures = [pool.submit(partial(outcome, call)) for call in calls]
    try:
        return settled([future.result() for future in futures])
    finally:
        for future in futures:
            future.cancel()


async def aask_each(calls: Sequence[C], ask: Callable[[C], Awaitable[R]]) -> list[R | GradingError]:
    """The async form of `ask_each`."""
    gate = asyncio.Semaphore(PARALLEL_CALLS)

    async def outcome(call: C) -> R | GradingError:
        try:
            async with gate:
                return await ask(call)
        except GradingError as error:
            return error

    tasks = [asyncio.ensure_future(outcome(call)) for call in calls]
    try:
        return settled(await asyncio.gather(*tasks))
    finally:  # if one ended the turn, the others are not left without an owner
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def settled(outcomes: list[R | GradingError]) -> list[R | GradingError]:
    """The outcomes, unless all of them are errors; some are told."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, GradingError)]
    if errors and len(errors) == len(outcomes):
        raise errors[0]
    if errors:
        logger.warning("%d of %d grading calls failed: %s", len(errors), len(outcomes), ", ".join(sorted({e.reason for e in errors})))
    return outcomes
