"""What launchers that repeat attempts by themselves mean for a run's row: attempts, conditions, failures, tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument, Unauthenticated
from dressage_orchestrator.database import assignments, events, runs
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.reports import Fence
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.factory import configured_pools
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind, Notice
from dressage_orchestrator.launch.tokens import RunTokens
from dressage_orchestrator.settings import Settings
from pydantic import ValidationError

from tests.unit.orchestrator.leases import (
    Recorder,
    add_session,
    add_training,
    make_controller,
    name_of,
    say_hello,
    state_of,
    take_up,
)

RUN = "sessions/s/runs/r1"
TRAIN = name_of("s", "train")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(sqlite_url(tmp_path / "d.db"))
    with database.begin() as tx:
        add_session(tx, "s")
        add_training(tx, "s", "train")
    yield database
    database.close()


@pytest.fixture
def launcher() -> Recorder:
    return Recorder(attempts_per_launch=1000)


@pytest.fixture
def controller(database: Database, launcher: Recorder) -> RunController:
    return make_controller(database, launcher)


def row(database: Database) -> runs.RunRow:
    with database.begin() as tx:
        return runs.get(tx, RUN)


def hello(database: Database, attempt: int) -> Fence:
    return say_hello(database, RUN, attempt)


def notice(kind: str, attempt: int = 1, *, counts: bool = False, attempt_ended: bool = True) -> Notice:
    return Notice(RUN, attempt, kind, "seen", "do this", counts=counts, attempt_ended=attempt_ended)


async def test_the_rows_attempt_follows_the_pods(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    await controller.ensure("s")
    launch = launcher.launches[0]
    assert (launch.attempt, launch.pool, launch.address) == (1, "cpu", "orchestrator:1")
    assert await controller.starting(RUN, 1) and row(database).run.state == v1.RUN_STATE_STARTING
    assert not await controller.hello_received(RUN, 1)
    assert hello(database, 1) is Fence.OPEN and await controller.hello_received(RUN, 1)
    await controller.handle_notice(notice("EVICTED"))
    assert row(database).run.state == v1.RUN_STATE_QUEUED
    assert hello(database, 3) is Fence.OPEN  # one more pod came and went unheard
    after = row(database)
    assert (after.run.attempt, after.run.state, state_of(database, TRAIN)) == (3, v1.RUN_STATE_RUNNING, ("pending", 0))
    assert hello(database, 1) is Fence.SUPERSEDED
    await controller.reconcile()  # the attempt is still the Job's: nothing is stopped
    await controller.ensure("s")
    assert not launcher.stopped and len(launcher.launches) == 1


async def test_each_failed_pod_counts_once_for_its_assignment(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    await controller.ensure("s")
    hello(database, 1)
    take_up(database, RUN)
    notified: list[str] = []
    controller.notify = notified.append
    for _ in range(2):  # a restarted server notices the same again
        await controller.handle_notice(notice("OOM_KILLED", counts=True))
    assert state_of(database, TRAIN) == ("pending", 1) and row(database).run.state == v1.RUN_STATE_QUEUED
    # The next pod connects, takes the assignment again and fails: the maximum number of failures is exceeded.
    assert hello(database, 2) is Fence.OPEN and take_up(database, RUN) == TRAIN
    await controller.handle_notice(notice("OOM_KILLED", attempt=2, counts=True))
    assert state_of(database, TRAIN) == ("failed", 1)
    assert row(database).run.state == v1.RUN_STATE_FAILED and row(database).run.failure.reason == "OOM_KILLED"
    assert launcher.stopped == [RUN] and notified == ["s", "s", "s"]


async def test_pods_that_fail_without_hello_count_for_the_oldest(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    with database.begin() as tx:
        other = add_training(tx, "s", "other")
    await controller.ensure("s")
    for attempt in (1, 2):
        await controller.handle_notice(notice("TRAINER_FAILED", attempt=attempt, counts=True))
    assert state_of(database, TRAIN) == ("failed", 1) and state_of(database, other) == ("pending", 0)
    # The Job has replaced its pod as often as it may: another one follows, with attempts of its own.
    launcher.gone.add((RUN, 1))
    await controller.handle_result(
        AttemptResult(RUN, 1, ExitKind.FAILED, "m", last_attempt=2, counted=True, reason="TRAINER_FAILED")
    )
    assert launcher.started == [("r1", 1), ("r1", 3)] and state_of(database, other) == ("pending", 0)
    assert hello(database, 3) is Fence.OPEN and take_up(database, RUN) == other


async def test_an_idle_pod_that_is_evicted_is_not_replaced(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    await controller.ensure("s")
    hello(database, 1)
    with database.begin() as tx:
        assignments.end(tx, TRAIN, v1.ASSIGNMENT_STATE_SUCCEEDED)
    await controller.handle_notice(notice("EVICTED"))
    assert row(database).run.state == v1.RUN_STATE_SUCCEEDED and launcher.stopped == [RUN]


async def test_conditions_are_stored_once_with_a_warning(database: Database, controller: RunController) -> None:
    await controller.ensure("s")
    for _ in range(2):
        await controller.handle_notice(notice("NODE_NOT_READY", attempt_ended=False))
    await controller.handle_notice(notice("NODE_NOT_READY", attempt=2, attempt_ended=False))
    conditions = row(database).run.conditions
    assert [condition.message for condition in conditions] == ["attempt 1: seen; do this", "attempt 2: seen; do this"]
    with database.begin() as tx:
        recorded = [event.warning.reason for event in events.after(tx, "s", 0) if event.HasField("warning")]
    assert recorded == ["NODE_NOT_READY"] * 2
    for attempt in range(3, 80):
        await controller.handle_notice(notice("EVICTED", attempt=attempt))
    assert len(row(database).run.conditions) == 50


@pytest.mark.parametrize(
    ("end", "assignment", "launches"),
    [
        (
            AttemptResult(RUN, 1, ExitKind.FAILED, "m", final=True, reason="JOB_INVALID", last_attempt=9),
            ("failed", 0),
            1,
        ),
        (
            AttemptResult(RUN, 1, ExitKind.FAILED, "m", last_attempt=9, counted=True, reason="OOM_KILLED"),
            ("pending", 0),
            2,
        ),
        (
            AttemptResult(RUN, 1, ExitKind.NO_HELLO, "m", last_attempt=2, reason="TRAINER_UNRESPONSIVE"),
            ("pending", 1),
            2,
        ),
        (AttemptResult(RUN, 1, ExitKind.FAILED, "m", last_attempt=2, reason="JOB_DELETED"), ("pending", 1), 2),
        (AttemptResult(RUN, 1, ExitKind.CHECKPOINTED, "m", last_attempt=2), ("pending", 0), 2),
        (AttemptResult(RUN, 1, ExitKind.FAILED, "m", last_attempt=1), ("running", 0), 1),  # of an attempt long past
    ],
)
async def test_ends(
    database: Database,
    controller: RunController,
    launcher: Recorder,
    end: AttemptResult,
    assignment: tuple[str, int],
    launches: int,
) -> None:
    await controller.ensure("s")
    hello(database, 2)
    take_up(database, RUN)
    if end.last_attempt > 1:
        launcher.gone.add((RUN, 1))
    await controller.handle_result(end)
    assert (state_of(database, TRAIN), len(launcher.launches)) == (assignment, launches)
    if launches == 2:
        assert launcher.launches[1].attempt == 3


def test_tokens_of_a_job_are_good_for_its_attempts_only() -> None:
    tokens = RunTokens(b"k" * 16)
    token = tokens.make(RUN, 4, expiry=1000, last=6)
    for attempt in (4, 5, 6):
        tokens.check(token, RUN, attempt, now=999)
    for run, attempt, now in ((RUN, 3, 0), (RUN, 7, 0), (RUN + "x", 4, 0), (RUN, 4, 1001)):
        with pytest.raises(Unauthenticated):
            tokens.check(token, run, attempt, now=now)
    for forged in (token.replace("4-6", "4-9"), token.replace("4-6", "1-6"), token.replace(".4-6", "")):
        with pytest.raises(Unauthenticated):
            tokens.check(forged, RUN, 5, now=0)


def test_settings_are_checked_at_start(tmp_path: Path) -> None:
    path = tmp_path / "pools.json"
    path.write_text('{"pools": {"cpu": {"image": "i"}}}')
    assert configured_pools(Settings()) is None
    good = Settings(launcher="kubernetes", kubernetes_pools_file=path, default_pool="cpu")
    assert set(configured_pools(good) or ()) == {"cpu"}
    for bad in ({}, {"kubernetes_pools_file": path, "default_pool": "gpu"}):
        with pytest.raises(InvalidArgument):
            configured_pools(Settings(launcher="kubernetes", **bad))  # type: ignore[arg-type]
    assert Settings(run_deadline_seconds=60).run_deadline_seconds == 60
    for seconds in (-1, 5, float("nan")):
        with pytest.raises(ValidationError, match="at least 60"):
            Settings(run_deadline_seconds=seconds)
