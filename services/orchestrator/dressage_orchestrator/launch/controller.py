"""Decides what becomes of runs: level-triggered on their rows, with launchers' and trainers' words as hints.

`ensure` may be called at any time for any run: it starts what should be running and is not. An attempt that ended is
repeated or not by how it ended; `max_failures` counts only attempts that ended badly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import metrics, names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import events, runs, sessions
from dressage_orchestrator.database.engine import Database, DatabaseLost, Transaction
from dressage_orchestrator.launch.protocol import Ended, ExitKind, Launch, Launcher, Notice
from dressage_orchestrator.launch.tokens import RunTokens

ALONE = "local"
"""Executor of a server that shares its database with nobody."""

_LEAVE_SECONDS = 60.0
_MAX_CONDITIONS = 50


class RunController:
    """Keeps the runs of this server going.

    Where several servers share the database, each run is claimed by one of them; the others leave it alone for as long
    as that one lives.

    :param max_failures: failed attempts of a run that are repeated.
    :param executor: this server's id.

    Set before use: ``launcher``, ``address`` (of `RunService`), and ``notify``, called with a session's id when the
    state of one of its runs has changed for good.
    """

    def __init__(
        self, database: Database, tokens: RunTokens, *, token_seconds: float, max_failures: int, executor: str = ALONE
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._token_seconds = token_seconds
        self._max_failures = max_failures
        self._executor = executor
        self._watched: dict[str, int] = {}
        self._idle: set[str] = set()
        self._log = structlog.get_logger("dressage.runs")
        self.launcher: Launcher | None = None
        self.address = ""
        self.notify: Callable[[str], None] = lambda session: None

    def cores(self, pool: str) -> int:
        """Cores that a run of that pool may use."""
        return self.launcher.cores(pool) if self.launcher is not None else 1

    async def recover(self) -> int:
        """Takes up all runs that have not ended, after this server started; how many.

        Trainers that the launcher does not know are gone.
        """

        def live() -> list[str]:
            with self._database.read() as tx:
                return [row.run.name for row in runs.live(tx)]

        found = await asyncio.to_thread(live)
        for name in found:
            await self.ensure(name)
        return len(found)

    async def ensure(self, name: str) -> None:
        """Starts a trainer for the run if it wants one and has none."""
        assert self.launcher is not None
        row = await asyncio.to_thread(self._find, name)
        if row is None or row.ended or not await asyncio.to_thread(self._claim, name):
            return
        if self.launcher.knows(name, row.run.attempt):
            self._watched[name] = row.run.attempt
            return
        attempt = await asyncio.to_thread(self._next_attempt, name, row.run.attempt)
        if attempt is None:
            return
        expiry = int(time.time() + self._token_seconds)
        last = attempt + self.launcher.attempts_per_launch - 1
        token = self._tokens.make(name, attempt, expiry=expiry, last=last)

        async def starting() -> bool:
            return await self.starting(name, attempt)

        self._watched[name] = attempt
        self.launcher.submit(Launch(name, attempt, self.address, token, row.run.pool), starting)

    async def starting(self, name: str, attempt: int) -> bool:
        """The attempt's turn has come; False when it is not wanted any more, or has said hello already."""
        return await asyncio.to_thread(self._starting, name, attempt)

    async def heard(self, name: str, attempt: int) -> bool:
        """Whether the attempt's trainer has said hello, to whichever server."""
        row = await asyncio.to_thread(self._find, name)
        return row is None or row.ended or (row.run.attempt >= attempt and row.run.state == v1.RUN_STATE_RUNNING)

    async def given_up(self, name: str) -> bool:
        """Whether the run was cancelled or has failed, so that its trainer is to end."""
        row = await asyncio.to_thread(self._find, name)
        return row is not None and row.run.state in (v1.RUN_STATE_CANCELLED, v1.RUN_STATE_FAILED)

    async def noticed(self, notice: Notice) -> None:
        """Something about a run under way: it becomes a condition of the run and a warning of its session, once."""
        over = await asyncio.to_thread(self._note, notice)
        if over:
            assert self.launcher is not None
            await self.launcher.stop(notice.run)
            await asyncio.to_thread(self.notify, names.parse_run(notice.run).session)

    async def look(self) -> None:
        """Sees to what no word may have reached this server about; called now and then.

        Trainers may have said hello to, or a cancel may have been asked of, another server; runs of a dead one are taken.
        """
        assert self.launcher is not None
        orphans, mine = await asyncio.to_thread(self._of_others)
        # A run of this server's that has no trainer for two looks: its workflow may be another's, which leaves it alone.
        idle = {row.run.name for row in mine if not self.launcher.knows(row.run.name, row.run.attempt)}
        for name in [*orphans, *sorted(idle & self._idle)]:
            await self.ensure(name)
        self._idle = idle
        for name, attempt in list(self._watched.items()):
            row = await asyncio.to_thread(self._find, name)
            attempts = range(attempt, attempt + self.launcher.attempts_per_launch)
            over = row is None or row.ended or row.run.attempt not in attempts
            if not self.launcher.knows(name, attempt):
                if over:
                    self._watched.pop(name, None)
            elif over and (row is None or not row.ended or self._overdue(row.run)):
                await self.launcher.stop(name, attempt)
            elif row is not None and row.run.state == v1.RUN_STATE_RUNNING:
                self.launcher.said_hello(name, attempt)

    async def ended(self, word: Ended) -> None:
        """A trainer ended: its run is done, repeated or failed."""
        again = await asyncio.to_thread(self._after, word)
        if again:
            await self.ensure(word.run)
        else:
            await asyncio.to_thread(self.notify, names.parse_run(word.run).session)

    async def cancel(self, name: str) -> None:
        """Ends a run as CANCELLED and its trainer with it."""
        assert self.launcher is not None

        def mark() -> None:
            with self._database.begin() as tx:
                runs.end(tx, name, v1.RUN_STATE_CANCELLED)

        await asyncio.to_thread(mark)
        await self.launcher.stop(name)

    async def over(self, name: str, attempt: int) -> None:
        """Stops the trainer of a run that has ended, if it does not leave by itself, so that it gives up its place."""
        assert self.launcher is not None
        await asyncio.sleep(_LEAVE_SECONDS)
        try:
            row = await asyncio.to_thread(self._find, name)
        except DatabaseLost as lost:
            self._log.warning("`look` stops the trainer if it stays", run=name, error=lost.message)
            return
        if row is not None and row.ended and self.launcher.knows(name, attempt):
            self._log.warning("trainer did not leave and is stopped", run=name, attempt=attempt)
            await self.launcher.stop(name, attempt)

    async def logs(self, name: str, *, tail_bytes: int) -> bytes | None:
        """The end of the log of a run's trainers; None where nothing is kept."""
        return None if self.launcher is None else await self.launcher.logs(name, tail_bytes=tail_bytes)

    def reopen(self, name: str) -> None:
        """Queues a run again that failed or was cancelled, to go on from its checkpoint (for a resumed session).

        Where all members were stopped, they are tried again: an attempt that is told so ends at once.
        """
        with self._database.begin() as tx:
            runs.lock(tx, name)
            found = runs.get(tx, name).run
            if found.state not in (v1.RUN_STATE_FAILED, v1.RUN_STATE_CANCELLED):
                return

            def edit(run: v1.Run) -> dict[str, Any]:
                run.state = v1.RUN_STATE_QUEUED
                run.ClearField("failure")
                run.ClearField("end_time")
                return {"failures": 0, "code_fault": False}

            runs.change(tx, name, edit)
            if all(member.HasField("failure") for member in found.members):
                for member in found.members:
                    runs.change_member(tx, name, member.name.rpartition("/")[2], _let_go_on)

    @staticmethod
    def _overdue(run: v1.Run) -> bool:
        """Whether its trainer should have left by now."""
        grace = 0.0 if run.state == v1.RUN_STATE_CANCELLED else _LEAVE_SECONDS
        return time.time() > run.end_time.ToMicroseconds() / 1e6 + grace

    def _claim(self, name: str) -> bool:
        with self._database.begin() as tx:
            return runs.claim(tx, name, self._executor)

    def _of_others(self) -> tuple[list[str], list[runs.RunRow]]:
        """Runs whose server is dead, and runs of this one, where there are several; both want or have a trainer."""
        if not self._database.shared:
            return [], []
        with self._database.read() as tx:
            return runs.orphans(tx), runs.claimed(tx, self._executor)

    def _find(self, name: str) -> runs.RunRow | None:
        with self._database.read() as tx:
            return runs.find(tx, name)

    def _next_attempt(self, name: str, seen: int) -> int | None:
        """Begins the next attempt; None when another caller did."""
        begun: list[int] = []

        def edit(run: v1.Run) -> None:
            begun.clear()
            if run.attempt == seen and run.state not in runs.ENDED:
                run.attempt += 1
                run.state = v1.RUN_STATE_QUEUED
                begun.append(run.attempt)

        with self._database.begin() as tx:
            runs.lock(tx, name)
            row = runs.find(tx, name)
            if row is not None and sessions.cancel_reason(tx, row.session) is None:
                runs.change(tx, name, edit)
        return begun[0] if begun else None

    def _starting(self, name: str, attempt: int) -> bool:
        wanted: list[bool] = []

        def edit(run: v1.Run) -> None:
            wanted[:] = [run.attempt == attempt and run.state == v1.RUN_STATE_QUEUED]
            if wanted[0]:
                run.state = v1.RUN_STATE_STARTING

        with self._database.begin() as tx:
            runs.change(tx, name, edit)
        return wanted[0]

    def _after(self, word: Ended) -> bool:
        """Writes what the end of an attempt means; whether another attempt is due."""
        with self._database.begin() as tx:
            # Where all servers hear of an end, the one that claims the run acts on it, and counts it.
            if not runs.claim(tx, word.run, self._executor):
                return False
            row = runs.find(tx, word.run)
            if row is None or row.ended or not word.of(row.run.attempt):
                return False
            if word.kind is ExitKind.CHECKPOINTED:
                return True
            failure = self._failure(row, word)
            if not word.counted:
                metrics.RUN_FAILURES.labels(failure.reason).inc()
            reported = row.run.HasField("failure") or word.final
            if word.kind is ExitKind.CODE_FAULT or reported or row.failures >= self._max_failures:
                fault = word.kind is ExitKind.CODE_FAULT
                runs.end(tx, word.run, v1.RUN_STATE_FAILED, failure, fault=fault)
                return False

            def count(run: v1.Run) -> dict[str, Any]:
                message = f"attempt {word.attempt} failed and is repeated: {failure.message}"
                run.conditions.add(type=failure.reason, message=message, time=timestamp(tx.now))
                return {"failures": row.failures + 1}

            runs.change(tx, word.run, count)
            self._log.warning("run is repeated", run=word.run, attempt=word.attempt, reason=failure.reason)
            return True

    def _note(self, notice: Notice) -> bool:
        """Writes a notice down; whether the run has failed by it, as its trainer said that a repeat would end alike."""
        with self._database.begin() as tx:
            runs.lock(tx, notice.run)  # other servers may have noticed the same
            row = runs.find(tx, notice.run)
            if row is None or row.ended:
                return False
            begin = f"attempt {notice.attempt}: "
            known = [entry for entry in row.run.conditions if entry.type == notice.type]
            if not any(entry.message.startswith(begin) for entry in known):
                self._add_condition(tx, row, notice, begin)
            if not notice.over or row.run.attempt != notice.attempt:
                return False
            if notice.counts and row.run.HasField("failure") and notice.type != "GENERATED_CODE_FAILED":
                runs.end(tx, notice.run, v1.RUN_STATE_FAILED, row.run.failure)
                return True

            def between(run: v1.Run) -> None:
                if run.state in (v1.RUN_STATE_STARTING, v1.RUN_STATE_RUNNING):
                    run.state = v1.RUN_STATE_QUEUED

            runs.change(tx, notice.run, between)
            return False

    def _add_condition(self, tx: Transaction, row: runs.RunRow, notice: Notice, begin: str) -> None:
        message = f"{begin}{notice.message}; {notice.remedy}"

        def add(run: v1.Run) -> None:
            del run.conditions[: max(0, len(run.conditions) + 1 - _MAX_CONDITIONS)]
            run.conditions.add(type=notice.type, message=message, time=timestamp(tx.now))

        runs.change(tx, notice.run, add)
        told = ev.Warning(reason=notice.type, message=message)
        events.append(tx, row.session, ev.Event(warning=told), iteration=row.iteration)
        if notice.counts:
            metrics.RUN_FAILURES.labels(notice.type).inc()
        log = self._log.warning if notice.counts else self._log.info
        log("run condition", run=notice.run, attempt=notice.attempt, type=notice.type, message=notice.message)

    def _failure(self, row: runs.RunRow, word: Ended) -> v1.Failure:
        """Why the attempt failed: in the trainer's own words if it said, else by how it ended."""
        if row.run.HasField("failure"):
            return row.run.failure
        if word.reason:
            return v1.Failure(reason=word.reason, message=word.message, remedy=word.remedy)
        by_kind = {
            ExitKind.CODE_FAULT: ("GENERATED_CODE_FAILED", "the reward failed in training", "change the reward"),
            ExitKind.NO_HELLO: ("TRAINER_SILENT", "the trainer never reported", "see the run's log"),
            ExitKind.DONE: ("TRAINER_LEFT_EARLY", "the trainer ended before its work was done", "see the run's log"),
        }
        default = ("TRAINER_FAILED", "the trainer failed", "see the run's log; if memory ran out, train fewer members")
        reason, said, remedy = by_kind.get(word.kind, default)
        return v1.Failure(reason=reason, message=f"{said}: {word.message}", remedy=remedy)


def _let_go_on(member: v1.Member) -> None:
    member.ClearField("failure")
