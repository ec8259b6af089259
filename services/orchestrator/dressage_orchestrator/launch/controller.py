"""Ensures that each session with open assignments has a run and a trainer.

The controller is level-triggered: it acts on rows, and messages of launchers and trainers are hints. `ensure` may be called at
any time for any session; it creates the run and starts the trainer if they are missing.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Collection

import structlog
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import resource_names
from dressage_orchestrator.database import assignments, runs, sessions
from dressage_orchestrator.database.engine import Database, DatabaseLost
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.launch import attempt_results
from dressage_orchestrator.launch.protocol import AttemptResult, Launch, Launcher, Notice
from dressage_orchestrator.launch.tokens import RunTokens

SINGLE_EXECUTOR = "local"
"""Executor id of a server that does not share its database."""

EXIT_SECONDS = 60.0
"""Time for a trainer to exit after its run has ended."""


class RunController:
    """Manages this server's runs.

    If several servers share the database, each run is claimed by one of them; only the claiming server starts and stops its
    trainers until it expires.

    :param max_failures: number of failures after which an assignment is retried.
    :param idle_seconds: how long a run may be without an assignment before it is released.
    :param deadline_seconds: how long a trainer may run before it checkpoints and exits with code 75; 0: no limit.
    :param executor: this server's id.

    Set before use: ``launcher``, ``address`` (of `RunService`), ``notify``, called in a worker thread with a session's id
    when one of its assignments has changed, and ``held``, which returns whether a session gets no trainer for now.
    """

    def __init__(
        self,
        database: Database,
        tokens: RunTokens,
        *,
        token_seconds: float,
        max_failures: int,
        idle_seconds: float = 60.0,
        deadline_seconds: float = 0.0,
        executor: str = SINGLE_EXECUTOR,
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._token_seconds = token_seconds
        self._deadline_seconds = deadline_seconds
        self._executor = executor
        self._watched: dict[str, int] = {}
        self._without_trainer: set[str] = set()
        # Weak: sessions come and go, and a lock is needed only while a call holds it.
        self._ensuring: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._log = structlog.get_logger("dressage.runs")
        self.max_failures = max_failures
        self.idle_seconds = idle_seconds
        self.launcher: Launcher | None = None
        self.address = ""
        self.notify: Callable[[str], None] = lambda session: None
        self.is_held: Callable[[str], bool] = lambda session: False

    @property
    def queued_seconds(self) -> float:
        """How long a run may be QUEUED although there is capacity for its trainer."""
        return self.launcher.scheduling_seconds if self.launcher is not None else 0.0

    def cores(self, pool: str) -> int:
        """Cores that a run of that pool may use."""
        return self.launcher.cores(pool) if self.launcher is not None else 1

    async def recover(self) -> int:
        """Resume all sessions with open assignments after a start of this server.

        Trainers that the launcher does not list have exited.

        :return: the number of these sessions.
        """

        def sessions_with_work() -> list[str]:
            with self._database.read() as tx:
                return list(dict.fromkeys(row.session for row in assignments.live(tx)))

        pending = await asyncio.to_thread(sessions_with_work)
        for session in pending:
            await self.ensure(session)
        return len(pending)

    async def ensure(self, session: str) -> None:
        """Ensure that the session has a trainer if it has open assignments."""
        assert self.launcher is not None
        if self.is_held(session):
            return
        async with self._ensuring.setdefault(session, asyncio.Lock()):
            run = await asyncio.to_thread(self._run_of, session)
            if run is None:
                return
            if self.launcher.has_trainer(run.name, run.attempt):
                self._watched[run.name] = run.attempt
                return
            attempt = await asyncio.to_thread(self._next_attempt, run.name, run.attempt)
            if attempt is not None:
                self._submit(self.launcher, run, attempt)

    def _submit(self, launcher: Launcher, run: v1.Run, attempt: int) -> None:
        expiry = int(time.time() + self._token_seconds)
        # A Job replaces its pods by itself, so one token is good for all of their attempts (decision 0019).
        last = attempt + launcher.attempts_per_launch - 1
        token = self._tokens.make(run.name, attempt, expiry=expiry, last=last)

        async def starting() -> bool:
            return await self.starting(run.name, attempt)

        self._watched[run.name] = attempt
        deadline = self._deadline_seconds
        launcher.submit(Launch(run.name, attempt, self.address, token, run.pool, deadline_seconds=deadline), starting)

    async def release(self, session: str) -> None:
        """Release the session's run at once, or as soon as its open assignments have ended.

        Called when no assignment follows soon: while the session waits for a person or a provider, and at its end. A later
        assignment reverts this, or gets a new run.
        """
        assert self.launcher is not None
        ended = await asyncio.to_thread(self._release, session)
        if ended is not None:
            await self.launcher.stop(ended)

    async def cancel(self, session: str) -> None:
        """Cancel all open assignments and runs of a session and stop their trainers."""
        assert self.launcher is not None

        def mark() -> list[str]:
            with self._database.begin() as tx:
                tx.lock(resource_names.session_name(session))
                for entry in assignments.open_of(tx, session):
                    assignments.end(tx, entry.name, v1.ASSIGNMENT_STATE_CANCELLED)
                cancelled = [row.run.name for row in runs.live(tx, session)]
                for name in cancelled:
                    runs.end(tx, name, v1.RUN_STATE_CANCELLED)
                return cancelled

        for name in await asyncio.to_thread(mark):
            await self.launcher.stop(name)
        await asyncio.to_thread(self.notify, session)

    async def cancel_assignment(self, name: str) -> None:
        """Cancel an assignment, unless it has ended; its trainer stops it and waits for the next one."""
        session = resource_names.parse_assignment(name).session

        def mark() -> None:
            with self._database.begin() as tx:
                assignments.end(tx, name, v1.ASSIGNMENT_STATE_CANCELLED)
                row = runs.live_of(tx, session)
                if row is not None and row.run.assignment == name:
                    runs.set_assignment(tx, row.run.name, "")

        await asyncio.to_thread(mark)
        await asyncio.to_thread(self.notify, session)

    async def starting(self, name: str, attempt: int) -> bool:
        """Record that the attempt starts; False if it is no longer needed or its trainer is already connected."""
        return await asyncio.to_thread(self._starting, name, attempt)

    async def hello_received(self, name: str, attempt: int) -> bool:
        """Whether the attempt's trainer has connected to any server."""
        row = await asyncio.to_thread(self._find, name)
        return row is None or row.ended or (row.run.attempt >= attempt and row.run.state == v1.RUN_STATE_RUNNING)

    async def is_abandoned(self, name: str) -> bool:
        """Whether the run was cancelled or has failed, so that its trainer has to be stopped."""
        row = await asyncio.to_thread(self._find, name)
        return row is not None and row.run.state in (v1.RUN_STATE_CANCELLED, v1.RUN_STATE_FAILED)

    async def handle_notice(self, notice: Notice) -> None:
        """Apply a notice of the launcher or of a trainer's hello (see `attempt_results.apply_notice`)."""
        assert self.launcher is not None

        def apply() -> bool:
            with self._database.begin() as tx:
                return attempt_results.apply_notice(tx, notice, max_failures=self.max_failures)

        if await asyncio.to_thread(apply):
            await self.launcher.stop(notice.run)
        if notice.attempt_ended:
            await asyncio.to_thread(self.notify, resource_names.parse_run(notice.run).session)

    async def handle_result(self, ended: AttemptResult) -> None:
        """Apply the exit of a trainer and start the next attempt if the run needs one."""
        again = await asyncio.to_thread(self._apply_result, ended)
        session = resource_names.parse_run(ended.run).session
        if again:
            await self.ensure(session)
        await asyncio.to_thread(self.notify, session)

    async def reconcile(self) -> None:
        """Handle changes that no message reported to this server; called periodically.

        Trainers may have connected to another server, or another server may have received a cancel. Runs of expired servers are
        claimed, sessions with open assignments get a run, and idle runs are released.
        """
        assert self.launcher is not None
        orphans, mine, waiting = await asyncio.to_thread(self._survey)
        # A run counts as without a trainer in the second call, because an attempt is stored before it is launched.
        missing = {row.run.name for row in mine if not self.launcher.has_trainer(row.run.name, row.run.attempt)}
        due = [*orphans, *sorted(missing & self._without_trainer)]
        for session in dict.fromkeys([*(resource_names.parse_run(name).session for name in due), *waiting]):
            await self.ensure(session)
        self._without_trainer = missing
        watched = dict(self._watched)
        rows = await asyncio.to_thread(self._find_all, watched)
        for name, attempt in watched.items():
            if self._watched.get(name) == attempt:  # otherwise it was launched again meanwhile
                await self._check_watched(self.launcher, name, attempt, rows.get(name))

    async def _check_watched(self, launcher: Launcher, name: str, attempt: int, row: RunRow | None) -> None:
        attempts = range(attempt, attempt + launcher.attempts_per_launch)
        over = row is None or row.ended or row.run.attempt not in attempts
        if not launcher.has_trainer(name, attempt):
            if over:
                self._watched.pop(name, None)
        elif over and (row is None or not row.ended or _overdue(row.run)):
            await launcher.stop(name, attempt)
        elif row is not None and row.run.state == v1.RUN_STATE_RUNNING:
            launcher.trainer_connected(name, attempt)

    async def stop_after_grace(self, name: str, attempt: int) -> None:
        """Stop the trainer of an ended run or attempt if it has not exited after `EXIT_SECONDS`, to free its capacity."""
        assert self.launcher is not None
        await asyncio.sleep(EXIT_SECONDS)
        try:
            row = await asyncio.to_thread(self._find, name)
        except DatabaseLost as lost:
            self._log.warning("the trainer is stopped at the next reconciliation", run=name, error=lost.message)
            return
        over = row is not None and (row.ended or attempt <= row.counted_attempt)
        if over and self.launcher.has_trainer(name, attempt):
            self._log.warning("trainer did not exit and is stopped", run=name, attempt=attempt)
            await self.launcher.stop(name, attempt)
            await self.ensure(resource_names.parse_run(name).session)

    async def logs(self, name: str, *, tail_bytes: int) -> bytes | None:
        """Read the end of the log of a run's trainers; None if no log is kept."""
        return None if self.launcher is None else await self.launcher.logs(name, tail_bytes=tail_bytes)

    def _run_of(self, session: str) -> v1.Run | None:
        """Get or create the session's live run; None if it needs none, or if another server has claimed it."""
        with self._database.begin() as tx:
            tx.lock(resource_names.session_name(session))
            waiting = assignments.open_of(tx, session)
            if not waiting:
                return None
            current = sessions.get(tx, session)
            if current.state in sessions.ENDED or sessions.cancel_reason(tx, session) is not None:
                return None
            row = runs.live_of(tx, session)
            if row is None:
                # A training whose reward cannot be traced moves to CPU cores (decision 0059).
                pool = waiting[0].work.train.pool or current.spec.pool
                return runs.create(tx, session, pool=pool, executor=self._executor).run
            return row.run if runs.claim(tx, row.run.name, self._executor) else None

    def _release(self, session: str) -> str | None:
        """Mark the session's run for release, or end it.

        :return: name of the run if it ended before its trainer connected, so that the launcher has to drop it.
        """
        with self._database.begin() as tx:
            tx.lock(resource_names.session_name(session))
            row = runs.live_of(tx, session)
            if row is None:
                return None
            # A mark in the row: another server may hold the trainer's stream, or an assignment may still be open.
            runs.change(tx, row.run.name, lambda _: {"release": True})
            runs.release_if_idle(tx, row.run.name, idle_seconds=self.idle_seconds, queued_seconds=self.queued_seconds)
            ended = runs.get(tx, row.run.name).ended
            return row.run.name if ended and row.run.state != v1.RUN_STATE_RUNNING else None

    def _survey(self) -> tuple[list[str], list[RunRow], list[str]]:
        """Release idle runs, then list orphaned runs, live runs of this server, and sessions without a run.

        It reads in one snapshot, and writes for a run that is due alone: a write transaction for all runs would block those of
        all sessions on SQLite.
        """
        times = {"idle_seconds": self.idle_seconds, "queued_seconds": self.queued_seconds}
        with self._database.read() as tx:
            orphans = runs.orphans(tx) if self._database.shared else []
            open_ = {row.session for row in assignments.live(tx)}
            claimed = runs.of_executor(tx, self._executor)
            mine = [row for row in claimed if row.session in open_]
            idle = [row for row in claimed if row.session not in open_]
            due = [
                row.run.name for row in idle if row.idle_micros == 0 or runs.seconds_idle_left(tx, row, **times) <= 0
            ]
        for name in due:
            with self._database.begin() as writing:
                runs.release_if_idle(writing, name, **times)
        with self._database.read() as tx:
            return orphans, mine, assignments.waiting_sessions(tx, runs.LIVE)

    def _find_all(self, names: Collection[str]) -> dict[str, RunRow]:
        with self._database.read() as tx:
            return runs.find_all(tx, names)

    def _find(self, name: str) -> RunRow | None:
        with self._database.read() as tx:
            return runs.find(tx, name)

    def _next_attempt(self, name: str, last: int) -> int | None:
        """Begin the attempt after ``last``; None if another caller did, or the run has ended."""
        with self._database.begin() as tx:
            runs.lock(tx, name)
            row = runs.find(tx, name)
            if row is None or row.ended or row.run.attempt != last:
                return None
            attempt_results.interrupt(tx, row)

            # Pods of an earlier Job may have failed without a hello: these attempts have ended and are counted.
            attempt = max(last, row.counted_attempt) + 1

            def begin(run: v1.Run) -> None:
                run.attempt = attempt
                run.state = v1.RUN_STATE_QUEUED

            return runs.change(tx, name, begin).attempt

    def _starting(self, name: str, attempt: int) -> bool:
        with self._database.begin() as tx:
            runs.lock(tx, name)
            row = runs.find(tx, name)
            if row is None or row.run.attempt != attempt or row.run.state != v1.RUN_STATE_QUEUED:
                return False
            if not assignments.open_of(tx, row.session):  # its assignments were cancelled while it was queued
                runs.end(tx, name, v1.RUN_STATE_SUCCEEDED)
                return False

            def start(run: v1.Run) -> None:
                run.state = v1.RUN_STATE_STARTING

            runs.change(tx, name, start)
            return True

    def _apply_result(self, ended: AttemptResult) -> bool:
        with self._database.begin() as tx:
            # If all servers observe the exit, the one that claims the run applies it.
            if not runs.claim(tx, ended.run, self._executor):
                return False
            return attempt_results.apply_result(tx, ended, max_failures=self.max_failures)


def _overdue(run: v1.Run) -> bool:
    """Whether the trainer of an ended run should have exited by now."""
    grace = 0.0 if run.state == v1.RUN_STATE_CANCELLED else EXIT_SECONDS
    return time.time() > run.end_time.ToMicroseconds() / 1e6 + grace
