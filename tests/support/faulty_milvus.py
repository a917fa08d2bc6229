"""What stands between a client and a real Milvus Lite server, and breaks: the connection, or single calls."""

import asyncio
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from pymilvus.grpc_gen import milvus_pb2

from tests.support.faulty import refusing_port

CONNECTION_FAULTS = frozenset({"refused", "hang", "reset", "garbage"})
"""Faults of `ConnectionProxy`; all others are those of `CallProxy`."""

HUGE = milvus_pb2.SearchResults(collection_name="x" * 40_000_000).SerializeToString()
_SEARCHES = ("/Search", "/HybridSearch", "/Query")
_CODES = {
    "401": grpc.StatusCode.UNAUTHENTICATED,
    "429": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "503": grpc.StatusCode.UNAVAILABLE,
    "success after a retry": grpc.StatusCode.UNAVAILABLE,
}


class CallProxy(grpc.GenericRpcHandler):
    """Passes calls on as bytes; a search meets the fault that is set.

    Attributes:
        waiting: How many searches with the fault `watch` are under way: they are never answered, and counted until the client gives them up.
    """

    def __init__(self, address: str) -> None:
        self.waiting = 0
        self._channel = grpc.insecure_channel(address)
        self.meet("none")

    def meet(self, fault: str) -> None:
        """What searches meet from now on."""
        self._fault, self._failures = fault, 0

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        method = details.method

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            return self._meet(method, request, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    def _meet(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        fault = self._fault if method.endswith(_SEARCHES) else "none"
        if fault == "success after a retry":
            self._failures += 1
            fault = "503" if self._failures == 1 else "none"
        if code := _CODES.get(fault):
            context.abort(code, "refused, and this quotes " + request.decode(errors="replace"))
        if fault == "watch":
            self.waiting += 1
            while context.is_active():
                time.sleep(0.02)
            self.waiting -= 1
        if fault == "slow":
            time.sleep(2)
        if fault == "empty":
            return b""
        if fault == "wrong type":
            return b"\x0a\x02\x08\x01\x7a\xff"
        if fault == "huge":
            return HUGE
        reply: bytes = self._channel.unary_unary(method)(request, timeout=10)
        return reply

    def close(self) -> None:
        self._channel.close()


@contextmanager
def call_proxy(address: str) -> Iterator[tuple[CallProxy, str]]:
    """The proxy of single calls to a server, and where it listens."""
    proxy = CallProxy(address)
    server = grpc.server(ThreadPoolExecutor(16), handlers=[proxy])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield proxy, f"127.0.0.1:{port}"
    finally:
        server.stop(None)
        proxy.close()


class ConnectionProxy:
    """Passes bytes on between clients and a server, until it breaks."""

    def __init__(self, address: str) -> None:
        self._fault = "none"
        self._host, _, self._port = address.partition(":")
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-proxy", daemon=True)
        self._thread.start()
        self.port = 0
        self._call(self._listen())

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self._writers)

    def meet(self, fault: str) -> None:
        """What connections meet from now on, those that are open included."""
        self._call(self._meet(fault))

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _meet(self, fault: str) -> None:
        was, self._fault = self._fault, fault
        if fault == "refused" and self._server is not None:
            self._server.close()
            self._break()
        elif was == "refused":
            await self._listen()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._break()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=2)

    def _break(self) -> None:
        """Resets every open connection."""
        for writer in list(self._writers):
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, int(self._port))
            back = asyncio.ensure_future(self._pump(up_reader, writer))
            try:
                await self._pump(reader, up_writer, to=writer)
            finally:
                back.cancel()
                up_writer.close()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to: asyncio.StreamWriter | None = None) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._fault == "reset":
                    _reset(to or writer)
                    return
                if self._fault == "garbage":
                    (to or writer).write(b"HTTP/1.1 200 OK\r\n\r\n<html>\xff\x00" * 3)
                elif self._fault != "hang":
                    writer.write(data)
                    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class LiteProcess:
    """A Milvus Lite server in another process that can be killed and started again, on the same data and the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = refusing_port()
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts it, and returns when it listens."""
        where = ["--data-dir", str(self._directory), "--host", "127.0.0.1", "--port", str(self._port)]
        command = [sys.executable, "-u", "-m", "milvus_lite", "server", *where]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        assert any("listening" in line for line in self._process.stdout), "the server ended before it listened"

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=20)
            self._process.stdout.close()  # type: ignore[union-attr]  # it has a pipe
            self._process = None
