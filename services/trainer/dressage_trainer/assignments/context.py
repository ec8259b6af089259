"""What every kind of assignment works with: its context, the wait for what ends it early, and the results it may end in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1.session_pb2 import Failure
from dressage.artifacts.store import Grant
from dressage.errors import DressageError
from dressage.sandbox.output import excerpt
from dressage.sandbox.pipe import ChannelClosed

from dressage_trainer.evaluation.player_pool import PlayerPool
from dressage_trainer.lease.compiled import CompiledCache, Fillings
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.lease.work import REPORTS_BACKED_UP, EarlyEnd, StepGrant, WorkStream
from dressage_trainer.messages import NO_ROOM

Cause = pb.AssignmentFailure.Cause
_SHOWN = 1000


class UntrustedInput(DressageError):
    """What a process with generated code sent or left in its folder cannot be used: the code is to blame, not the machine."""

    default_reason = "SANDBOX_OUTPUT_REFUSED"


@contextmanager
def blame_sender(sender: str) -> Iterator[None]:
    """Blame a process with generated code for every failure in using what it sent, whatever the failure is.

    A full disk, reports that no orchestrator accepts and the end of the process itself are not its doing.

    :param sender: for the message, as "the learner".
    :raises UntrustedInput: in place of what was raised.
    """
    try:
        yield
    except (ChannelClosed, UntrustedInput):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
        if isinstance(error, DressageError) and error.reason == REPORTS_BACKED_UP:
            raise
        text = error.message if isinstance(error, DressageError) else f"{type(error).__name__}: {error}"
        raise UntrustedInput(f"{sender} sent what cannot be used: {excerpt(text, _SHOWN)}") from error


@dataclass(frozen=True)
class AssignmentContext:
    """One assignment in progress.

    :param work: stream to the orchestrator.
    :param assignment: the assignment.
    :param scratch: fresh folder of this assignment alone; the supervisor removes it once the assignment has ended.
    :param terminate: set on SIGTERM and near the deadline: store what a resume needs, and return None.
    :param cancelled: set when the orchestrator cancels this assignment or stops the trainer: return None at once.
    :param sandboxes: starts sandboxed processes, and keeps spare ones between assignments.
    :param early_end: whether a training is to end early; requested at any time by the orchestrator.
    :param step_grant: until when a training may continue; raised at any time by the orchestrator.
    :param allow_unsandboxed: run generated code even where the kernel lacks a sandbox.
    :param compiled: updates and kernels that were compiled before; None: processes compile in memory.
    :param fillings: adds updates to them in the background.
    :param players: players of candidates that stay warm over the lease; None: an evaluation starts its own.
    """

    work: WorkStream
    assignment: pb.Assignment
    scratch: Path
    terminate: asyncio.Event
    cancelled: asyncio.Event
    sandboxes: Sandboxes
    early_end: EarlyEnd = field(default_factory=EarlyEnd)
    step_grant: StepGrant = field(default_factory=StepGrant)
    allow_unsandboxed: bool = False
    compiled: CompiledCache | None = None
    fillings: Fillings | None = None
    players: PlayerPool | None = None

    def report(self, item: str, **body: Any) -> None:
        """Queue a report about this assignment, unless the assignment is cancelled.

        :param item: what the report is about (see ``Report.item``); empty for what is not kept.
        :param body: the report's body by the name of its field, as ``progress=pb.ProgressReport(...)``.
        """
        if not self.cancelled.is_set():
            self.work.report(pb.Report(assignment=self.assignment.id, item=item, **body))

    def finished(self, item: str) -> bool:
        """Return whether an earlier attempt's report of this item was accepted."""
        return item in self._finished_items

    @cached_property
    def _finished_items(self) -> frozenset[str]:
        return frozenset(self.assignment.finished_items)

    async def grants(self, *, put: Mapping[str, int] | None = None, get: Sequence[str] = ()) -> dict[str, Grant]:
        """Request grants to put and get files of this assignment; `files.put_files` and `files.get_file` take this context.

        :param put: sizes in bytes by key relative to the assignment.
        :param get: keys relative to the assignment, or full ones below its session.
        :returns: a grant by key.
        :raises FailedPrecondition: if the orchestrator refuses.
        :raises Unavailable: if it does not answer in time.
        """
        return await self.work.grants(self.assignment.id, put=put or {}, get=get)


class StepRate:
    """Environment steps per second between two reports."""

    def __init__(self) -> None:
        self._time, self._steps = time.monotonic(), 0

    def at(self, steps: int) -> float:
        """Return the rate since the last call.

        :param steps: environment steps so far.
        """
        now = time.monotonic()
        rate = (steps - self._steps) / max(1e-9, now - self._time)
        self._time, self._steps = now, steps
        return max(0.0, rate)


async def first_of(*awaited: asyncio.Event | asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait until one of these has happened, or for ``timeout`` seconds. The caller checks which, in its own order.

    :param awaited: events and futures. The futures are not cancelled, and their results are not retrieved.
    """
    waits = [asyncio.ensure_future(one.wait()) for one in awaited if isinstance(one, asyncio.Event)]
    futures = [one for one in awaited if not isinstance(one, asyncio.Event)]
    try:
        await asyncio.wait([*waits, *futures], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def assignment_failed(reason: str, message: str, cause: Cause.ValueType, *, remedy: str = "") -> pb.AssignmentResult:
    """Return the result of an assignment that failed.

    :param cause: who is to blame: with `CAUSE_INFRASTRUCTURE` another attempt may succeed.
    :param remedy: what the user can do about it.
    """
    failure = Failure(reason=reason, message=message, remedy=remedy)
    return pb.AssignmentResult(failure=pb.AssignmentFailure(failure=failure, cause=cause))


def generated_code_failed(reason: str, message: str) -> pb.AssignmentResult:
    """Return the result where generated code is to blame."""
    return assignment_failed(reason, message, pb.AssignmentFailure.CAUSE_GENERATED_CODE)


def assignment_refused(reason: str, message: str, *, remedy: str = "") -> pb.AssignmentResult:
    """Return the result where the assignment or its size is to blame, or what another attempt would find again."""
    return assignment_failed(reason, message, pb.AssignmentFailure.CAUSE_ASSIGNMENT, remedy=remedy)


def infrastructure_failed(reason: str, message: str, *, remedy: str = "") -> pb.AssignmentResult:
    """Return the result where the machine is to blame."""
    return assignment_failed(reason, message, pb.AssignmentFailure.CAUSE_INFRASTRUCTURE, remedy=remedy)


def all_members_stopped(failures: Sequence[Failure]) -> pb.AssignmentResult:
    """Return the result where no member is left; the generated code is to blame if any of these causes was the reward.

    :param failures: why each member was stopped, in the members' order; at least one.
    """
    by_reward = [failure for failure in failures if failure.reason.startswith("REWARD")]
    message = f"no member could continue: {[*by_reward, *failures][0].message}"
    result = generated_code_failed if by_reward else assignment_refused
    return result("ALL_MEMBERS_STOPPED", message)
