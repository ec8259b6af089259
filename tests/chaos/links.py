"""Connections between processes that can be cut, delayed, refused, answered with 503, and duplicated.

A `Link` listens on a port of loopback and forwards each connection to another port. Both ends see plain TCP, so a link carries
gRPC, HTTP and PostgreSQL's protocol alike. All links of a process share one event loop in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Literal, TypeVar

Mode = Literal["open", "absent", "busy", "slow"]
"""How a link treats connections: forward them; refuse new ones and cut open ones; answer 503; forward with a delay."""

T = TypeVar("T")
_CHUNK = 65536
_KEPT_BYTES = 2 * 1024 * 1024
"""Connections whose client sent more are not duplicated."""
_DUPLICATE_SECONDS = 20.0
_CALL_SECONDS = 30.0
_BUSY_SECONDS = 5.0
_ERROR = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>try later</Message></Error>'
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    + f"Content-Length: {len(_ERROR)}\r\n\r\n".encode()
    + _ERROR
)


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)

    def close(self) -> None:
        """Stop the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)


class _Connection:
    """One connection of a client, with what the client has sent so far."""

    def __init__(self, writer: asyncio.StreamWriter, onward: asyncio.StreamWriter) -> None:
        self.writers = (writer, onward)
        self.sent = bytearray()
        self.complete = True

    def note(self, data: bytes) -> None:
        self.complete = self.complete and len(self.sent) + len(data) <= _KEPT_BYTES
        if self.complete:
            self.sent += data
        else:
            self.sent.clear()

    def cut(self) -> None:
        """Close both ends at once, with RST instead of FIN."""
        for writer in self.writers:
            _reset(writer)


class Link:
    """Forwards connections from a port to another.

    :param port: port to listen on.
    :param target: port to forward to.
    """

    def __init__(self, loop: Loop, name: str, *, port: int, target: int) -> None:
        self.name = name
        self.port = port
        self._loop = loop
        self._target = target
        self._mode: Mode = "open"
        self._delay = 0.0
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = loop.run(asyncio.start_server(self._serve, "127.0.0.1", port))

    def treat(self, mode: Mode, *, delay: float = 0.0) -> None:
        """Treat connections in another way from now on.

        :param delay: seconds by which `slow` delays each chunk of data, in both directions.
        """
        self._loop.run(self._set(mode, delay))

    def cut(self) -> int:
        """Reset all open connections; returns their number."""
        return self._loop.run(self._cut())

    def duplicate(self) -> int:
        """Send all that the clients of the open connections have sent a second time, on connections of their own.

        The server then handles every call twice, as it does when a client's connection is lost unnoticed and the client
        repeats its calls on a new one. The answers to the duplicates are read and dropped.

        :return: the number of duplicated connections.
        """
        return self._loop.run(self._duplicate())

    def close(self) -> None:
        """Stop listening and cut all connections."""
        self._loop.run(self._close())

    async def _set(self, mode: Mode, delay: float) -> None:
        self._mode, self._delay = mode, delay
        if mode in ("absent", "busy"):
            await self._cut()

    async def _cut(self) -> int:
        connections = list(self._connections)
        for connection in connections:
            connection.cut()
        return len(connections)

    async def _duplicate(self) -> int:
        chosen = [bytes(entry.sent) for entry in self._connections if entry.complete and entry.sent]
        for sent in chosen:
            task = asyncio.create_task(self._send_again(sent))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(chosen)

    async def _send_again(self, sent: bytes) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.timeout(_DUPLICATE_SECONDS):
                    writer.write(sent)
                    await writer.drain()
                    while await reader.read(_CHUNK):
                        pass
            finally:
                _reset(writer)

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "busy":
            await _answer_busy(reader, writer)
            return
        try:
            if self._mode == "absent":
                raise ConnectionError
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        connection = _Connection(writer, onward)
        self._connections.add(connection)
        try:
            pumps = (
                asyncio.create_task(self._pump(reader, onward, connection)),
                asyncio.create_task(self._pump(onward_reader, writer, None)),
            )
            await asyncio.wait(pumps)
        finally:
            self._connections.discard(connection)
            for end in connection.writers:
                end.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if connection is not None:
                    connection.note(data)
                if self._mode == "slow":
                    await asyncio.sleep(self._delay)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            return
        _reset(writer)


async def _answer_busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read one request and answer that the server is busy; a client that sends its body reads the answer only after it."""
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_BUSY_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = re.search(rb"\r\ncontent-length: *(\d+)", head)
            if length is not None and b"100-continue" not in head:
                await reader.readexactly(int(length[1]))
            writer.write(_BUSY)
            await writer.drain()
    writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
