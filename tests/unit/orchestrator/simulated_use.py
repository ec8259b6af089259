"""What a session leaves behind, written through the modules that write it, at times that a test chooses."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import benchmark_service_pb2 as benchmark_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.artifacts import DirectoryStore
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import (
    assignments,
    benchmarks,
    events,
    feedback,
    idempotency,
    runs,
    sessions,
)
from dressage_orchestrator.database.engine import Database, Transaction
from dressage_orchestrator.database.idempotency import RequestKey
from dressage_orchestrator.database.tables import CANDIDATES, REPORT_SEQUENCES, REPORTS

EVENTS = 8


class Hand:
    """A clock that a test moves."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def put(store: DirectoryStore, key: str, moment: datetime, size: int = 100) -> None:
    """Write an artifact as if it had been written at a time."""
    store.put(key, b"x" * size, synced=False)
    os.utime(store.root / key, (moment.timestamp(), moment.timestamp()))


def use_session(
    tx: Transaction,
    store: DirectoryStore,
    logs: Path,
    session: str,
    *,
    state: v1.SessionState.ValueType,
    notes: str = "",
) -> None:
    """A session with rows in every table, artifacts, a journal and a trainer's log.

    :param notes: text that its iteration contains.
    """
    request = pb.CreateSessionRequest(session_id=session, request_id=f"request-{session}")
    sessions.create(tx, session, v1.SessionSpec(intent="run", pool="cpu"))
    key = RequestKey("", "CreateSession", request.request_id)
    idempotency.record_request(tx, key, request, f"sessions/{session}")
    name = f"sessions/{session}/iterations/1/assignments/train"
    task = work.Assignment(name=name, train=work.TrainAssignment(environment="CartPole-v1"))
    assignments.create(tx, task, [v1.Member(name=f"{name}/members/m", config="c")])
    run = runs.create(tx, session, pool="cpu", executor="local").run.name
    tx.execute(sa.insert(CANDIDATES).values(assignment=name, id="c", data=b"c"))
    tx.execute(sa.insert(REPORTS).values(assignment=name, item="member/m", run=run, attempt=1, data=b"r" * 200))
    tx.execute(sa.insert(REPORT_SEQUENCES).values(run=run, attempt=1, sequence=7, kept=3))
    sessions.upsert_iteration(tx, session, 1, lambda iteration: setattr(iteration, "planned_change", notes))
    sessions.add_note(tx, session, "faster")
    feedback.add_direction(tx, session, feedback.PROPOSAL, "source")
    feedback.add_label(tx, feedback.Label(f"{name}/members/m/rollouts/1.npz", 0.5, ""))
    for number in range(EVENTS):
        events.append(tx, session, ev.Event(note_added=ev.NoteAdded(note=f"progress {number}")), iteration=1)
        idempotency.record(tx, session, f"0/effect/{number}")
    idempotency.record(tx, session, "all/candidates/1")
    for key in (f"{name}/members/m/policy/card.json", f"sessions/{session}/iterations/1/reward.py"):
        put(store, key, tx.now)
    put(store, f"sessions/{session}/llm/iterations/1/reward_author/0-0.json", tx.now)
    logs.mkdir(exist_ok=True)
    (logs / f"{run.replace('/', '_')}.log").write_text("a trainer's output")
    if state not in sessions.ENDED:
        return
    assignments.end(tx, name, v1.ASSIGNMENT_STATE_SUCCEEDED)
    runs.end(tx, run, v1.RUN_STATE_SUCCEEDED)

    def end(stored: v1.Session) -> None:
        stored.state = state
        stored.end_time.CopyFrom(timestamp(tx.now))

    sessions.change(tx, session, end)


def use_benchmark(tx: Transaction, number: str, cases: list[str], *, ended: bool) -> None:
    """A benchmark of these sessions."""
    message = benchmark_pb.Benchmark(name=f"benchmarks/{number}")
    for case in cases:
        message.cases.add(intent="run", session=f"sessions/{case}")
    benchmarks.create(tx, message)
    if ended:
        benchmarks.change(tx, message.name, lambda b: b.end_time.CopyFrom(timestamp(tx.now)))


def table_sizes(database: Database) -> dict[str, int]:
    """Number of rows of each table of a database."""
    with database.read() as tx:
        names = sa.inspect(tx.connection).get_table_names()
        return {name: tx.execute(sa.text(f'SELECT count(*) FROM "{name}"')).scalar_one() for name in names}


def folder_sizes(folder: Path) -> dict[str, int]:
    """Number of files and folders below a folder, and their size in bytes."""
    paths = list(folder.rglob("*"))
    files = [path for path in paths if path.is_file()]
    return {
        "files": len(files),
        "folders": len(paths) - len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }
