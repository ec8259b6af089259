"""Databases of tests that inject faults."""

from __future__ import annotations

from pathlib import Path

from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import Database, sqlite_url


def opened(folder: Path) -> Database:
    return Database(sqlite_url(folder / "d.db"), patience=0.1)


def create(database: Database, session: str, *, intent: str = "run") -> None:
    with database.begin() as tx:
        sessions.create(tx, session, v1.SessionSpec(intent=intent))


def count(database: Database) -> int:
    with database.read() as tx:
        return sum(sessions.counts(tx).values())
