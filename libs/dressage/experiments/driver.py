"""Runs the cells of an experiment on a server, a bounded number at a time, and stores their results.

The state is in the server's sessions and in the folder of results. A session has the id of its cell. After a kill, cells with a
result are left out, sessions that run are waited for, and the other sessions are created. A session that failed, or that ended
at a limit that is larger now, is resumed, not repeated.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_fixed

from dressage.api.v1 import session_pb2 as pb
from dressage.client import AsyncClient
from dressage.errors import (
    AlreadyExists,
    DeadlineExceeded,
    DressageError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from dressage.experiments.cells import Cell, limits_of
from dressage.experiments.records import Record, ResultFolder, exhausted_limit, record_of

T = TypeVar("T")

_ENDED = (
    pb.SESSION_STATE_SUCCEEDED,
    pb.SESSION_STATE_EXHAUSTED,
    pb.SESSION_STATE_FAILED,
    pb.SESSION_STATE_CANCELLED,
)
_FIRST_POLL_SECONDS = 0.25
_LAST_POLL_SECONDS = 5.0
_DEFAULT_MINUTES = 24 * 60.0
_SLACK_MINUTES = 60.0
_OUTAGE_SECONDS = 30.0
_OUTAGE_ATTEMPTS = 10
"""Each takes up to a minute, see `dressage.client.calls`. Sessions continue where only the server has no time to answer."""


@dataclass(frozen=True)
class Failed:
    """A cell without a result, and why; the next `dressage bench` tries it again."""

    cell: Cell
    message: str


@dataclass(frozen=True)
class Outcome:
    """What an experiment has after a run of `dressage bench`."""

    records: Sequence[Record]
    failed: Sequence[Failed]
    total: int


OnCell = Callable[[Cell, Record | None, str, int], None]
"""Called after each cell with its result or, without one, the error; and with the number of cells that are done."""


class Driver:
    """Plays the cells of an experiment.

    A session keeps the episode budget with which it was created: the API has no request that changes it.

    :param machine: description for the results.
    :param on_cell: called after each cell.
    :param on_start: called before the first cell that has no result yet, with the number of those that have one.
    """

    def __init__(
        self,
        client: AsyncClient,
        folder: ResultFolder,
        *,
        parallel: int,
        machine: Mapping[str, Any],
        on_cell: OnCell,
        on_start: Callable[[int], None] = lambda done: None,
        sleep: Callable[[float], Any] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._folder = folder
        self._slots = asyncio.Semaphore(parallel)
        self._machine = machine
        self._on_cell, self._on_start = on_cell, on_start
        self._sleep = sleep
        self._clock = clock
        self._done = 0

    async def run(self, cells: Sequence[Cell]) -> Outcome:
        """Play all cells without a result, and return all results.

        :raises InvalidArgument: if the server refuses the spec of a cell; nothing has been played then.
        """
        known = {record.cell: record for record in self._folder.records()}
        left = [cell for cell in cells if not _finished(cell, known.get(cell.session))]
        await self._check(left)
        self._done = len(cells) - len(left)
        if left:
            self._on_start(self._done)
        failed: list[Failed] = []
        async with asyncio.TaskGroup() as group:
            for cell in left:
                group.create_task(self._cell(cell, failed))
        planned = {cell.session for cell in cells}
        records = [record for record in self._folder.records() if record.cell in planned]
        return Outcome(records, failed, len(cells))

    async def _check(self, cells: Sequence[Cell]) -> None:
        """Let the server validate a spec of each method in each environment, before hours of work."""
        checked = set()
        for cell in cells:
            if (cell.environment, cell.method) in checked:
                continue
            checked.add((cell.environment, cell.method))
            try:
                await self._client.estimate_session(cell.spec)
            except InvalidArgument as error:
                message = f"{cell.method} in {cell.environment}: {error.message}"
                raise InvalidArgument(message, field=error.field, reason=error.reason) from error

    async def _cell(self, cell: Cell, failed: list[Failed]) -> None:
        async with self._slots:
            record, message = None, ""
            try:
                record = await self._play(cell)
                message = "" if record.ended_well else record.reason
            except DressageError as error:  # the other cells continue
                message = error.message
            if message and (record is None or not record.ended_well):
                failed.append(Failed(cell, message))
            self._done += 1
            self._on_cell(cell, record, message, self._done)

    async def _play(self, cell: Cell) -> Record:
        session = await self._through_outages(lambda: self._open(cell))
        deadline = self._clock() + 60 * (cell.limits.get("minutes", _DEFAULT_MINUTES) + _SLACK_MINUTES)
        wait = _FIRST_POLL_SECONDS
        while session.state not in _ENDED:
            if self._clock() > deadline:
                raise DeadlineExceeded(f"{session.name} has not ended; `dressage bench` waits for it again")
            await self._sleep(wait)
            wait = min(_LAST_POLL_SECONDS, 1.3 * wait)
            session = await self._through_outages(lambda: self._client.get_session(cell.session))
        iterations = await self._through_outages(lambda: self._iterations(session.name))
        record = record_of(cell, session, iterations, self._machine)
        try:
            await asyncio.to_thread(self._folder.add, record)
        except OSError as error:
            message = f"{self._folder.path}: the result cannot be written: {error.strerror or error}"
            raise FailedPrecondition(message, reason="RESULT_NOT_WRITTEN") from error
        return record

    async def _iterations(self, session: str) -> list[pb.Iteration]:
        return [iteration async for iteration in self._client.list_iterations(session)]

    async def _through_outages(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while the server is away or does not answer in time, for some minutes at most."""

        def say(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            message = error.message if isinstance(error, DressageError) else error
            print(f"the server does not answer, trying again: {message}", file=sys.stderr)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type((Unavailable, DeadlineExceeded)),
            stop=stop_after_attempt(_OUTAGE_ATTEMPTS),
            wait=wait_fixed(_OUTAGE_SECONDS),
            sleep=self._sleep,
            before_sleep=say,
            reraise=True,
        )

        async def attempt() -> T:  # tenacity awaits coroutine functions alone
            return await call()

        return await retrying(attempt)

    async def _open(self, cell: Cell) -> pb.Session:
        """Return the cell's session: the existing one, resumed if it can continue, or a new one."""
        try:
            session = await self._client.get_session(cell.session)
        except NotFound:
            try:
                return await self._client.create_session(cell.spec, session_id=cell.session, request_id=cell.session)
            except AlreadyExists:  # another `dressage bench` was faster
                session = await self._client.get_session(cell.session)
        if session.HasField("delete_time"):
            message = f"{session.name} is deleted. Restore it with `dressage sessions undelete {cell.session}`"
            raise FailedPrecondition(message, reason="SESSION_DELETED")
        if not _can_go_on(cell, session):
            return session
        more = max(0, cell.spec.max_iterations - session.spec.max_iterations)
        return await self._client.resume_session(
            session.name,
            additional_iterations=more,
            budget=cell.spec.budget,
            request_id=f"{cell.session}/{session.epoch}",
        )


def _finished(cell: Cell, record: Record | None) -> bool:
    """Return whether a result stands: it succeeded, or the limit at which it ended is not larger now."""
    if record is None or not record.ended_well:
        return False
    return record.state == "succeeded" or not _raised(cell, record.limits, record.exhausted_limit)


def _can_go_on(cell: Cell, session: pb.Session) -> bool:
    if session.state in (pb.SESSION_STATE_FAILED, pb.SESSION_STATE_CANCELLED):
        return True
    exhausted = session.state == pb.SESSION_STATE_EXHAUSTED
    return exhausted and _raised(cell, limits_of(session.spec), exhausted_limit(session))


def _raised(cell: Cell, old: Mapping[str, Any], name: str) -> bool:
    """Return whether the limit with the name is larger than it was."""
    return name in old and cell.limits.get(name, 0) > old[name]
