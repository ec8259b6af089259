"""What launchers that repeat attempts by themselves mean for a run's row: attempts, conditions, failures, tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument, Unauthenticated
from dressage_orchestrator.database import events, reports, runs, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.reports import Fence
from dressage_orchestrator.launch.choice import pools_of
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.protocol import Ended, ExitKind, Launch, Notice
from dressage_orchestrator.launch.tokens import RunTokens
from dressage_orchestrator.settings import Settings

RUN = "sessions/s/iterations/1/runs/train"


class Recorder:
    """A launcher that only notes what it is asked."""

    pools = frozenset({"cpu"})
    attempts_per_launch = 1000

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.stopped: list[str] = []
        self.live = True

    def cores(self, pool: str) -> int:
        return 2

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        self.launches.append(launch)

    def knows(self, run: str, attempt: int) -> bool:
        return self.live and any(entry.run == run and entry.attempt <= attempt for entry in self.launches)

    def known(self) -> frozenset[str]:
        return frozenset(entry.run for entry in self.launches)

    def said_hello(self, run: str, attempt: int) -> None: ...

    async def start(self) -> int:
        return 0

    async def stop(self, run: str, attempt: int | None = None) -> None:
        self.stopped.append(run)

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        return None

    async def close(self) -> None: ...


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(sqlite_url(tmp_path / "d.db"))
    with made.begin() as tx:
        sessions.create(tx, "s", v1.SessionSpec(intent="run"))
        members = [v1.Member(name=f"{RUN}/members/a", config="c", target_env_steps=100)]
        runs.create(tx, v1.Run(name=RUN, pool="cpu", members=members), [work.Assignment(id=1)])
    yield made
    made.close()


@pytest.fixture
def launcher() -> Recorder:
    return Recorder()


@pytest.fixture
def controller(database: Database, launcher: Recorder) -> RunController:
    made = RunController(database, RunTokens(b"k" * 16), token_seconds=60, max_failures=1)
    made.launcher = launcher
    made.address = "orchestrator:1"
    return made


def row(database: Database) -> runs.RunRow:
    with database.begin() as tx:
        return runs.get(tx, RUN)


def hello(database: Database, attempt: int) -> Fence:
    with database.begin() as tx:
        return reports.hello(tx, RUN, attempt)[0]


def notice(kind: str, attempt: int = 1, *, counts: bool = False, over: bool = True) -> Notice:
    return Notice(RUN, attempt, kind, "seen", "do this", counts=counts, over=over)


async def test_the_rows_attempt_follows_the_pods(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    await controller.ensure(RUN)
    launch = launcher.launches[0]
    assert (launch.attempt, launch.pool, launch.address) == (1, "cpu", "orchestrator:1")
    assert await controller.starting(RUN, 1) and row(database).run.state == v1.RUN_STATE_STARTING
    assert not await controller.heard(RUN, 1)
    assert hello(database, 1) is Fence.OPEN and await controller.heard(RUN, 1)
    await controller.noticed(notice("EVICTED"))
    assert row(database).run.state == v1.RUN_STATE_QUEUED
    assert hello(database, 3) is Fence.OPEN  # one more pod came and went unheard
    after = row(database)
    assert (after.run.attempt, after.run.state, after.failures) == (3, v1.RUN_STATE_RUNNING, 0)
    assert hello(database, 1) is Fence.SUPERSEDED
    await controller.look()  # the attempt is still the Job's: nothing is stopped
    await controller.ensure(RUN)
    assert not launcher.stopped and len(launcher.launches) == 1


async def test_a_reported_failure_is_not_repeated_by_the_launcher(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    await controller.ensure(RUN)
    hello(database, 1)
    with database.begin() as tx:
        failed = v1.Failure(reason="ASSIGNMENT_UNKNOWN", message="cannot")
        reports.record(tx, RUN, 1, work.Report(sequence=1, failed=failed), progress_seconds=0)
    assert hello(database, 2) is Fence.SUPERSEDED  # the next pod comes before anybody noticed
    told: list[str] = []
    controller.notify = told.append
    await controller.noticed(notice("TRAINER_FAILED", counts=True))
    assert row(database).run.state == v1.RUN_STATE_FAILED
    assert row(database).run.failure.reason == "ASSIGNMENT_UNKNOWN"
    assert launcher.stopped == [RUN] and told == ["s"]


async def test_conditions_are_written_once_and_told(database: Database, controller: RunController) -> None:
    await controller.ensure(RUN)
    for _ in range(2):
        await controller.noticed(notice("OOM_KILLED", counts=True))
    await controller.noticed(notice("OOM_KILLED", attempt=2, counts=True))
    conditions = row(database).run.conditions
    assert [condition.message for condition in conditions] == ["attempt 1: seen; do this", "attempt 2: seen; do this"]
    with database.begin() as tx:
        told = [event.warning.reason for event in events.after(tx, "s", 0) if event.HasField("warning")]
    assert told == ["OOM_KILLED"] * 2
    for attempt in range(3, 80):
        await controller.noticed(notice("EVICTED", attempt=attempt))
    assert len(row(database).run.conditions) == 50


@pytest.mark.parametrize(
    ("word", "state", "launches", "reason"),
    [
        (
            Ended(RUN, 1, ExitKind.FAILED, "m", last_attempt=9, final=True, reason="OOM_KILLED", remedy="r"),
            5,
            1,
            "OOM_KILLED",
        ),
        (Ended(RUN, 1, ExitKind.CODE_FAULT, "m", last_attempt=2, final=True), 5, 1, "GENERATED_CODE_FAILED"),
        (Ended(RUN, 1, ExitKind.NO_HELLO, "m", last_attempt=2, reason="TRAINER_SILENT", remedy="r"), 1, 2, ""),
        (Ended(RUN, 1, ExitKind.FAILED, "m", last_attempt=2, reason="JOB_DELETED", remedy="r"), 1, 2, ""),
        (Ended(RUN, 1, ExitKind.FAILED, "m", last_attempt=1, final=True), 3, 1, ""),  # of an attempt long past
    ],
)
async def test_ends(
    database: Database,
    controller: RunController,
    launcher: Recorder,
    word: Ended,
    state: int,
    launches: int,
    reason: str,
) -> None:
    await controller.ensure(RUN)
    hello(database, 2)
    launcher.live = word.final
    await controller.ended(word)
    after = row(database)
    assert (after.run.state, len(launcher.launches), after.run.failure.reason) == (state, launches, reason)
    if launches == 2:
        assert launcher.launches[1].attempt == 3 and after.failures == 1


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
    assert pools_of(Settings()) is None
    good = Settings(launcher="kubernetes", kubernetes_pools_file=path, default_pool="cpu")
    assert set(pools_of(good) or ()) == {"cpu"}
    for bad in ({}, {"kubernetes_pools_file": path, "default_pool": "gpu"}):
        with pytest.raises(InvalidArgument):
            pools_of(Settings(launcher="kubernetes", **bad))  # type: ignore[arg-type]
