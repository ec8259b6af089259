"""The layers under the session workflow: rows, the controller, a launcher, and `RunService` over real gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import grpc
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.internal.v1 import run_service_pb2_grpc as rpc
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2_grpc
from dressage.artifacts import DirectoryStore
from dressage.serving.server import GrpcServer
from dressage_orchestrator.api.paging import PageTokens
from dressage_orchestrator.api.runs import RunServicer
from dressage_orchestrator.api.sessions import SessionServicer
from dressage_orchestrator.database import assignments, events, executors, runs, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.launch.controller import SINGLE_EXECUTOR, RunController
from dressage_orchestrator.launch.local import LocalLauncher
from dressage_orchestrator.launch.protocol import Launch, Launcher
from dressage_orchestrator.launch.tokens import RunTokens
from dressage_orchestrator.notifications import Notifier
from dressage_orchestrator.wiring import RUN_SERVICE

from tests.integration.orchestrator.stack import TRAINER

WAIT_SECONDS = 60.0


class LeaseStack:
    """One place for trainers, unless a launcher is given.

    :param idle_seconds: how long a run may be without an assignment.
    :param url: of a database that is shared; a file in the folder if not given.
    """

    def __init__(
        self, folder: Path, *, idle_seconds: float = 60.0, launcher: Launcher | None = None, url: str | None = None
    ) -> None:
        self.notifier = Notifier(asyncio.get_running_loop())
        self.database = Database(url or sqlite_url(folder / "d.db"))
        self.database.listener = self.notifier.publish
        self.store = DirectoryStore(folder / "artifacts")
        self.tokens = RunTokens(b"k" * 16)
        self.controller = RunController(
            self.database,
            self.tokens,
            token_seconds=600,
            max_failures=1,
            idle_seconds=idle_seconds,
            executor=self._registered(folder.name) if url else SINGLE_EXECUTOR,
        )
        self.launcher = launcher or LocalLauncher(
            log_folder=folder / "logs",
            on_result=self.controller.handle_result,
            max_parallel=1,
            command=TRAINER,
            stop_seconds=2.0,
        )
        self.controller.launcher = self.launcher
        self.servicer = RunServicer(
            database=self.database,
            notifier=self.notifier,
            tokens=self.tokens,
            controller=self.controller,
            store=self.store,
            progress_seconds=0.0,
        )
        self.server = GrpcServer(service_name="orchestrator", address="127.0.0.1:0", grace_seconds=0.2)

    def _registered(self, name: str) -> str:
        with self.database.begin() as tx:
            return executors.register(tx, name)

    async def __aenter__(self) -> LeaseStack:
        self.server.add(rpc.add_RunServiceServicer_to_server, self.servicer, RUN_SERVICE)
        # Of `SessionService` only what reads: there is no workflow.
        unused: Any = None
        pages = PageTokens(b"k" * 16)
        sessions_api = SessionServicer(self, unused, self.notifier, self.controller, pages, unused)  # type: ignore[arg-type]
        name = "dressage.v1.SessionService"
        self.server.add(session_service_pb2_grpc.add_SessionServiceServicer_to_server, sessions_api, name)
        self.controller.address = await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.launcher.close()
        await self.servicer.close()
        await self.server.stop()
        self.database.close()

    async def read(self, query: Callable[[Any], Any]) -> Any:
        """What `Sessions.read` does."""

        def run() -> Any:
            with self.database.read() as tx:
                return query(tx)

        return await asyncio.to_thread(run)

    def add_session(self, session: str) -> None:
        with self.database.begin() as tx:
            sessions.create(tx, session, v1.SessionSpec(intent="run", pool="local"))

    async def ask(self, session: str, assignment: str, **kind: Any) -> str:
        """Has an assignment exist and be worked on, as a workflow does; its name."""
        name = f"sessions/{session}/iterations/1/assignments/{assignment}"
        members: list[v1.Member] = []
        if "train" in kind:
            specs = kind["train"].members
            members = [v1.Member(name=f"{name}/members/{spec.id}", target_env_steps=100) for spec in specs]
        await asyncio.to_thread(self._create, work.Assignment(name=name, **kind), members)
        await self.controller.ensure(session)
        return name

    def _create(self, task: work.Assignment, members: list[v1.Member]) -> None:
        with self.database.begin() as tx:
            assignments.create(tx, task, members)

    async def train(self, session: str, assignment: str, source: str, members: tuple[str, ...] = ("a",)) -> str:
        task = work.TrainAssignment(reward_source=source, steps_per_member=100, evaluation_episodes=2)
        task.members.extend(work.MemberSpec(id=member) for member in members)
        return await self.ask(session, assignment, train=task)

    async def ended(self, name: str) -> v1.Assignment:
        """Waits until an assignment has ended."""
        return await self.until(lambda: stored if (stored := self.assignment(name)).HasField("end_time") else None)

    def assignment(self, name: str) -> v1.Assignment:
        with self.database.begin() as tx:
            return assignments.get(tx, name).assignment

    def runs(self, session: str) -> list[v1.Run]:
        with self.database.begin() as tx:
            return [row.run for row in runs.page(tx, session, limit=100).entries]

    def events(self, session: str, kind: str) -> list[Any]:
        with self.database.begin() as tx:
            recorded = events.after(tx, session, 0, limit=10_000)
        return [getattr(event, kind) for event in recorded if event.HasField(kind)]  # type: ignore[arg-type]

    @staticmethod
    async def until(condition: Callable[[], Any]) -> Any:
        """What the condition is once it is true."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (result := condition()):
                await asyncio.sleep(0.02)
        return result


class InProcessTrainers:
    """A launcher whose trainers are tasks of this process that evaluate candidates at once."""

    pools = None
    attempts_per_launch = 1
    scheduling_seconds = 0.0

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def cores(self, pool: str) -> int:
        return 1

    async def start(self) -> int:
        return 0

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        key = (launch.run, launch.attempt)
        self.tasks[key] = asyncio.create_task(self._work(launch, starting))

    def has_trainer(self, run: str, attempt: int) -> bool:
        return (run, attempt) in self.tasks and not self.tasks[run, attempt].done()

    def active_runs(self) -> frozenset[str]:
        return frozenset(run for run, attempt in self.tasks if self.has_trainer(run, attempt))

    def trainer_connected(self, run: str, attempt: int) -> None: ...

    async def stop(self, run: str, attempt: int | None = None) -> None:
        for task in self.tasks.values():
            task.cancel()

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        return None

    async def close(self) -> None:
        await self.stop("")
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _work(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        if not await starting():
            return
        outgoing: asyncio.Queue[work.WorkRequest] = asyncio.Queue()

        async def messages() -> AsyncIterator[work.WorkRequest]:
            while True:
                yield await outgoing.get()

        hello = work.Hello(run=launch.run, attempt=launch.attempt, token=launch.token)
        outgoing.put_nowait(work.WorkRequest(hello=hello))
        sequence = 0
        async with grpc.aio.insecure_channel(launch.address) as channel:
            async for answer in rpc.RunServiceStub(channel).Work(messages()):
                if answer.HasField("no_more_work") or answer.HasField("stop"):
                    return
                if answer.HasField("assignment"):
                    for item, body in _evaluated(answer.assignment):
                        sequence += 1
                        report = work.Report(sequence=sequence, assignment=answer.assignment.id, item=item, **body)
                        outgoing.put_nowait(work.WorkRequest(report=report))


def _evaluated(assignment: work.Assignment) -> list[tuple[str, dict[str, Any]]]:
    reports: list[tuple[str, dict[str, Any]]] = []
    for candidate in assignment.evaluate.candidates:
        result = v1.CandidateResult(id=candidate.id, returns=[sum(candidate.parameters.values)], lengths=[1])
        reports.append((f"candidate/{candidate.id}", {"candidate": result}))
    done = work.AssignmentResult(evaluate=work.EvaluateResult(episodes=len(reports)))
    return [*reports, ("result", {"result": done})]


async def latencies(stack: LeaseStack, session: str, *, count: int) -> list[float]:
    """Seconds from asking for a trivial evaluation to the wake-up by its result, one after another on one live lease."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    stack.controller.notify = lambda _: loop.call_soon_threadsafe(woken.set)  # type: ignore[assignment]
    seconds = []
    for number in range(count):
        woken.clear()
        candidate = work.Candidate(id="c", parameters=work.Parameters(values=[float(number)]))
        task = work.EvaluateAssignment(environment="CartPole-v1", candidates=[candidate], seeds=[1])
        began = time.perf_counter()
        name = await stack.ask(session, f"e{number}", evaluate=task)
        async with asyncio.timeout(WAIT_SECONDS):
            await woken.wait()
        seconds.append(time.perf_counter() - began)
        stored = stack.assignment(name)
        assert stored.state == v1.ASSIGNMENT_STATE_SUCCEEDED and stored.candidates[0].returns == [float(number)]
    return seconds


def milliseconds(seconds: list[float]) -> str:
    """The figures in words."""
    ordered = sorted(seconds)
    return f"median {1000 * median(ordered):.1f} ms, p90 {1000 * ordered[int(0.9 * len(ordered))]:.1f} ms"
