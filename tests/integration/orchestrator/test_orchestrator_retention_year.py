"""A year of use with retention: tables, files, folders and DBOS's records stay as large as after two months."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from dbos import DBOS, SetWorkflowID
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import DirectoryStore
from dressage_orchestrator.database import executors, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.launch.local import LocalLauncher
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.lifecycle.wakeups import Wakeups
from dressage_orchestrator.lifecycle.workflows import Workflows
from dressage_orchestrator.retention import Policy, Retention

from tests.unit.orchestrator.simulated_use import Hand, folder_sizes, put, table_sizes, use_benchmark, use_session

DAYS = 365
SESSION_EVERY, COLLECTED_EVERY, BENCHMARK_EVERY = 2, 6, 12
"""Days; a server collects every hour."""
TWO_MONTHS, A_YEAR = 60, 360
"""Days at the same place of all three cycles."""
FACTOR = 1.1
"""How much larger anything may be after the year than after two months."""


@DBOS.workflow(name="simulated")
def simulated(steps: int) -> int:
    """A workflow with so many recorded steps."""
    return sum(DBOS.run_step({"name": f"step {step}"}, lambda step=step: step) for step in range(steps))


class Year:
    """A server's data folder, in which days pass."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self.folder = folder
        self.clock = Hand(datetime.now(tz=UTC) - timedelta(days=DAYS + 35))
        self.start = self.clock.now
        self.database = Database(sqlite_url(folder / "dressage.db"), clock=self.clock)
        self.store = DirectoryStore(folder / "artifacts")
        engine: Any = SimpleNamespace(
            database=self.database,
            settings=SimpleNamespace(hold=False, recover=True),
            stopping=threading.Event(),
            wakeups=Wakeups(),
        )
        self.workflow_url = sqlite_url(folder / "workflows.db")
        self.workflows = Workflows(engine, Methods({}), system_database_url=self.workflow_url)
        self.workflows.launch()
        launcher = LocalLauncher(log_folder=folder / "logs", on_result=None, max_parallel=1)  # type: ignore[arg-type]
        self.retention = Retention(
            policy, database=self.database, store=self.store, workflows=self.workflows, launcher=lambda: launcher
        )

    def close(self) -> None:
        self.workflows.close(seconds=5)
        self.database.close()

    def pass_day(self, day: int) -> None:
        """Use the server for a day, and collect garbage where it is due."""
        self.clock.now = self.start + timedelta(days=day)
        if day % SESSION_EVERY == 0:
            self._session(day)
        if day % BENCHMARK_EVERY == 0:
            self._benchmark(day)
        if day % COLLECTED_EVERY == 0:
            for _ in self.retention.collect(validate_only=False):
                pass

    def _session(self, day: int) -> None:
        """A session that ends, and the deletion of an earlier one by a person."""
        with self.database.begin() as tx:
            use_session(tx, self.store, self.folder / "logs", f"s-{day}", state=v1.SESSION_STATE_SUCCEEDED)
            if day >= 8 and day % (2 * SESSION_EVERY) == 0:
                sessions.delete(tx, f"s-{day - 8}", grace_seconds=10 * 86_400)
        with SetWorkflowID(f"s-{day}:0"):
            DBOS.start_workflow(simulated, 3).get_result()

    def _benchmark(self, day: int) -> None:
        """A benchmark that ended, a restart of the server, and what a crash left."""
        with self.database.begin() as tx:
            cases = [f"s-{day - part}" for part in (0, 2, 4) if day >= part]
            use_benchmark(tx, f"b-{day}", cases, ended=True)
            executors.register(tx, "server")
            for row in executors.list_all(tx):
                if row.expired:
                    executors.delete_expired(tx, row.id)
        put(self.store, f"sessions/lost-{day}/iterations/1/reward.py", self.clock.now)
        temporary = self.store.root / "sessions" / f"s-{day}" / f".tmp-{day}"
        temporary.write_bytes(b"half")
        os.utime(temporary, (self.clock.now.timestamp(), self.clock.now.timestamp()))

    def sizes(self) -> dict[str, int]:
        """Rows of each table, and files, folders and bytes of the data folder without the databases' files."""
        engine = sa.create_engine(self.workflow_url)
        with engine.connect() as connection:
            names = sa.inspect(connection).get_table_names()
            recorded = {
                f"dbos.{name}": connection.execute(sa.text(f'SELECT count(*) FROM "{name}"')).scalar_one()
                for name in names
            }
        engine.dispose()
        folders = {
            f"{name}.{what}": count
            for name in ("artifacts", "logs")
            for what, count in folder_sizes(self.folder / name).items()
        }
        with self.database.read() as tx:
            used = "SELECT (SELECT * FROM pragma_page_count) - (SELECT * FROM pragma_freelist_count)"
            pages = {"database pages": tx.execute(sa.text(used)).scalar_one()}
        return {**table_sizes(self.database), **recorded, **folders, **pages}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def sizes_over(folder: Path, policy: Policy, *days: int) -> list[dict[str, int]]:
    year, sizes = Year(folder, policy), []
    try:
        for day in range(days[-1] + 1):
            year.pass_day(day)
            if day in days:
                sizes.append(year.sizes())
        return sizes
    finally:
        year.close()


def grown(first: dict[str, int], last: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (first[name], last[name]) for name in first if last[name] > FACTOR * first[name]}


def test_a_year_is_as_large_as_two_months(folder: Path) -> None:
    policy = Policy(deleted=10, ended=20, history=5, events=10, requests=15, unreferenced=20)
    first, last = sizes_over(folder, policy, TWO_MONTHS, A_YEAR)
    assert grown(first, last) == {}
    assert last["sessions"] <= 20 and last["dbos.workflow_status"] <= 4 and last["artifacts.files"] < 80


def test_kept_sessions_grow_only_by_their_results(folder: Path) -> None:
    """Without deletions the tables of results grow with the sessions; those of histories do not."""
    policy = Policy(deleted=10_000, ended=None, history=5, events=10, requests=15, unreferenced=20)
    first, last = sizes_over(folder, policy, TWO_MONTHS, 2 * TWO_MONTHS)
    results = {
        "sessions",
        "iterations",
        "runs",
        "assignments",
        "members",
        "candidates",
        "labels",
        "notes",
        "directions",
    }
    results |= {"benchmarks", "database pages", "artifacts.files", "artifacts.folders", "artifacts.bytes"}
    # One event, and the keys that all epochs share, stay for each session.
    assert set(grown(first, last)) - results == {"events", "idempotency_keys"}
    assert last["events"] - last["sessions"] == first["events"] - first["sessions"]
    assert last["idempotency_keys"] - last["sessions"] == first["idempotency_keys"] - first["sessions"]
