"""Errors of SQLite that are injected into a server of this process, and clients that repeat what it refuses meanwhile."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator import wiring
from dressage_orchestrator.lifecycle import context as context_module

from tests.integration.orchestrator.stack import Stack

_TABLE = re.compile(
    r"^\s*(INSERT (?:OR \w+ )?INTO|UPDATE|DELETE FROM|SELECT\b.*?\bFROM)\s+\"?(?:main\.)?\"?(\w+)", re.I | re.S
)


class Faults:
    """Raises an error of SQLite at the n-th execution of each kind of statement, and before the n-th commit after it.

    :param code: result code of SQLite.
    :param occurrence: n; with ``every``, each n-th statement of any kind fails.
    """

    def __init__(self, code: int, occurrence: int, *, every: bool = False) -> None:
        self.code, self.occurrence, self.every = code, occurrence, every
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.raised: list[tuple[str, str, str]] = []
        self.active = False
        self._lock = threading.Lock()

    def at(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            if not self.active:
                return
            counted = ("", "", "") if self.every else key
            self.counts[counted] += 1
            count = self.counts[counted]
            if count % self.occurrence if self.every else count != self.occurrence:
                return
            self.raised.append(key)
        error = sqlite3.OperationalError(
            "database is locked" if self.code == sqlite3.SQLITE_BUSY else "an injected fault"
        )
        error.sqlite_errorcode = self.code
        raise error

    def connection(self, name: str) -> type[sqlite3.Connection]:
        faults = self

        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, *arguments: Any) -> Any:
                match = _TABLE.match(statement)
                if match:
                    key = (name, match.group(1).split()[0].upper(), match.group(2).lower())
                    faults.at(key)
                    if key[1] != "SELECT":
                        self.connection.wrote = key[2]  # type: ignore[attr-defined]
                return super().execute(statement, *arguments)

        class Connection(sqlite3.Connection):
            wrote = ""

            def cursor(self, *_: Any, **__: Any) -> Any:
                return super().cursor(Cursor)

            def commit(self) -> None:
                if self.wrote:
                    table, self.wrote = self.wrote, ""
                    try:
                        faults.at((name, "COMMIT", table))
                    except sqlite3.OperationalError:
                        self.rollback()  # as SQLite does with an error that ends the transaction
                        raise
                super().commit()

        return Connection

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Statements fail only within."""
        self.active = True
        try:
            yield
        finally:
            self.active = False

    def check(self) -> None:
        """Statements of all kinds failed, in both databases."""
        assert self.raised
        if not self.every:
            assert {name for name, _, _ in self.raised} == {"dressage.db", "workflows.db"}
            assert {kind for _, kind, _ in self.raised} >= {"INSERT", "UPDATE", "SELECT", "COMMIT"}
            assert len(self.raised) >= 30, len(self.raised)

    @staticmethod
    def children(path: Path) -> list[str]:
        """States of the child workflows, which judge checkpoints."""
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT status FROM workflow_status WHERE name = 'judge_checkpoints'")
            return [status for (status,) in rows]

    @contextmanager
    def injected(self) -> Iterator[None]:
        def connect(dialect: Any, record: Any, arguments: Any, parameters: Any) -> None:
            if dialect.name == "sqlite":
                parameters["factory"] = self.connection(str(arguments[0]).rpartition("/")[2])

        sa.event.listen(sa.engine.Engine, "do_connect", connect)
        try:
            yield
        finally:
            sa.event.remove(sa.engine.Engine, "do_connect", connect)


class Impatient:
    """The module `time` with short sleeps, for the pauses of DBOS."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.02))


def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses after an error."""
    monkeypatch.setattr(wiring, "_RECONCILE_SECONDS", 0.3)
    monkeypatch.setattr(context_module, "_LOST_SECONDS", 0.02)
    monkeypatch.setattr("dbos._sys_db.time", Impatient())


async def repeated(stack: Stack, requested: v1.SessionSpec) -> v1.Session:
    """Create a session as a client does that repeats a request which the database refused."""
    request = pb.CreateSessionRequest(spec=requested, session_id="faulty", request_id="one")
    while True:
        try:
            created: v1.Session = await stack.sessions.CreateSession(request)
            return created
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            await asyncio.sleep(0.05)


async def ended(stack: Stack, name: str) -> None:
    """Wait until a session has ended."""
    while True:
        try:
            session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
            if session.HasField("end_time") and session.state not in (
                v1.SESSION_STATE_PENDING,
                v1.SESSION_STATE_RUNNING,
            ):
                return
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        await asyncio.sleep(0.2)
