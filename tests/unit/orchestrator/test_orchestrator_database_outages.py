"""What servers do while the database is away: they wait and repeat, and fail no request, run or case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import benchmark_service_pb2 as bench_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.artifacts import DirectoryStore
from dressage.errors import FailedPrecondition
from dressage.serving.access import Quota
from dressage_orchestrator import gauges
from dressage_orchestrator.api import runs as runs_api
from dressage_orchestrator.benchmarks import Benchmarks
from dressage_orchestrator.database import benchmarks as rows
from dressage_orchestrator.database import queue, sessions, workflows
from dressage_orchestrator.database.engine import Database, DatabaseLost, Transaction
from dressage_orchestrator.database.reports import Fence
from dressage_orchestrator.launch import local
from dressage_orchestrator.launch.local import LocalLauncher
from dressage_orchestrator.launch.protocol import AttemptResult, Launch
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.notifications import Notifier
from dressage_orchestrator.quotas import Quotas
from dressage_orchestrator.service import Sessions

from tests.unit.orchestrator.databases import count, opened


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = opened(tmp_path)
    yield database
    database.close()


class Flaky:
    """Loses the database a number of times before it does the work."""

    def __init__(self, work: Callable[..., Any], times: int = 1) -> None:
        self.work, self.left = work, times

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.left:
            self.left -= 1
            raise DatabaseLost("cannot use the database: database or disk is full")
        return self.work(*args, **kwargs)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_gauges_survive_an_outage(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky(database.read, times=2)
    updated = asyncio.Event()
    monkeypatch.setattr(database, "read", flaky)
    monkeypatch.setattr(gauges.Gauges, "_runs", lambda *_: updated.set())
    task = asyncio.create_task(gauges.update_gauges(database, seconds=0.01))
    await until(updated.is_set)
    task.cancel()
    assert flaky.left == 0


async def test_launcher_repeats_a_report_after_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_REPORT_PAUSE_SECONDS", 0.01)
    ends: list[AttemptResult] = []

    async def starting() -> bool:
        return bool(begun())

    async def listen(ended: AttemptResult) -> None:
        reported(ended)

    begun, reported = Flaky(lambda: True), Flaky(ends.append, times=2)
    launcher = LocalLauncher(log_folder=tmp_path, on_result=listen, max_parallel=1, command=["true"])
    launcher.submit(Launch("sessions/s/runs/r1", 1, "127.0.0.1:1", "token", "local"), starting)
    await until(lambda: bool(ends))
    assert [end.attempt for end in ends] == [1] and begun.left == reported.left == 0
    await launcher.close()


METHODS = Methods.load()


class NoWorkflows:
    """Workflows whose database has no room."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def check_launched(self) -> None:
        pass

    def enqueue(self, tx: Transaction, session: str) -> list[tuple[str, int]]:
        queue.enter(tx, session)
        return workflows.admit(tx, 0)

    def start(self, session: str, epoch: int) -> None:
        raise self.error


NO_QUOTAS = Quotas(lambda name: Quota(), lambda pool: 1, elicit_dollars=1.0)


@pytest.mark.parametrize("programming", [False, True])
async def test_an_outage_after_the_commit_does_not_fail_the_request(
    database: Database, tmp_path: Path, *, programming: bool
) -> None:
    error: Exception = RuntimeError("a fault of ours") if programming else DatabaseLost("full")
    given: Any = {
        "settings": None,
        "agent": None,
        "judge": None,
        "workflows": NoWorkflows(error),
        "quotas": NO_QUOTAS,
        "machine": None,
        "store": DirectoryStore(tmp_path / "artifacts"),
    }
    service = Sessions(database=database, methods=METHODS, pools=[], **given)

    async def prepared(spec: v1.SessionSpec) -> tuple[v1.SessionSpec, bool]:
        return spec, False

    service.prepare = prepared  # type: ignore[method-assign]
    request = pb.CreateSessionRequest(spec=v1.SessionSpec(intent="run"), session_id="s")
    if programming:
        with pytest.raises(RuntimeError):
            await service.create(request)
    else:
        assert (await service.create(request)).state == v1.SESSION_STATE_PENDING
    assert count(database) == 1


def benchmarking(database: Database) -> tuple[Sessions, list[str]]:
    """Operations on sessions that end as they begin, and the ids of those that were created."""
    given: Any = {
        "settings": None,
        "agent": None,
        "judge": None,
        "workflows": None,
        "quotas": NO_QUOTAS,
        "machine": None,
        "store": None,
    }
    service = Sessions(database=database, methods=METHODS, pools=[], **given)
    created: list[str] = []

    async def create_session(request: pb.CreateSessionRequest, *, owner: str) -> v1.Session:
        created.append(request.session_id)
        with database.begin() as tx:
            sessions.create(tx, request.session_id, request.spec)
            return sessions.change(tx, request.session_id, succeed)

    async def prepared(spec: v1.SessionSpec) -> tuple[v1.SessionSpec, bool]:
        return spec, False

    service.create = create_session  # type: ignore[method-assign]
    service.prepare = prepared  # type: ignore[method-assign]
    return service, created


CASE = bench_pb.BenchmarkCase(intent="run", environment="environments/Hopper-v5")


async def test_an_outage_fails_no_case_of_a_benchmark(database: Database) -> None:
    service, created = benchmarking(database)
    flaky = Flaky(service.create)
    service.create = flaky  # type: ignore[method-assign]
    benchmarks = Benchmarks(service, Notifier(asyncio.get_running_loop()), parallel=1)
    benchmark = await benchmarks.create(bench_pb.CreateBenchmarkRequest(cases=[CASE]))
    await until(lambda: not benchmarks._drivers)
    assert flaky.left == 0 and not created
    await benchmarks.recover()
    await until(lambda: not benchmarks._drivers)
    with database.read() as tx:
        row = rows.get(tx, benchmark.name)
    assert created and row.passed == row.completed == 1
    await benchmarks.close()


class Sampler:
    """A source that samples a case once the one before has ended, three in all."""

    def ask(self, benchmark: bench_pb.Benchmark) -> list[bench_pb.BenchmarkCase]:
        if benchmark.completed == len(benchmark.cases) < 3:
            case = benchmark.cases.add()
            case.CopyFrom(CASE)
            case.session_id = f"sampled-{len(benchmark.cases)}"
        return [case for case in benchmark.cases if case.state not in sessions.ENDED]


async def test_a_source_may_sample_cases_from_results(database: Database) -> None:
    service, created = benchmarking(database)
    benchmarks = Benchmarks(service, Notifier(asyncio.get_running_loop()), parallel=2, source=Sampler())
    first = bench_pb.BenchmarkCase(session_id="sampled-1", intent=CASE.intent, environment=CASE.environment)
    benchmark = await benchmarks.create(bench_pb.CreateBenchmarkRequest(cases=[first]))
    await until(lambda: not benchmarks._drivers)
    with database.read() as tx:
        row = rows.get(tx, benchmark.name)
    assert created == ["sampled-1", "sampled-2", "sampled-3"] and row.passed == 3 and row.HasField("end_time")


def succeed(session: v1.Session) -> None:
    session.state = v1.SESSION_STATE_SUCCEEDED


def lease(database: Database, next_work: Callable[..., Any]) -> AsyncIterator[work.WorkResponse]:
    """The stream of a silent trainer after its welcome."""
    unused: Any = None
    servicer = runs_api.RunServicer(
        database=database,
        notifier=Notifier(asyncio.get_running_loop()),
        tokens=unused,
        controller=unused,
        store=unused,
        progress_seconds=1.0,
    )
    servicer.next_work = next_work  # type: ignore[method-assign]
    servicer.watch_exit = lambda hello: None  # type: ignore[method-assign]

    async def silence() -> AsyncIterator[work.WorkRequest]:
        await asyncio.Event().wait()
        yield work.WorkRequest()

    hello = work.Hello(run="sessions/s/runs/r1", attempt=1)
    return runs_api._Lease(servicer, hello, session="s", pool="local").answers(silence())


async def test_a_trainer_is_served_again_after_an_outage(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_api, "_LOST_SECONDS", 0.01)
    monkeypatch.setattr(runs_api, "CLOSE_SECONDS", 0.01)
    flaky = Flaky(lambda *_: runs_api.LeaseState(Fence.DONE), times=2)
    answers = lease(database, flaky)
    async with asyncio.timeout(20):
        kinds = [answer.WhichOneof("message") async for answer in answers]
    assert kinds == ["no_more_work"] and flaky.left == 0


async def test_a_trainers_stream_ends_with_its_watcher(database: Database) -> None:
    def damaged(*_: Any) -> Any:
        raise FailedPrecondition("the database file is damaged")

    answers = lease(database, damaged)
    async with asyncio.timeout(20):
        with pytest.raises(FailedPrecondition):
            await anext(answers)
