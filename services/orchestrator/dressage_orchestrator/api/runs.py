"""`RunService` for trainers: serves assignments from rows one after another, stores reports, and stops superseded trainers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

import structlog
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore, Grant
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied

from dressage_orchestrator import metrics, resource_names, threads
from dressage_orchestrator.api.checkpoint_retention import delete_old
from dressage_orchestrator.clock import system_clock
from dressage_orchestrator.database import assignments, reports, runs, sessions
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.database.engine import Database, DatabaseLost, ReadTransaction, Transaction
from dressage_orchestrator.database.reports import Fence, Limits
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.kubernetes.status import REMEDIES
from dressage_orchestrator.launch.protocol import TRAINER_SILENT, Notice
from dressage_orchestrator.launch.tokens import RunTokens
from dressage_orchestrator.notifications import Notifier

HELLO_SECONDS = 30.0
CLOSE_SECONDS = 60.0
ABSENT_SECONDS = 30.0
"""How long a trainer may be away before its run gets a condition; it dials again within seconds."""
_SILENT_REMEDY = (
    "its process or machine may be stopped, suspended or cut off: continue it (kill -CONT), or end its process, and another "
    "attempt continues from the last checkpoint"
)
_POLL_SECONDS = 10.0
"""Seconds between two looks for work without a notification. Changes by other servers are found by `changes.follow`."""
_LOST_SECONDS = 2.0
_LEAST_SECONDS = 0.02
_MAX_ANSWERS = 256
# Failures with which the sandbox, not the code, terminated a child of the trainer.
_SANDBOX_ENDS = {"LEARNER_OUT_OF_MEMORY": "memory", "SANDBOX_LIMIT": "sandbox"}


@dataclass(frozen=True)
class LeaseState:
    """What to send to a trainer next.

    :param fence: whether the attempt's reports are accepted.
    :param assignment: the assignment to send; None: none, or the trainer already has it.
    :param ended: numbers of assignments of the trainer that are no longer open.
    :param cancelled: those that the trainer has to stop.
    :param patience: seconds until the next poll.
    """

    fence: Fence
    assignment: work.Assignment | None = None
    ended: tuple[int, ...] = ()
    cancelled: tuple[int, ...] = ()
    patience: float = _POLL_SECONDS


class RunServicer:
    """Serves trainers and reads of runs."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        tokens: RunTokens,
        controller: RunController,
        store: ArtifactStore,
        progress_seconds: float,
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._controller = controller
        self._store = store
        self._progress_seconds = progress_seconds
        self._log = structlog.get_logger("dressage.work")
        self.notifier = notifier
        self.exiting: set[asyncio.Task[None]] = set()
        self._streams: Counter[tuple[str, int]] = Counter()  # open ones by run and attempt

    async def Work(self, requests: AsyncIterator[work.WorkRequest], context: Any) -> AsyncIterator[work.WorkResponse]:
        """Serve one stream of a trainer."""
        hello = await self._hello(requests)
        closed, row = await threads.run(threads.TRAINERS, self._begin, hello)
        if closed is not Fence.OPEN or row is None:
            self.watch_exit(hello)
            yield _closing_message(closed)
            return
        if self._controller.launcher is not None:
            self._controller.launcher.trainer_connected(hello.run, hello.attempt)
        await self._report_missing_sandbox(hello)
        welcome = work.Welcome(session=row.session, progress_interval_seconds=self._progress_seconds)
        yield work.WorkResponse(welcome=welcome)
        lease = _Lease(self, hello, session=row.session, pool=row.run.pool)
        stream = (hello.run, hello.attempt)
        self._streams[stream] += 1
        try:
            async for answer in lease.answers(requests):
                yield answer
        finally:
            self._streams[stream] -= 1
            if not lease.closing:
                self._follow(self._report_absence(hello, system_clock()))

    async def _report_missing_sandbox(self, hello: work.Hello) -> None:
        """Add a condition to the run if the kernel of its node lacks a sandbox feature."""
        offered = {name.partition("-")[0] for name in hello.sandbox_capabilities}
        missing = sorted({"landlock", "seccomp"} - offered)
        if hello.version and missing:
            kind, message = "SANDBOX_MISSING", f"the kernel of the trainer lacks {' and '.join(missing)}"
            await self._controller.handle_notice(Notice(hello.run, hello.attempt, kind, message, REMEDIES[kind]))

    async def _report_absence(self, hello: work.Hello, since: datetime) -> None:
        """Add a condition to the run if its trainer stays away, for example because its process is stopped."""
        try:
            last = await threads.run(threads.TRAINERS, self._last_report, hello)
            await asyncio.sleep(ABSENT_SECONDS)
            if not await threads.run(threads.TRAINERS, self._is_absent, hello, last):
                return
            message = f"the trainer has not answered this server since {since:%Y-%m-%d %H:%M:%S} UTC"
            notice = Notice(hello.run, hello.attempt, TRAINER_SILENT, message, _SILENT_REMEDY)
            await self._controller.handle_notice(notice)
        except DressageError as error:
            self._log.warning("could not report a silent trainer", run=hello.run, error=error.message)

    def _last_report(self, hello: work.Hello) -> int:
        with self._database.read() as tx:
            return reports.last_sequence(tx, hello.run, hello.attempt)

    def _is_absent(self, hello: work.Hello, last: int) -> bool:
        """Whether the run's newest attempt has no stream here and has sent no report after this one to any server."""
        if self._streams[hello.run, hello.attempt]:
            return False
        with self._database.read() as tx:
            row = runs.find(tx, hello.run)
            if reports.last_sequence(tx, hello.run, hello.attempt) != last:
                return False
        return row is not None and row.run.attempt == hello.attempt and row.run.state == v1.RUN_STATE_RUNNING

    def _follow(self, waiting: Coroutine[Any, Any, None]) -> None:
        self.exiting = {task for task in self.exiting if not task.done()}
        self.exiting.add(asyncio.create_task(waiting))

    async def close(self) -> None:
        """Stop watching trainers that have not exited yet."""
        for task in self.exiting:
            task.cancel()
        await asyncio.gather(*self.exiting, return_exceptions=True)

    def watch_exit(self, hello: work.Hello) -> None:
        """Stop the trainer if it does not exit after its lease has ended."""
        self._follow(self._controller.stop_after_grace(hello.run, hello.attempt))

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
        """Apply a report, and wake the session's workflow if it may wait for it."""
        limits = Limits(progress_seconds=self._progress_seconds, max_failures=self._controller.max_failures)
        session = resource_names.parse_run(hello.run).session
        # The acknowledgement of a report is a promise: the trainer does not send it again. Progress is sent all the time.
        with self._database.begin(synced=not report.HasField("progress")) as tx:
            fence = reports.record(tx, hello.run, hello.attempt, report, limits)
            progress = report.HasField("progress")
            row = runs.find(tx, hello.run) if progress else None
            about = assignments.by_id(tx, session, report.assignment) if progress else None
        if fence is not Fence.OPEN:
            return fence
        if row is not None and about is not None:
            # Set at once, so that short assignments appear; the sum over all running ones replaces it soon.
            labels = row.run.pool, assignments.environment_of(about.work)
            metrics.STEPS_PER_SECOND.labels(*labels).set(report.progress.steps_per_second)
            metrics.CANDIDATES_PER_SECOND.labels(*labels).set(report.progress.candidates_per_second)
        if report.result.HasField("failure"):
            count_failure(report.result.failure)
        if report.HasField("result") or report.HasField("evaluation"):
            self._controller.notify(session)
        return fence

    def delete_old_checkpoints(self, assignment: str, newest: str) -> None:
        """Delete old checkpoints, and no longer count them; a failure is retried with the next checkpoint."""
        try:
            deleted = delete_old(self._store, assignment, newest)
            if deleted:
                with self._database.begin() as tx:
                    sessions.add_artifact_bytes(tx, resource_names.parse_assignment(assignment).session, -deleted)
        except (DressageError, ValueError) as error:
            self._log.warning("old checkpoints are kept", assignment=assignment, error=str(error))

    def next_work(
        self,
        hello: work.Hello,
        served: Collection[int] = (),
        ending: Collection[int] = (),
        granted: Mapping[int, int] = MappingProxyType({}),
    ) -> LeaseState:
        """Determine the next assignment of an attempt and record that it is served.

        :param served: numbers of the assignments that the trainer has.
        :param ending: those of them that it ends early.
        :param granted: environment steps until which it may train, by number of the assignment.
        """
        # Not synced: an assignment that was begun and is pending again after a power failure is served again.
        with self._database.begin(synced=False) as tx:
            runs.lock(tx, hello.run)
            row = runs.find(tx, hello.run)
            fence = reports.fence(row, hello.attempt)
            if fence is not Fence.OPEN or row is None:
                return LeaseState(fence)
            open_ = assignments.open_of(tx, row.session)
            numbers = {entry.id for entry in open_}
            ended = tuple(number for number in served if number not in numbers)
            cancelled = tuple(number for number in ended if _was_cancelled(tx, row.session, number))
            if not open_:
                patience = self._release_if_idle(tx, hello.run)
                if patience is None:
                    return LeaseState(reports.fence(runs.find(tx, hello.run), hello.attempt))
                return LeaseState(fence, None, ended, cancelled, min(_POLL_SECONDS, patience))
            first = open_[0]
            if first.assignment.state != v1.ASSIGNMENT_STATE_RUNNING or first.assignment.run != hello.run:
                assignments.begin(tx, first.name, hello.run)
            runs.set_assignment(tx, hello.run, first.name)
            ends_early = bool(first.work.train.final_steps) and first.id not in ending
            goes_on = first.work.train.granted_steps > granted.get(first.id, 0)
            task = _task(tx, first) if first.id not in served or ends_early or goes_on else None
            # This stream subscribes to these topics and is up to date, so it need not notify itself.
            tx.touched -= {hello.run, assignments.topic(row.session)}
        return LeaseState(fence, task, ended, cancelled)

    def _release_if_idle(self, tx: Transaction, run: str) -> float | None:
        idle, queued = self._controller.idle_seconds, self._controller.queued_seconds
        return runs.release_if_idle(tx, run, idle_seconds=idle, queued_seconds=queued)

    def name_of(self, hello: work.Hello, assignment: int) -> str | None:
        """Name of the session's assignment with that number; None if there is none."""
        with self._database.read() as tx:
            row = assignments.by_id(tx, resource_names.parse_run(hello.run).session, assignment)
        return row.name if row is not None else None

    def warn_lost(self, hello: work.Hello, lost: DatabaseLost) -> None:
        """Log an outage of the database, after which the stream continues."""
        self._log.warning("the database is unavailable", run=hello.run, attempt=hello.attempt, error=lost.message)

    def grants(self, hello: work.Hello, name: str, request: work.TransferRequest) -> work.TransferGrants:
        """Grant all requested keys, or none with an error.

        An attempt that was superseded, or whose run has ended, gets none.

        :param name: name of the assignment that keys are relative to.
        """
        answer = work.TransferGrants(id=request.id)
        try:
            if len(request.put_bytes) != len(request.put):
                expected = f"a size for each of {len(request.put)} keys"
                raise InvalidArgument(field="put_bytes", value=len(request.put_bytes), expected=expected)
            writer = f"{hello.run}/attempts/{hello.attempt}"
            for key, size in zip(request.put, request.put_bytes, strict=True):
                _add(answer, key, self._store.grant_put(f"{name}/{key}", size=size, writer=writer))
            for key in request.get:
                _add(answer, key, self._store.grant_get(_download_key(name, key)))
            self._admit_transfer(hello, request)  # last, so that refused keys are not counted
        except DatabaseLost:
            raise  # ends the stream; the trainer asks again after it has redialled
        except DressageError as error:
            del answer.grants[:]
            answer.error = error.message
        return answer

    def _admit_transfer(self, hello: work.Hello, request: work.TransferRequest) -> None:
        """Check that the attempt holds its run, and count what it is about to store.

        :raises FailedPrecondition: if it does not.
        :raises DatabaseLost: if the database cannot be used now.
        """
        with self._database.begin() as tx:
            row = runs.find(tx, hello.run)
            fence = reports.fence(row, hello.attempt)
            if fence is not Fence.OPEN or row is None:
                message = f"attempt {hello.attempt} of {hello.run} has ended ({fence.name.lower()}); it gets no grants"
                raise FailedPrecondition(message, reason="ATTEMPT_ENDED")
            if request.put_bytes:
                sessions.add_artifact_bytes(tx, resource_names.parse_run(hello.run).session, sum(request.put_bytes))


class _Lease:
    """One accepted stream: a reader and a watcher that respond through a bounded queue."""

    def __init__(self, servicer: RunServicer, hello: work.Hello, *, session: str, pool: str) -> None:
        self._servicer = servicer
        self._hello = hello
        self._topics = (hello.run, assignments.topic(session), runs.queue_topic(pool))
        self._answers: asyncio.Queue[work.WorkResponse | None] = asyncio.Queue(_MAX_ANSWERS)
        self._served: set[int] = set()  # numbers of assignments that the trainer has
        self._ending: set[int] = set()  # those of which it knows that they end early
        self._granted: dict[int, int] = {}  # environment steps until which it knows it may train
        self._names: dict[int, str] = {}
        self.closing = False

    async def answers(self, requests: AsyncIterator[work.WorkRequest]) -> AsyncIterator[work.WorkResponse]:
        """Yield all messages for the trainer until it disconnects or its lease ends."""
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
            async for request in requests:
                kind = request.WhichOneof("message")
                if kind == "report":
                    await self._report(request.report)
                elif kind == "transfer_request":
                    await self._transfer(request.transfer_request)
                else:
                    raise InvalidArgument(field="message", value=kind, expected="a report or a transfer request")
        finally:
            await self._answers.put(None)

    async def _transfer(self, request: work.TransferRequest) -> None:
        name = await self._name(request.assignment)
        if name is None:
            error = f"the session has no assignment {request.assignment}"
            granted = work.TransferGrants(id=request.id, error=error)
        else:
            granted = await threads.run(threads.TRAINERS, self._servicer.grants, self._hello, name, request)
        await self._answers.put(work.WorkResponse(transfer_grants=granted))

    async def _name(self, assignment: int) -> str | None:
        if assignment not in self._names:
            name = await threads.run(threads.TRAINERS, self._servicer.name_of, self._hello, assignment)
            if name is None:
                return None
            self._names[assignment] = name
        return self._names[assignment]

    async def _report(self, report: work.Report) -> None:
        try:
            fence = await threads.run(threads.TRAINERS, self._servicer.record, self._hello, report)
        except NotFound as error:  # the assignment does not have the member
            raise InvalidArgument(error.message, field="report") from error
        if fence in (Fence.OPEN, Fence.DONE):
            # DONE: the run was released; pending reports are acknowledged and ignored.
            await self._answers.put(work.WorkResponse(report_accepted=work.ReportAccepted(sequence=report.sequence)))
        else:
            await self._close_lease(fence)
        if (
            report.HasField("checkpoint") and fence is Fence.OPEN
        ):  # after the response, which need not wait for the store
            name = await self._name(report.assignment)
            if name is not None:
                await threads.run(threads.TRAINERS, self._servicer.delete_old_checkpoints, name, report.checkpoint.key)

    async def _watch(self) -> None:
        """Serve assignments one after another and, once the run has ended, the farewell.

        Any error ends the stream: a trainer whose stream stays open without a watcher would wait for ever.
        """
        try:
            await self._serve_assignments()
            # It may still have reports to repeat; after a while the stream ends from our side.
            await asyncio.sleep(CLOSE_SECONDS)
        except Exception:
            await self._answers.put(None)
            raise
        await self._answers.put(None)

    async def _serve_assignments(self) -> None:
        with self._servicer.notifier.subscribe(*self._topics) as subscription:
            while not self.closing:
                try:
                    has = (frozenset(self._served), frozenset(self._ending), dict(self._granted))
                    state = await threads.run(threads.TRAINERS, self._servicer.next_work, self._hello, *has)
                except DatabaseLost as lost:
                    self._servicer.warn_lost(self._hello, lost)
                    await subscription.wait(_LOST_SECONDS)
                    continue
                if state.fence is not Fence.OPEN:
                    await self._close_lease(state.fence)
                    break
                await self._serve(state)
                await subscription.wait(max(_LEAST_SECONDS, state.patience))

    async def _serve(self, state: LeaseState) -> None:
        for number in state.ended:
            self._served.discard(number)
            self._granted.pop(number, None)
        for number in state.cancelled:
            cancel = work.CancelAssignment(assignment=number, reason="cancelled")
            await self._answers.put(work.WorkResponse(cancel_assignment=cancel))
        if state.assignment is not None:
            self._served.add(state.assignment.id)
            if state.assignment.train.final_steps:
                self._ending.add(state.assignment.id)
            self._granted[state.assignment.id] = state.assignment.train.granted_steps
            self._names[state.assignment.id] = state.assignment.name
            await self._answers.put(work.WorkResponse(assignment=state.assignment))

    async def _close_lease(self, fence: Fence) -> None:
        if not self.closing:
            self.closing = True
            self._servicer.watch_exit(self._hello)
            await self._answers.put(_closing_message(fence))


def count_failure(failure: work.AssignmentFailure) -> None:
    """Count a failed assignment and kills by the sandbox here, because trainers are too short-lived to be scraped."""
    cause = work.AssignmentFailure.Cause.Name(failure.cause).removeprefix("CAUSE_").lower()
    metrics.ASSIGNMENT_FAILURES.labels(cause).inc()
    if failure.cause == work.AssignmentFailure.CAUSE_INFRASTRUCTURE:
        metrics.RUN_FAILURES.labels(failure.failure.reason).inc()  # it ends the attempt
    if failure.failure.reason in _SANDBOX_ENDS:
        metrics.SANDBOX_KILLS.labels(_SANDBOX_ENDS[failure.failure.reason]).inc()


def _was_cancelled(tx: ReadTransaction, session: str, number: int) -> bool:
    """Whether the assignment was cancelled, or reopened under another number."""
    row = assignments.by_id(tx, session, number)
    return row is None or row.assignment.state == v1.ASSIGNMENT_STATE_CANCELLED


def _task(tx: ReadTransaction, row: AssignmentRow) -> work.Assignment:
    """The assignment with the progress of earlier attempts, as it is sent to a trainer."""
    task = work.Assignment()
    task.CopyFrom(row.work)
    task.checkpoint = row.checkpoint
    task.finished_items.extend(reports.finished_items(tx, row.name))
    for member in assignments.members(tx, row.name):
        if member.HasField("failure"):
            task.stopped[member.name.rpartition("/")[2]].CopyFrom(member.failure)
    if row.work.HasField("train"):
        stopped = frozenset(task.stopped)
        task.pending_evaluations.extend(reports.pending_evaluations(tx, row.name, stopped))
    return task


def _closing_message(fence: Fence) -> work.WorkResponse:
    if fence in (Fence.OPEN, Fence.DONE):
        return work.WorkResponse(no_more_work=work.NoMoreWork())
    return work.WorkResponse(stop=work.Stop(reason=fence.value))


def _add(answer: work.TransferGrants, key: str, grant: Grant) -> None:
    answer.grants.add(key=key, url=grant.url, headers=grant.headers)


def _download_key(assignment: str, key: str) -> str:
    """The full key of an artifact that a run may read: below the assignment, or anywhere in its session."""
    if not key.startswith("sessions/"):
        return f"{assignment}/{key}"
    session = resource_names.session_name(resource_names.parse_assignment(assignment).session)
    if not key.startswith(f"{session}/"):
        raise PermissionDenied(f"a run may only read artifacts of its session (got {key!r})", reason="OTHER_SESSION")
    return key
