"""A database with one session, and a controller whose launcher starts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.launch.controller import RunController

from tests.unit.orchestrator.leases import (
    Recorder,
    add_session,
    make_controller,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(sqlite_url(tmp_path / "d.db"))
    with database.begin() as tx:
        add_session(tx, "s")
    yield database
    database.close()


@pytest.fixture
def launcher() -> Recorder:
    return Recorder()


@pytest.fixture
def controller(database: Database, launcher: Recorder) -> RunController:
    return make_controller(database, launcher)
