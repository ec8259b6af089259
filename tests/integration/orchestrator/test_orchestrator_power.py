"""What is on the disk when: rows before the record of their step, and every promise before it is given."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections import defaultdict
from typing import Any

import pytest
import sqlalchemy as sa
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator.database.engine import Database

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack


class Trace:
    """Commits and syncs of each thread, in their order."""

    def __init__(self) -> None:
        self.threads: dict[int, list[str]] = defaultdict(list)

    def note(self, what: str) -> None:
        self.threads[threading.get_ident()].append(what)

    def connection(self, database: str) -> type[sqlite3.Connection]:
        trace = self

        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, *arguments: Any) -> Any:
                if match := re.match(r"\s*(?:INSERT|UPDATE|DELETE)\b.*?(\w*outputs?\b|\w+)", statement, re.I | re.S):
                    self.connection.wrote |= {match.group(1)}  # type: ignore[attr-defined]
                if "operation_outputs" in statement and statement.lstrip().upper().startswith("INSERT"):
                    self.connection.step = True  # type: ignore[attr-defined]
                return super().execute(statement, *arguments)

        class Connection(sqlite3.Connection):
            step = False

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                self.wrote: set[str] = set()

            def cursor(self, *_: Any, **__: Any) -> Any:
                return super().cursor(Cursor)

            def commit(self) -> None:
                level = self.execute("PRAGMA synchronous").fetchone()[0]
                super().commit()
                if self.wrote and database == "dressage.db":
                    trace.note("synced" if level == 2 else "unsynced")
                elif self.step:
                    assert level == 2
                    trace.note("step")
                self.wrote, self.step = set(), False

        return Connection


async def test_rows_are_on_the_disk_before_their_step_is(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace()
    sync = Database.sync

    def noted(database: Database) -> None:
        sync(database)
        trace.note("synced")

    def connect(dialect: Any, record: Any, arguments: Any, parameters: Any) -> None:
        if dialect.name == "sqlite":
            parameters["factory"] = trace.connection(str(arguments[0]).rpartition("/")[2])

    monkeypatch.setattr(Database, "sync", noted)
    sa.event.listen(sa.engine.Engine, "do_connect", connect)
    try:
        await stack.start()
        spec = reward_session(
            intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000,
            reward_source="# good # curve=0.2\n", judge_source=JUDGE,
        )  # fmt: skip
        created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="power"))
        await watch(stack.sessions, created.name)
    finally:
        sa.event.remove(sa.engine.Engine, "do_connect", connect)
    noted_by = [notes for notes in trace.threads.values() if "step" in notes]
    assert sum(notes.count("step") for notes in noted_by) > 10
    assert any("unsynced" in notes for notes in noted_by)
    for notes in noted_by:
        last = "synced"
        for note in notes:
            assert note != "step" or last == "synced", notes
            last = note if note != "step" else last
