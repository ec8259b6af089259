"""Has a trainer work for each session that has open assignments.

It is level-triggered on rows; messages of launchers and trainers are hints.
`ensure` may be called at any time for any session: it makes the run that is missing and starts the trainer that is missing.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable

import structlog
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import names
from dressage_orchestrator.database import assignments, runs, sessions
from dressage_orchestrator.database.engine import Database, DatabaseLost
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.launch import ends
from dressage_orchestrator.launch.protocol import Ended, Launch, Launcher, Notice
from dressage_orchestrator.launch.tokens import RunTokens

ALONE = "local"
"""Executor of a server that does not share its database."""

LEAVE_SECONDS = 60.0
"""How long a trainer may take to leave once its run has ended."""


class RunController:
    """Keeps this server's runs going.

    Where several servers share the database, each run is claimed by one of them; the others leave its trainers to it for as
    long as that one lives.

    :param max_failures: failures of an assignment that are repeated.
    :param idle_seconds: how long a run may be without an assignment before it is given back.
    :param deadline_seconds: how long a trainer may work before it checkpoints and exits 75; 0: no bound.
    :param executor: this server's id.

    Set before use: ``launcher``, ``address`` (of `RunService`), and ``notify``, called in a worker thread with a session's id
    when one of its assignments has news.
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
        executor: str = ALONE,
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._token_seconds = token_seconds
        self._deadline_seconds = deadline_seconds
        self._executor = executor
        self._watched: dict[str, int] = {}
        self._without_trainer: set[str] = set()
        self._ensuring: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._log = structlog.get_logger("dressage.runs")
        self.max_failures = max_failures
        self.idle_seconds = idle_seconds
        self.launcher: Launcher | None = None
        self.address = ""
        self.notify: Callable[[str], None] = lambda session: None

    @property
    def queued_seconds(self) -> float:
        """How long a run may be QUEUED although there is room for its trainer."""
        return self.launcher.placing_seconds if self.launcher is not None else 0.0

    def cores(self, pool: str) -> int:
        """Cores that a run of that pool may use."""
        return self.launcher.cores(pool) if self.launcher is not None else 1

    async def recover(self) -> int:
        """Resume all sessions that have open assignments, after this server started; how many they are.

        Trainers that the launcher does not know are gone.
        """

        def unfinished() -> list[str]:
            with self._database.read() as tx:
                return list(dict.fromkeys(row.session for row in assignments.live(tx)))

        found = await asyncio.to_thread(unfinished)
        for session in found:
            await self.ensure(session)
        return len(found)

    async def ensure(self, session: str) -> None:
        """Have a trainer work for the session if it has open assignments."""
        assert self.launcher is not None
        async with self._ensuring.setdefault(session, asyncio.Lock()):
            run = await asyncio.to_thread(self._run_of, session)
            if run is None:
                return
            if self.launcher.knows(run.name, run.attempt):
                self._watched[run.name] = run.attempt
                return
            attempt = await asyncio.to_thread(self._next_attempt, run.name, run.attempt)
            if attempt is not None:
                self._submit(self.launcher, run, attempt)

    def _submit(self, launcher: Launcher, run: v1.Run, attempt: int) -> None:
        expiry = int(time.time() + self._token_seconds)
        last = attempt + launcher.attempts_per_launch - 1
        token = self._tokens.make(run.name, attempt, expiry=expiry, last=last)

        async def starting() -> bool:
            return await self.starting(run.name, attempt)

        self._watched[run.name] = attempt
        deadline = self._deadline_seconds
        launcher.submit(Launch(run.name, attempt, self.address, token, run.pool, deadline_seconds=deadline), starting)

    async def release(self, session: str) -> None:
        """Give the session's run back: at once, or as soon as its open assignments have ended.

        Called where no assignment follows soon: while a person or a provider is waited for, and at the session's end. A later
        assignment takes this back, or gets the next run.
        """
        assert self.launcher is not None
        ended = await asyncio.to_thread(self._release, session)
        if ended is not None:
            await self.launcher.stop(ended)

    async def cancel(self, session: str) -> None:
        """End all open assignments and runs of a session as CANCELLED and stop their trainers."""
        assert self.launcher is not None

        def mark() -> list[str]:
            with self._database.begin() as tx:
                tx.lock(names.session_name(session))
                for entry in assignments.open_of(tx, session):
                    assignments.end(tx, entry.name, v1.ASSIGNMENT_STATE_CANCELLED)
                found = [row.run.name for row in runs.live(tx, session)]
                for name in found:
                    runs.end(tx, name, v1.RUN_STATE_CANCELLED)
                return found

        for name in await asyncio.to_thread(mark):
            await self.launcher.stop(name)
        await asyncio.to_thread(self.notify, session)

    async def cancel_assignment(self, name: str) -> None:
        """End an assignment as CANCELLED; its trainer stops it and waits for the next. One that has ended stays as it is."""
        session = names.parse_assignment(name).session

        def mark() -> None:
            with self._database.begin() as tx:
                assignments.end(tx, name, v1.ASSIGNMENT_STATE_CANCELLED)
                row = runs.live_of(tx, session)
                if row is not None and row.run.assignment == name:
                    runs.work_on(tx, row.run.name, "")

        await asyncio.to_thread(mark)
        await asyncio.to_thread(self.notify, session)

    async def starting(self, name: str, attempt: int) -> bool:
        """Note that the attempt's turn has come; False when it is not needed any more, or its trainer is there already."""
        return await asyncio.to_thread(self._starting, name, attempt)

    async def hello_received(self, name: str, attempt: int) -> bool:
        """Whether the attempt's trainer has said hello, to whichever server."""
        row = await asyncio.to_thread(self._find, name)
        return row is None or row.ended or (row.run.attempt >= attempt and row.run.state == v1.RUN_STATE_RUNNING)

    async def abandoned(self, name: str) -> bool:
        """Whether the run was cancelled or has failed, so that its trainer is to end."""
        row = await asyncio.to_thread(self._find, name)
        return row is not None and row.run.state in (v1.RUN_STATE_CANCELLED, v1.RUN_STATE_FAILED)

    async def noticed(self, notice: Notice) -> None:
        """Apply a notice of the launcher or of a trainer's hello (see `ends.apply_notice`)."""
        assert self.launcher is not None

        def note() -> bool:
            with self._database.begin() as tx:
                return ends.apply_notice(tx, notice, max_failures=self.max_failures)

        if await asyncio.to_thread(note):
            await self.launcher.stop(notice.run)
        if notice.over:
            await asyncio.to_thread(self.notify, names.parse_run(notice.run).session)

    async def ended(self, ended: Ended) -> None:
        """Apply the end of a trainer and start the next attempt if one is needed."""
        again = await asyncio.to_thread(self._apply_end, ended)
        session = names.parse_run(ended.run).session
        if again:
            await self.ensure(session)
        await asyncio.to_thread(self.notify, session)

    async def look(self) -> None:
        """Find what no message may have reported to this server; called periodically.

        Trainers may have said hello to, or a cancel may have reached, another server; runs of a dead one are claimed; sessions
        with open assignments get a run; idle runs are given back.
        """
        assert self.launcher is not None
        orphans, mine, waiting = await asyncio.to_thread(self._survey)
        # A run of this server's without a trainer for two looks: an attempt may just be between its row and its launch.
        lacking = {row.run.name for row in mine if not self.launcher.knows(row.run.name, row.run.attempt)}
        due = [*orphans, *sorted(lacking & self._without_trainer)]
        for session in dict.fromkeys([*(names.parse_run(name).session for name in due), *waiting]):
            await self.ensure(session)
        self._without_trainer = lacking
        for name, attempt in list(self._watched.items()):
            await self._check_watched(self.launcher, name, attempt)

    async def _check_watched(self, launcher: Launcher, name: str, attempt: int) -> None:
        row = await asyncio.to_thread(self._find, name)
        attempts = range(attempt, attempt + launcher.attempts_per_launch)
        over = row is None or row.ended or row.run.attempt not in attempts
        if not launcher.knows(name, attempt):
            if over:
                self._watched.pop(name, None)
        elif over and (row is None or not row.ended or _overdue(row.run)):
            await launcher.stop(name, attempt)
        elif row is not None and row.run.state == v1.RUN_STATE_RUNNING:
            launcher.said_hello(name, attempt)

    async def stop_unless_gone(self, name: str, attempt: int) -> None:
        """Stop the trainer of a run or attempt that has ended if it does not leave by itself, so that it gives up its place."""
        assert self.launcher is not None
        await asyncio.sleep(LEAVE_SECONDS)
        try:
            row = await asyncio.to_thread(self._find, name)
        except DatabaseLost as lost:
            self._log.warning("`look` stops the trainer if it stays", run=name, error=lost.message)
            return
        over = row is not None and (row.ended or attempt <= row.counted_attempt)
        if over and self.launcher.knows(name, attempt):
            self._log.warning("trainer did not leave and is stopped", run=name, attempt=attempt)
            await self.launcher.stop(name, attempt)
            await self.ensure(names.parse_run(name).session)

    async def logs(self, name: str, *, tail_bytes: int) -> bytes | None:
        """Read the end of the log of a run's trainers; None where nothing is kept."""
        return None if self.launcher is None else await self.launcher.logs(name, tail_bytes=tail_bytes)

    def _run_of(self, session: str) -> v1.Run | None:
        """The session's live run, made if need be; None if it needs none, or if another server starts its trainers."""
        with self._database.begin() as tx:
            tx.lock(names.session_name(session))
            if not assignments.open_of(tx, session):
                return None
            found = sessions.get(tx, session)
            if found.state in sessions.ENDED or sessions.cancel_reason(tx, session) is not None:
                return None
            row = runs.live_of(tx, session)
            if row is None:
                return runs.create(tx, session, pool=found.spec.pool, executor=self._executor).run
            return row.run if runs.claim(tx, row.run.name, self._executor) else None

    def _release(self, session: str) -> str | None:
        """Mark the session's run, or end it; the name of one whose trainer has not said hello and is not needed."""
        with self._database.begin() as tx:
            tx.lock(names.session_name(session))
            row = runs.live_of(tx, session)
            if row is None:
                return None
            runs.change(tx, row.run.name, lambda _: {"release": True})
            runs.give_back(tx, row.run.name, idle_seconds=self.idle_seconds, queued_seconds=self.queued_seconds)
            ended = runs.get(tx, row.run.name).ended
            return row.run.name if ended and row.run.state != v1.RUN_STATE_RUNNING else None

    def _survey(self) -> tuple[list[str], list[RunRow], list[str]]:
        """Give idle runs back; then runs of dead servers, live runs of this one, and sessions that lack a run."""
        with self._database.begin() as tx:
            orphans = runs.orphans(tx) if self._database.shared else []
            for row in runs.claimed(tx, self._executor):
                runs.give_back(tx, row.run.name, idle_seconds=self.idle_seconds, queued_seconds=self.queued_seconds)
            waiting = assignments.waiting_sessions(tx, runs.LIVE)
            open_ = {row.session for row in assignments.live(tx)}
            mine = [row for row in runs.claimed(tx, self._executor) if row.session in open_]
            return orphans, mine, waiting

    def _find(self, name: str) -> RunRow | None:
        with self._database.read() as tx:
            return runs.find(tx, name)

    def _next_attempt(self, name: str, seen: int) -> int | None:
        """Begin the next attempt; None when another caller did, or the run has ended."""
        with self._database.begin() as tx:
            runs.lock(tx, name)
            row = runs.find(tx, name)
            if row is None or row.ended or row.run.attempt != seen:
                return None
            ends.interrupt(tx, row)

            # Pods of an earlier Job may have failed without a hello: their attempts are counted, and over.
            attempt = max(seen, row.counted_attempt) + 1

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
            if not assignments.open_of(tx, row.session):  # its work was cancelled while it waited for a place
                runs.end(tx, name, v1.RUN_STATE_SUCCEEDED)
                return False

            def start(run: v1.Run) -> None:
                run.state = v1.RUN_STATE_STARTING

            runs.change(tx, name, start)
            return True

    def _apply_end(self, ended: Ended) -> bool:
        with self._database.begin() as tx:
            # Where all servers learn of an end, the one that claims the run applies it.
            if not runs.claim(tx, ended.run, self._executor):
                return False
            return ends.apply_end(tx, ended, max_failures=self.max_failures)


def _overdue(run: v1.Run) -> bool:
    """Whether the trainer of an ended run should have left by now."""
    grace = 0.0 if run.state == v1.RUN_STATE_CANCELLED else LEAVE_SECONDS
    return time.time() > run.end_time.ToMicroseconds() / 1e6 + grace
