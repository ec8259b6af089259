"""`RunService`, the trainers' side: assignments are served from rows, reports become rows, zombies are told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Any

import structlog
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.artifacts import ArtifactStore, Grant
from dressage.errors import DressageError, InvalidArgument, NotFound, PermissionDenied

from dressage_orchestrator import metrics, names
from dressage_orchestrator.api.old_checkpoints import delete_old
from dressage_orchestrator.clock import system_clock
from dressage_orchestrator.database import reports, runs
from dressage_orchestrator.database.engine import Database, DatabaseLost
from dressage_orchestrator.database.reports import Fence
from dressage_orchestrator.hub import Hub
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.kubernetes.remedies import REMEDIES
from dressage_orchestrator.launch.protocol import Notice
from dressage_orchestrator.launch.tokens import RunTokens
from dressage_orchestrator.observe import count_last_words

HELLO_SECONDS = 30.0
GOODBYE_SECONDS = 60.0
_LOOK_SECONDS = 2.0
_MAX_ANSWERS = 256


class RunServicer:
    """See `RunService` in the protos.

    :param ended: called with a session's id when one of its runs has ended, or was evaluated, by a report.
    """

    def __init__(
        self,
        *,
        database: Database,
        hub: Hub,
        tokens: RunTokens,
        controller: RunController,
        store: ArtifactStore,
        progress_seconds: float,
        ended: Any,
    ) -> None:
        self._database = database
        self._hub = hub
        self._tokens = tokens
        self._controller = controller
        self._store = store
        self._progress_seconds = progress_seconds
        self._ended = ended
        self.leaving: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("dressage.work")

    async def Work(self, requests: AsyncIterator[work.WorkRequest], context: Any) -> AsyncIterator[work.WorkResponse]:
        """One lease of a trainer."""
        hello = await self._hello(requests)
        closed, row = await asyncio.to_thread(self._begin, hello)
        if closed is not Fence.OPEN or row is None:
            yield _farewell(closed)
            return
        if self._controller.launcher is not None:
            self._controller.launcher.said_hello(hello.run, hello.attempt)
        await self._tell_of_missing_sandbox(hello)
        welcome = work.Welcome(session=row.session, progress_interval_seconds=self._progress_seconds)
        yield work.WorkResponse(welcome=welcome)
        lease = _Lease(self, hello, row.session)
        async for answer in lease.answers(requests):
            yield answer

    async def _tell_of_missing_sandbox(self, hello: work.Hello) -> None:
        """A node whose kernel lacks a part of the sandbox becomes a condition of the run."""
        offered = {name.partition("-")[0] for name in hello.sandbox_capabilities}
        missing = sorted({"landlock", "seccomp"} - offered)
        if hello.version and missing:
            kind, seen = "SANDBOX_MISSING", f"the trainer's kernel has no {' and no '.join(missing)}"
            await self._controller.noticed(Notice(hello.run, hello.attempt, kind, seen, REMEDIES[kind]))

    async def close(self) -> None:
        """Forgets about trainers that have yet to leave."""
        for task in self.leaving:
            task.cancel()
        await asyncio.gather(*self.leaving, return_exceptions=True)

    def watch_leaving(self, hello: work.Hello) -> None:
        """Sees to it that the trainer leaves once its run has ended."""
        self.leaving = {task for task in self.leaving if not task.done()}
        self.leaving.add(asyncio.create_task(self._controller.over(hello.run, hello.attempt)))

    async def _hello(self, requests: AsyncIterator[work.WorkRequest]) -> work.Hello:
        try:
            first = await asyncio.wait_for(anext(requests), HELLO_SECONDS)
        except (TimeoutError, StopAsyncIteration):
            raise InvalidArgument(field="hello", value=None, expected="a hello as the first message") from None
        if first.WhichOneof("message") != "hello":
            kind = first.WhichOneof("message")
            raise InvalidArgument(field="hello", value=kind, expected="a hello as the first message")
        now = system_clock().timestamp()
        self._tokens.check(first.hello.token, first.hello.run, first.hello.attempt, now=now)
        return first.hello

    def _begin(self, hello: work.Hello) -> tuple[Fence, runs.RunRow | None]:
        with self._database.begin() as tx:
            before = runs.find(tx, hello.run)
            closed, row = reports.hello(tx, hello.run, hello.attempt)
        if closed is Fence.OPEN and row is not None and before is not None and not before.run.HasField("start_time"):
            waited = row.run.start_time.ToMicroseconds() - row.run.create_time.ToMicroseconds()
            metrics.RUN_QUEUE_SECONDS.labels(row.run.pool).observe(waited / 1e6)
        return closed, row

    def record(self, hello: work.Hello, report: work.Report) -> Fence:
        """Applies a report."""
        with self._database.begin() as tx:
            heard = reports.record(tx, hello.run, hello.attempt, report, progress_seconds=self._progress_seconds)
            row = runs.find(tx, hello.run)
            opened = runs.open_assignments(tx, hello.run) if report.HasField("progress") else []
        if report.HasField("progress") and heard is Fence.OPEN and row is not None and opened:
            environment = opened[0].train.environment or opened[0].score.environment
            # At once, so that a short run shows; soon the sum over all runs under way takes its place.
            gauge = metrics.STEPS_PER_SECOND.labels(row.run.pool, environment)
            gauge.set(report.progress.steps_per_second)
        if report.HasField("failed") and heard is Fence.OPEN:
            count_last_words(report.failed)
        if heard is Fence.OPEN and row is not None and (row.ended or report.HasField("evaluation")):
            self._ended(row.session)
        return heard

    def delete_old_checkpoints(self, run: str, newest: str) -> None:
        """Keeps the newest; where that fails the next checkpoint is the next try."""
        try:
            delete_old(self._store, run, newest)
        except (DressageError, ValueError) as error:
            self._log.warning("old checkpoints stay", run=run, error=str(error))

    def standing(self, hello: work.Hello, served: Collection[int] = ()) -> tuple[Fence, list[work.Assignment], bool]:
        """Whether the attempt is heard, its open assignments, and whether more may come.

        :param served: assignments that the trainer has; of these their being open is all that counts.
        """
        with self._database.read() as tx:
            row = runs.find(tx, hello.run)
            closed = reports.fence(row, hello.attempt)
            if closed is not Fence.OPEN or row is None:
                return closed, [], False
            if row.run.HasField("failure"):  # it said that its work failed: the end of its process says the rest
                return Fence.FAILED, [], False
            opened = runs.open_assignments(tx, hello.run)
            news = [assignment for assignment in opened if assignment.id not in served]
            members = runs.members(tx, hello.run) if news else []
        failures = {member.name: member.failure for member in members if member.HasField("failure")}
        for assignment in news:
            if not assignment.HasField("train"):
                continue
            assignment.train.checkpoint = row.checkpoint
            for member in assignment.train.members:
                if (failure := failures.get(names.member_name(hello.run, member.id))) is not None:
                    assignment.train.stopped[member.id].CopyFrom(failure)
        return closed, opened, not row.closed

    def warn_lost(self, hello: work.Hello, lost: DatabaseLost) -> None:
        """Log that a trainer is served again once the database answers."""
        self._log.warning("the database is away", run=hello.run, attempt=hello.attempt, error=lost.message)

    def grants(self, hello: work.Hello, request: work.TransferRequest) -> work.TransferGrants:
        """Grants for the keys asked for, or why not; all or none."""
        answer = work.TransferGrants(id=request.id)
        try:
            for key in request.put:
                _add(answer, key, self._store.grant_put(f"{hello.run}/{key}"))
            for key in request.get:
                _add(answer, key, self._store.grant_get(_readable(hello.run, key)))
        except DressageError as error:
            del answer.grants[:]
            answer.error = error.message
        return answer


class _Lease:
    """One stream after its welcome: a reader and a watcher that answer through a bounded queue."""

    def __init__(self, servicer: RunServicer, hello: work.Hello, session: str) -> None:
        self._servicer = servicer
        self._hello = hello
        self._session = session
        self._answers: asyncio.Queue[work.WorkResponse | None] = asyncio.Queue(_MAX_ANSWERS)
        self._said_goodbye = False

    async def answers(self, requests: AsyncIterator[work.WorkRequest]) -> AsyncIterator[work.WorkResponse]:
        """What the trainer is told, until it hangs up or was told to end."""
        tasks = [asyncio.create_task(self._read(requests)), asyncio.create_task(self._watch())]
        try:
            while (answer := await self._answers.get()) is not None:
                yield answer
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _read(self, requests: AsyncIterator[work.WorkRequest]) -> None:
        try:
            async for said in requests:
                kind = said.WhichOneof("message")
                if kind == "report":
                    await self._report(said.report)
                elif kind == "transfer_request":
                    granted = await asyncio.to_thread(self._servicer.grants, self._hello, said.transfer_request)
                    await self._answers.put(work.WorkResponse(transfer_grants=granted))
                else:
                    raise InvalidArgument(field="message", value=kind, expected="a report or a transfer request")
        finally:
            await self._answers.put(None)

    async def _report(self, report: work.Report) -> None:
        try:
            heard = await asyncio.to_thread(self._servicer.record, self._hello, report)
        except NotFound as error:  # of a member that the run does not have
            raise InvalidArgument(error.message, field="report") from error
        if report.HasField("done") and heard is Fence.OPEN:
            self._servicer.watch_leaving(self._hello)
        if heard in (Fence.OPEN, Fence.DONE):
            # DONE: the run ended by an earlier report of this attempt; what is left to say may be forgotten.
            await self._answers.put(work.WorkResponse(report_accepted=work.ReportAccepted(sequence=report.sequence)))
        else:
            await self._farewell(heard)
        if report.HasField("checkpoint") and heard is Fence.OPEN:  # after the answer, which need not wait for the store
            await asyncio.to_thread(self._servicer.delete_old_checkpoints, self._hello.run, report.checkpoint.key)

    async def _watch(self) -> None:
        """Serves assignments and, when there is nothing left to do, the farewell.

        Any error ends the stream: a trainer whose stream stays open without a watcher would wait for ever.
        """
        try:
            await self._serve_assignments()
            # It may still have reports to repeat; after a while the stream ends from our side.
            await asyncio.sleep(GOODBYE_SECONDS)
        except Exception:
            await self._answers.put(None)
            raise
        await self._answers.put(None)

    async def _serve_assignments(self) -> None:
        served: set[int] = set()
        with self._servicer._hub.waiter(self._hello.run) as waiter:
            while not self._said_goodbye:
                try:
                    closed, opened, more = await asyncio.to_thread(self._servicer.standing, self._hello, served)
                except DatabaseLost as lost:
                    self._servicer.warn_lost(self._hello, lost)
                    await waiter.wait(_LOOK_SECONDS)
                    continue
                if closed is not Fence.OPEN or (not opened and not more):
                    await self._farewell(closed)
                    break
                for assignment in opened:
                    if assignment.id not in served:
                        served.add(assignment.id)
                        await self._answers.put(work.WorkResponse(assignment=assignment))
                await waiter.wait(_LOOK_SECONDS)

    async def _farewell(self, closed: Fence) -> None:
        if not self._said_goodbye:
            self._said_goodbye = True
            await self._answers.put(_farewell(closed))


def _farewell(closed: Fence) -> work.WorkResponse:
    if closed in (Fence.OPEN, Fence.DONE):
        return work.WorkResponse(no_more_work=work.NoMoreWork())
    return work.WorkResponse(stop=work.Stop(reason=closed.value))


def _add(answer: work.TransferGrants, key: str, grant: Grant) -> None:
    answer.grants.add(key=key, url=grant.url, headers=grant.headers)


def _readable(run: str, key: str) -> str:
    """The full key of what a run may read: below itself, or anywhere in its session."""
    if not key.startswith("sessions/"):
        return f"{run}/{key}"
    session = names.session_name(names.parse_run(run).session)
    if not key.startswith(f"{session}/"):
        raise PermissionDenied(f"a run may read artifacts of its own session only, not {key!r}", reason="OTHER_SESSION")
    return key
