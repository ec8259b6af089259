"""Limits of connections on a real server: slow requests end, and clients that stall displace each other only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from dressage_console import http_server
from dressage_console.connections import ConnectionLimits
from dressage_console.http_server import HttpServer, bind
from starlette.types import Message, Receive, Scope, Send

from tests.waiting import until

GET = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"
BIG = 64 * 1024 * 1024


class App:
    """`/hold` answers when it is released, `/big` with many bytes, others at once without reading the body."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.begun = 0
        self.ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        if scope["path"] == "/hold":
            await self.release.wait()
        if scope["path"] == "/read":
            message: Message = {"type": "http.request", "more_body": True}
            while message["type"] == "http.request" and message.get("more_body"):
                message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/big":
            for _ in range(BIG // 65536):
                await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        await send({"type": "http.response.body", "body": b"done"})
        self.ended += 1


@asynccontextmanager
async def serving(**limits: object) -> AsyncIterator[tuple[App, int]]:
    app = App()
    bounds = ConnectionLimits(**{"head_seconds": 0.3, "body_seconds": 0.6, **limits})  # type: ignore[arg-type]
    server = HttpServer(app, bind("127.0.0.1:0"), grace_seconds=1, limits=bounds)
    address = await server.start()
    try:
        yield app, int(address.rpartition(":")[2])
    finally:
        app.release.set()
        await server.stop()


class Client:
    """One connection."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.reader, self.writer = streams

    @classmethod
    async def connect(cls, port: int, data: bytes = b"") -> Client:
        client = cls(await asyncio.open_connection("127.0.0.1", port))
        client.writer.write(data)
        await client.writer.drain()
        return client

    async def end(self, seconds: float = 5) -> bytes:
        """All bytes until the server closes."""
        try:
            async with asyncio.timeout(seconds):
                return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def answer(self) -> bytes:
        async with asyncio.timeout(5):
            return await self.reader.read(15)


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nHo", GET % b"" + b"GET"], ids=["nothing", "half", "second"])
async def test_a_head_that_does_not_arrive_ends_the_connection(begin: bytes):
    async with serving() as (_, port):
        assert (await (await Client.connect(port, begin)).end()).endswith(b"The request did not arrive in time.")


async def test_bytes_now_and_then_do_not_prolong_a_request():
    async with serving() as (_, port):
        for begin, drop in ((b"GET / HTTP/1.1\r\nX: ", b"x"), (b"POST /read HTTP/1.1\r\nHost: a\r\n", b"x")):
            head = begin if drop and begin.startswith(b"GET") else begin + b"Content-Length: 100000\r\n\r\n"
            client = await Client.connect(port, head)
            ended = asyncio.create_task(client.end())
            for _ in range(40):
                await asyncio.sleep(0.05)
                if ended.done():
                    break
                client.writer.write(drop)
            assert ended.done(), begin


@pytest.mark.parametrize("path", [b"read", b"unread"])
async def test_a_body_that_does_not_arrive_ends_the_connection(path: bytes):
    request = b"POST /%s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" % path
    async with serving() as (app, port):
        await (await Client.connect(port, request)).end()
        assert app.begun == 1


async def test_answers_take_as_long_as_they_need():
    async with serving(head_seconds=0.1, body_seconds=0.1) as (app, port):
        client = await Client.connect(port, GET % b"hold")
        await asyncio.sleep(0.4)
        app.release.set()
        assert await client.answer() == b"HTTP/1.1 200 OK"
        await asyncio.sleep(0.4)
        client.writer.write(GET % b"")
        assert b"done" in await client.reader.readuntil(b"done"), "an idle connection may send another request"


@pytest.mark.parametrize("limits", [{"per_address": 5}, {"total": 5, "per_address": 0}], ids=["address", "total"])
async def test_clients_that_stall_displace_each_other_only(limits: dict[str, int]):
    async with serving(head_seconds=30, **limits) as (app, port):
        working = [await Client.connect(port, GET % b"hold") for _ in range(2)]
        while app.begun < 2:
            await asyncio.sleep(0.01)
        stalled = [await Client.connect(port, b"GET") for _ in range(20)]
        assert await (await Client.connect(port, GET % b"")).answer() == b"HTTP/1.1 200 OK"
        assert sum([await first.end() == b"" for first in stalled[:15]]) == 15
        app.release.set()
        for client in working:
            assert await client.answer() == b"HTTP/1.1 200 OK"


async def test_a_connection_is_refused_only_if_all_others_are_answered():
    async with serving(per_address=3) as (app, port):
        working = [await Client.connect(port, GET % b"hold") for _ in range(3)]
        while app.begun < 3:
            await asyncio.sleep(0.01)
        refused = await (await Client.connect(port, GET % b"")).end()
        assert refused.startswith(b"HTTP/1.1 503") and refused.endswith(b"Too many connections.")
        app.release.set()
        for client in working:
            assert await client.answer() == b"HTTP/1.1 200 OK"


async def test_proxies_have_no_limit_for_one_address():
    async with serving(per_address=1, proxies=("127.0.0.0/8",)) as (app, port):
        clients = [await Client.connect(port, GET % b"hold") for _ in range(5)]
        while app.begun < 5:
            await asyncio.sleep(0.01)
        app.release.set()
        for client in clients:
            assert await client.answer() == b"HTTP/1.1 200 OK"


async def test_a_client_that_does_not_read_is_displaced():
    async with serving(per_address=2) as (app, port):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(GET % b"big")
        while not app.begun:
            await asyncio.sleep(0.01)
        held = await Client.connect(port, GET % b"hold")
        while app.begun < 2:
            await asyncio.sleep(0.01)
        assert await (await Client.connect(port, GET % b"")).answer() == b"HTTP/1.1 200 OK"
        app.release.set()
        assert await held.answer() == b"HTTP/1.1 200 OK"
        connection.close()


async def test_an_answer_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "_UNREAD_SECONDS", 1)
    async with serving() as (app, port):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(GET % b"big")
            await until(lambda: app.begun == 1)
            await until(lambda: app.ended == 1, seconds=30)
