"""What tests of runs and assignments share: a launcher that starts nothing, and rows to begin with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.api.runs import LeaseState, RunServicer
from dressage_orchestrator.database import assignments, reports, runs, sessions
from dressage_orchestrator.database.engine import Database, Transaction
from dressage_orchestrator.database.reports import Fence, Limits
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.protocol import Launch
from dressage_orchestrator.launch.tokens import RunTokens

LIMITS = Limits(progress_seconds=0, max_failures=1)


class Recorder:
    """A launcher that only notes what it is asked.

    :param attempts_per_launch: more than 1 where it replaces trainers by itself, as Kubernetes does.
    """

    pools = frozenset({"cpu"})
    scheduling_seconds = 0.0

    def __init__(self, *, attempts_per_launch: int = 1) -> None:
        self.attempts_per_launch = attempts_per_launch
        self.launches: list[Launch] = []
        self.stopped: list[str] = []
        self.gone: set[tuple[str, int]] = set()
        self.starting: dict[str, Callable[[], Awaitable[bool]]] = {}

    def cores(self, pool: str) -> int:
        return 2

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        self.launches.append(launch)
        self.starting[launch.run] = starting

    def has_trainer(self, run: str, attempt: int) -> bool:
        return any(
            entry.run == run
            and 0 <= attempt - entry.attempt < self.attempts_per_launch
            and (run, entry.attempt) not in self.gone
            for entry in self.launches
        )

    def active_runs(self) -> frozenset[str]:
        return frozenset(entry.run for entry in self.launches)

    def trainer_connected(self, run: str, attempt: int) -> None: ...

    async def start(self) -> int:
        return 0

    async def stop(self, run: str, attempt: int | None = None) -> None:
        self.stopped.append(run)
        self.gone |= {(entry.run, entry.attempt) for entry in self.launches if entry.run == run}

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        return None

    def delete_logs(self, run: str) -> None: ...

    async def close(self) -> None: ...

    @property
    def started(self) -> list[tuple[str, int]]:
        return [(entry.run.rpartition("/")[2], entry.attempt) for entry in self.launches]


def make_controller(database: Database, launcher: Recorder, **options: float) -> RunController:
    settings = {"token_seconds": 60.0, "idle_seconds": 60.0, **options}
    controller = RunController(database, RunTokens(b"k" * 16), max_failures=1, **settings)
    controller.launcher = launcher
    controller.address = "orchestrator:1"
    return controller


def name_of(session: str, assignment: str) -> str:
    return f"sessions/{session}/iterations/1/assignments/{assignment}"


def add_session(tx: Transaction, session: str, *, pool: str = "cpu") -> None:
    sessions.create(tx, session, v1.SessionSpec(intent="run", pool=pool))


def add_training(tx: Transaction, session: str, assignment: str, members: tuple[str, ...] = ("a", "b")) -> str:
    """An assignment that trains members for a hundred steps each; its name."""
    name = name_of(session, assignment)
    specs = [work.MemberSpec(id=member) for member in members]
    task = work.Assignment(name=name, train=work.TrainAssignment(environment="CartPole-v1", members=specs))
    rows = [v1.Member(name=f"{name}/members/{m}", config="c", target_env_steps=100) for m in members]
    assignments.create(tx, task, rows)
    return name


def say_hello(database: Database, run: str, attempt: int) -> Fence:
    with database.begin() as tx:
        return reports.hello(tx, run, attempt)[0]


def take_up(database: Database, run: str) -> str:
    """What serving a run's first open assignment writes; its name."""
    with database.begin() as tx:
        first = assignments.open_of(tx, runs.get(tx, run).session)[0]
        assignments.begin(tx, first.name, run)
        runs.set_assignment(tx, run, first.name)
        return first.name


def failed(reason: str, cause: work.AssignmentFailure.Cause.ValueType) -> work.AssignmentResult:
    failure = v1.Failure(reason=reason, message=f"{reason} in the trainer's words")
    return work.AssignmentResult(failure=work.AssignmentFailure(failure=failure, cause=cause))


def state_of(database: Database, name: str) -> tuple[str, int]:
    """An assignment's state in lower case and its failures."""
    with database.begin() as tx:
        stored = assignments.get(tx, name).assignment
    return v1.AssignmentState.Name(stored.state).removeprefix("ASSIGNMENT_STATE_").lower(), stored.failures


def run_state(database: Database, run: str) -> str:
    with database.begin() as tx:
        return v1.RunState.Name(runs.get(tx, run).run.state).removeprefix("RUN_STATE_").lower()


R1, R2 = "sessions/s/runs/r1", "sessions/s/runs/r2"
FIRST, SECOND = name_of("s", "first"), name_of("s", "second")


def servicer_of(database: Database, controller: RunController) -> RunServicer:
    unused: Any = None
    return RunServicer(
        database=database, notifier=unused, tokens=unused, controller=controller, store=unused, progress_seconds=0
    )


def next_work(
    database: Database, controller: RunController, attempt: int = 1, *, run: str = R1, served: tuple[int, ...] = ()
) -> LeaseState:
    return servicer_of(database, controller).next_work(work.Hello(run=run, attempt=attempt), served)


def add(database: Database, assignment: str, session: str = "s") -> str:
    with database.begin() as tx:
        return add_training(tx, session, assignment)


def report(database: Database, sequence: int, assignment: int, *, attempt: int = 1, **body: Any) -> Fence:
    with database.begin() as tx:
        message = work.Report(sequence=sequence, assignment=assignment, item=body.pop("item", ""), **body)
        return reports.record(tx, R1, attempt, message, LIMITS)


def done(database: Database, sequence: int, assignment: int) -> None:
    result = work.AssignmentResult(train=work.TrainResult())
    assert report(database, sequence, assignment, item="result", result=result) is Fence.OPEN


async def begun(database: Database, controller: RunController) -> None:
    """The session's first run with a connected trainer."""
    await controller.ensure("s")
    assert await controller.starting(R1, 1)
    assert say_hello(database, R1, 1) is Fence.OPEN


def gone(launcher: Recorder, attempt: int = 1, run: str = R1) -> None:
    launcher.gone.add((run, attempt))
