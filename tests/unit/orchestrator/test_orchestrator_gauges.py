"""Gauges say what the rows say; counters count what reports and judgments say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator import gauges
from dressage_orchestrator.api.pools import Capacity, Pools
from dressage_orchestrator.api.runs import count_failure
from dressage_orchestrator.database import assignments, runs, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.launch.kubernetes.pools import parse_pools
from prometheus_client import REGISTRY

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def read(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def add_session(database: Database, name: str, state: int, *, method: str = "reward", **spec: object) -> None:
    environment = {"environment": "environments/Hopper-v5", **spec}
    with database.begin() as tx:
        sessions.create(tx, name, v1.SessionSpec(intent="run", **environment), method=method)  # type: ignore[arg-type]
        sessions.change(tx, name, lambda s: setattr(s, "state", state))


def add_run(database: Database, session: str, state: int, *, speed: float = 0.0, pool: str = "observed") -> None:
    """A run in a state and, if it has a speed, an assignment that it works on."""
    with database.begin() as tx:
        name = runs.create(tx, session, pool=pool).run.name
        runs.change(tx, name, lambda run: setattr(run, "state", state))
        assignment = f"sessions/{session}/iterations/1/assignments/train"
        task = work.Assignment(name=assignment, train=work.TrainAssignment(environment="Hopper-v5"))
        assignments.create(tx, task)
        if speed:
            assignments.begin(tx, assignment, name)
            assignments.change(tx, assignment, lambda entry: setattr(entry, "steps_per_second", speed))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path, clock: Clock) -> Database:
    database = Database(sqlite_url(tmp_path / "d.db"))
    database.clock = clock
    return database


def test_sessions_by_state_and_method(database: Database) -> None:
    add_session(database, "a", v1.SESSION_STATE_RUNNING)
    add_session(database, "b", v1.SESSION_STATE_RUNNING, method="parameters")
    add_session(database, "c", v1.SESSION_STATE_FAILED)
    current = gauges.Gauges(database)
    current.update()
    assert read("dressage_sessions", state="running", method="reward") == 1
    assert read("dressage_sessions", state="running", method="parameters") == 1
    assert read("dressage_sessions", state="running", method="other") is None
    assert read("dressage_sessions", state="failed", method="reward") == 1
    assert read("dressage_sessions", state="succeeded", method="reward") == 0
    with database.begin() as tx:
        for name in ("b", "c"):
            sessions.change(tx, name, lambda s: s.delete_time.FromDatetime(NOW))
    current.update()
    assert read("dressage_sessions", state="failed", method="reward") == 0
    assert read("dressage_sessions", state="running", method="parameters") == 0  # its last session is deleted
    gauges.Gauges(database, ["reward", "other"]).update()
    assert read("dressage_sessions", state="running", method="other") == 0


def test_the_age_of_the_last_event_is_the_maximum(database: Database, clock: Clock) -> None:
    add_session(database, "old", v1.SESSION_STATE_RUNNING)
    add_session(database, "ended", v1.SESSION_STATE_SUCCEEDED)
    clock.now = NOW + timedelta(seconds=100)
    add_session(database, "new", v1.SESSION_STATE_RUNNING)
    clock.now = NOW + timedelta(seconds=130)
    current = gauges.Gauges(database)
    current.update()
    assert read("dressage_session_last_event_age_seconds") == pytest.approx(130)
    with database.begin() as tx:
        sessions.change(tx, "old", lambda s: setattr(s, "state", v1.SESSION_STATE_CANCELLED))
    current.update()
    assert read("dressage_session_last_event_age_seconds") == pytest.approx(30)


def test_runs_by_pool_and_what_has_ended_goes_to_zero(database: Database, clock: Clock) -> None:
    for name, state, speed in (
        ("a", v1.RUN_STATE_RUNNING, 1000.0),
        ("b", v1.RUN_STATE_RUNNING, 500.0),
        ("c", v1.RUN_STATE_QUEUED, 0.0),
    ):
        add_session(database, name, v1.SESSION_STATE_RUNNING)
        add_run(database, name, state, speed=speed)
    clock.now = NOW + timedelta(seconds=40)
    current = gauges.Gauges(database)
    current.update()
    assert read("dressage_runs", pool="observed", state="running") == 2
    assert read("dressage_runs", pool="observed", state="queued") == 1
    assert read("dressage_run_oldest_queued_seconds", pool="observed") == pytest.approx(40)
    speed = {"pool": "observed", "environment": "Hopper-v5"}
    assert read("dressage_training_steps_per_second", **speed) == pytest.approx(1500)
    with database.begin() as tx:
        for name in ("a", "b", "c"):
            runs.end(tx, f"sessions/{name}/runs/r1", v1.RUN_STATE_SUCCEEDED)
    current.update()
    assert read("dressage_runs", pool="observed", state="running") == 0
    assert read("dressage_run_oldest_queued_seconds", pool="observed") == 0
    assert read("dressage_training_steps_per_second", **speed) == 0


def test_failures_count_by_cause_and_ends_by_the_sandbox_as_such() -> None:
    def counts() -> dict[str, float]:
        kills = {r: read("dressage_sandbox_kills_total", reason=r) for r in ("memory", "sandbox", "timeout")}
        causes = {c: read("dressage_assignment_failures_total", cause=c) for c in ("generated_code", "infrastructure")}
        return {key: value or 0.0 for key, value in {**kills, **causes}.items()}

    before = counts()
    cause = work.AssignmentFailure.CAUSE_GENERATED_CODE
    for reason in ("LEARNER_OUT_OF_MEMORY", "SANDBOX_LIMIT", "REWARD_FAILED"):
        count_failure(work.AssignmentFailure(failure=v1.Failure(reason=reason), cause=cause))
    added = {key: value - before[key] for key, value in counts().items()}
    assert added == {"memory": 1, "sandbox": 1, "timeout": 0, "generated_code": 3, "infrastructure": 0}


def test_pools_are_listed_with_their_capacity_and_live_runs(database: Database, clock: Clock) -> None:
    for name, state, speed, pool in (
        ("a", v1.RUN_STATE_RUNNING, 1000.0, "big"),
        ("b", v1.RUN_STATE_QUEUED, 0.0, "big"),
        ("c", v1.RUN_STATE_SUCCEEDED, 0.0, "big"),
        ("d", v1.RUN_STATE_STARTING, 0.0, "gone"),
    ):
        clock.now += timedelta(seconds=1)
        add_session(database, name, v1.SESSION_STATE_RUNNING)
        add_run(database, name, state, speed=speed, pool=pool)
    resources = {"limits": {"cpu": "2500m", "memory": "3Gi"}}
    settings = parse_pools(
        {"pools": {"big": {"image": "trainer", "resources": resources}, "main": {"image": "trainer"}}}
    )
    with database.read() as tx:
        response = Pools("main", Capacity(1, max_runs=2), settings).read(tx)
    assert [(pool.name, pool.default, pool.max_runs) for pool in response.pools] == [
        ("main", True, 0),
        ("big", False, 0),
        ("gone", False, 2),
    ]
    main, big, gone = response.pools
    assert (big.cores, big.memory_bytes) == (3, 3 * 2**30)
    assert not main.runs and len(gone.runs) == 1
    assert [entry.run.name for entry in big.runs] == ["sessions/a/runs/r1", "sessions/b/runs/r1"]
    assert (big.runs[0].environment, big.runs[0].steps_per_second) == ("environments/Hopper-v5", 1000.0)
    assert (big.runs[1].environment, big.runs[1].steps_per_second) == ("", 0.0)
