"""The processes and the clients of `sessions_load.py`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from google.protobuf.wrappers_pb2 import Int32Value

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
CHANNELS, READERS, READ_PAUSE, PAGE = 8, 4, 0.05, 100
SLACK_SECONDS = 900.0
"""Time beyond that of the model after which sessions that have not ended are lost."""


class Process:
    """A process of the benchmark, which answers each line of its input with one line of JSON."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        command = [sys.executable, str(SUPPORT / module), *arguments]
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def read(self) -> dict[str, Any]:
        """The next object that it prints."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            with contextlib.suppress(json.JSONDecodeError):  # a line of the log
                document = json.loads(line)
                if "event" not in document:
                    return dict(document)
        raise SystemExit(f"a process of the benchmark has ended; see {self._log.name}")

    async def ask(self) -> dict[str, Any]:
        """What it uses, or has done."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return await asyncio.to_thread(self.read)

    def seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._log.close()


@dataclass
class Load:
    """The clients, and what they have seen."""

    given: argparse.Namespace
    stubs: list[Any]
    reads: dict[str, list[float]] = field(default_factory=dict)
    events: dict[str, list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ended: int = 0

    def stub(self, name: str) -> Any:
        return self.stubs[hash(name) % len(self.stubs)]

    async def create(self, ident: str) -> str:
        spec = v1.SessionSpec(
            intent="load", environment="environments/CartPole-v1", max_iterations=self.given.iterations
        )
        spec.custom.Pack(Int32Value())
        request = pb.CreateSessionRequest(spec=spec, session_id=ident, request_id=ident)
        name: str = (await self.stub(ident).CreateSession(request, timeout=SLACK_SECONDS)).name
        self.names.append(name)
        return name

    async def watch(self, name: str) -> None:
        """Follow a session to its end, also when a stream breaks."""
        seen = self.events.setdefault(name, [])
        token = ""
        while True:
            try:
                request = pb.WatchSessionRequest(name=name, resume_token=token)
                async for answer in self.stub(name).WatchSession(request):
                    token = answer.resume_token
                    seen.append(answer.event.sequence)
                return
            except Exception as error:  # a stream that breaks is counted and taken up again
                self.failures.append(f"watch: {type(error).__name__}")
                await asyncio.sleep(1)

    async def read(self, number: int) -> None:
        """Call the API as a page or a script does, until cancelled."""
        choice = random.Random(number)
        while True:
            name, stub = choice.choice(self.names), self.stub(f"reader-{number}")
            calls: tuple[tuple[Any, Any], ...] = (
                (stub.GetSession, pb.GetSessionRequest(name=name)),
                (stub.ListSessions, pb.ListSessionsRequest(page_size=50)),
                (stub.ListIterations, pb.ListIterationsRequest(parent=name)),
                (stub.GetLineage, pb.GetLineageRequest(name=name)),
            )
            call, request = choice.choice(calls)
            kind = type(request).__name__.removesuffix("Request")
            began = time.perf_counter()
            try:
                await call(request, timeout=30)
                self.reads.setdefault(kind, []).append(1000 * (time.perf_counter() - began))
            except Exception as error:
                self.failures.append(f"{kind}: {error}"[:200])
            await asyncio.sleep(READ_PAUSE)

    async def session(self, name: str) -> v1.Session:
        """A session as it is now."""
        session: v1.Session = await self.stub(name).GetSession(pb.GetSessionRequest(name=name), timeout=120)
        return session

    async def active(self) -> dict[int, int]:
        """Number of sessions in each state that is not final."""
        counts = {}
        for state in (v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING):
            count, token = 0, ""
            while True:
                request = pb.ListSessionsRequest(page_size=PAGE, page_token=token, state=state)
                page = await self.stubs[0].ListSessions(request, timeout=120)
                count += len(page.sessions)
                token = page.next_page_token
                if not token:
                    break
            counts[state] = count
        return counts


class Stack:
    """The server, its neighbours, and clients.

    :param url: URL of the database; empty for SQLite.
    :param running: sessions that run at once; 0: any.
    """

    def __init__(self, given: argparse.Namespace, url: str, folder: Path, *, running: int = 0) -> None:
        self._folder = folder
        self._socket = folder / "trainers.sock"
        self._arguments = ["--database", url, "--max-running", str(running), "--data-dir", str(folder / "data")]
        self._channels: list[Any] = []
        log = folder / "peers.log"
        self.peers = Process("load_peers.py", "--think", str(given.think), "--socket", str(self._socket), log=log)
        self._agent = self.peers.read()["agent"]
        self.load = Load(given, [])

    async def start(self) -> None:
        """Start the server, and connect the clients to it."""
        arguments = [*self._arguments, "--agent", self._agent, "--socket", str(self._socket)]
        self.server = Process("load_server.py", *arguments, log=self._folder / "server.log")
        address = (await asyncio.to_thread(self.server.read))["address"]
        self._channels = [connect(address) for _ in range(CHANNELS)]
        self.load.stubs = [session_service_pb2_grpc.SessionServiceStub(channel) for channel in self._channels]

    async def stop(self) -> None:
        """Stop the server."""
        for channel in self._channels:
            await channel.close()
        await asyncio.to_thread(self.server.close)


@contextlib.asynccontextmanager
async def stack(given: argparse.Namespace, url: str, *, running: int = 0) -> AsyncIterator[Stack]:
    """The processes, and clients of the server."""
    with tempfile.TemporaryDirectory() as name:
        opened = Stack(given, url, Path(name), running=running)
        try:
            await opened.start()
            yield opened
            await opened.stop()
        finally:
            opened.server.close()
            opened.peers.close()


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """URL of a database; empty for SQLite."""
    if kind == "sqlite":
        yield ""
        return
    sys.path.insert(0, str(ROOT))
    from tests.servers.postgres import postgres

    with postgres() as server:
        yield server.database()


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of the values is."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else 0.0
