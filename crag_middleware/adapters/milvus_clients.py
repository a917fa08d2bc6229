"""One async Milvus client for each running event loop."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from threading import Lock
from typing import Any
from weakref import ref

from pymilvus import AsyncMilvusClient


class LoopClients:
    """Async clients by event loop: made when a loop first asks, closed when it ends.

    A gRPC channel belongs to the loop that opened it, and pymilvus shares its channels by the loop's `id`, which a later loop may get again:
    so each client here has a channel of its own, and no ended loop is kept. Channels are closed, too, when nobody holds this any more.

    Args:
        connection: What `MilvusClient` was given: uri, token, database, TLS.
    """

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._connection = {**connection, "dedicated": True}
        self._lock = Lock()
        self._lives: dict[asyncio.AbstractEventLoop, _Life] = {}

    async def get(self) -> AsyncMilvusClient:
        """The running loop's client, connected."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for ended in [other for other in self._lives if other.is_closed()]:
                del self._lives[ended]
            life = self._lives.setdefault(loop, _Life(_live(self._connection, loop, ref(self))))
        async with life.turn:  # the first caller connects while the others wait: pymilvus would open a channel for each
            if life.client is None:
                life.client = await anext(life.steps)
        return life.client

    def _ended(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._lives.pop(loop, None)

    def __len__(self) -> int:
        """How many loops have a client."""
        return len(self._lives)


async def _live(
    connection: Mapping[str, Any], loop: asyncio.AbstractEventLoop, clients: "ref[LoopClients]"
) -> AsyncGenerator[AsyncMilvusClient, None]:
    """Yields the client once. A loop closes its open async generators before it ends, and so the channel while it still can be.

    It refers to the clients weakly: in a cycle with them it would live on, and its channel with it, until the garbage is collected.
    """
    try:
        async with AsyncMilvusClient(**connection) as client:
            yield client
    finally:
        if (those := clients()) is not None:
            those._ended(loop)


class _Life:
    """One loop's client, and the generator that opens and closes it."""

    def __init__(self, steps: AsyncGenerator[AsyncMilvusClient, None]) -> None:
        self.steps = steps
        self.turn = asyncio.Lock()
        self.client: AsyncMilvusClient | None = None
