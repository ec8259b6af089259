"""The interface of launchers, which start trainers as local processes or Kubernetes Jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

TRAINER_SILENT = "TRAINER_SILENT"
"""Type of the condition of a run whose trainer has not answered for some time."""


@dataclass(frozen=True)
class Launch:
    """One attempt of a run to start.

    :param address: host:port of `RunService`.
    :param token: the attempt's run token.
    :param pool: the run's pool.
    :param deadline_seconds: how long the trainer may run before it checkpoints and exits with code 75; 0: no limit.
    """

    run: str
    attempt: int
    address: str
    token: str
    pool: str = ""
    deadline_seconds: float = 0.0


class ExitKind(Enum):
    """How an attempt's trainer exited."""

    DONE = "done"
    CHECKPOINTED = "checkpointed"  # exited deliberately after writing a checkpoint
    DEADLINE = "deadline"  # stopped by the launcher at the deadline of its pool
    NO_HELLO = "no_hello"  # killed because it did not connect in time
    FAILED = "failed"


@dataclass(frozen=True)
class AttemptResult:
    """Exit of an attempt's trainer.

    :param message: last output of the trainer, for people.
    :param last_attempt: the last attempt, if the launcher itself restarted the trainer; otherwise 0.
    :param final: a retry would fail in the same way, so the session's open assignments fail.
    :param counted: earlier notices have counted the failure.
    :param reason: stable reason in UPPER_SNAKE_CASE, if the launcher has a more specific one than ``kind``.
    :param remedy: what to do about it.
    """

    run: str
    attempt: int
    kind: ExitKind
    message: str
    last_attempt: int = 0
    final: bool = False
    counted: bool = False
    reason: str = ""
    remedy: str = ""

    def covers(self, attempt: int) -> bool:
        """Whether the result includes that attempt."""
        return self.attempt <= attempt <= max(self.attempt, self.last_attempt)


@dataclass(frozen=True)
class Notice:
    """A condition of a live run that needs attention.

    :param type: stable type in UPPER_SNAKE_CASE.
    :param message: what was observed.
    :param remedy: what to do about it.
    :param counts: whether it counts as a failed attempt.
    :param attempt_ended: whether the attempt has ended and the launcher itself starts the next one.
    """

    run: str
    attempt: int
    type: str
    message: str
    remedy: str
    counts: bool = False
    attempt_ended: bool = False


ResultListener = Callable[[AttemptResult], Awaitable[None]]
NoticeListener = Callable[[Notice], Awaitable[None]]


class Launcher(Protocol):
    """Starts a bounded number of trainers at a time and reports their exits."""

    pools: frozenset[str] | None
    """Available pools; None: any name is accepted."""

    attempts_per_launch: int
    """Maximum number of attempts of one submission, if the launcher itself restarts interrupted trainers."""

    scheduling_seconds: float
    """Time to schedule an attempt for which there is capacity."""

    def cores(self, pool: str) -> int:
        """Number of cores that a run of the pool may use."""
        ...

    async def start(self) -> int:
        """Start the launcher.

        :return: number of runs whose trainer was started by an earlier process and still runs.
        """
        ...

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        """Queue an attempt, unless it is already queued.

        :param starting: awaited before the start; False: the attempt is no longer needed.
        """
        ...

    def has_trainer(self, run: str, attempt: int) -> bool:
        """Whether the attempt is queued or running."""
        ...

    def active_runs(self) -> frozenset[str]:
        """Runs with a queued or running trainer."""
        ...

    def trainer_connected(self, run: str, attempt: int) -> None:
        """Record that the attempt's trainer has connected."""
        ...

    async def stop(self, run: str, attempt: int | None = None) -> None:
        """Terminate a run's queued and running trainers, gracefully at first.

        :param attempt: terminate only that of this attempt.
        """
        ...

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        """Read the end of the logs of all attempts that are kept, oldest first; None if none is kept.

        :raises Unavailable: when the store of the logs cannot be reached.
        """
        ...

    def delete_logs(self, run: str) -> None:
        """Delete the logs of an ended run that this launcher keeps. Call it from any thread."""
        ...

    async def close(self) -> None:
        """Terminate all trainers that are children of this process."""
        ...
