"""What starts trainers: processes of this machine, or Kubernetes Jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True)
class Launch:
    """One attempt of a run to start.

    :param address: host:port of `RunService`.
    :param token: the attempt's run token.
    :param pool: the run's pool.
    :param deadline_seconds: how long the trainer may work before it checkpoints and exits 75; 0: no bound.
    """

    run: str
    attempt: int
    address: str
    token: str
    pool: str = ""
    deadline_seconds: float = 0.0


class ExitKind(Enum):
    """How an attempt's trainer ended."""

    DONE = "done"
    CHECKPOINTED = "checkpointed"  # stopped on purpose after writing a checkpoint
    DEADLINE = "deadline"  # ended by the launcher: it worked for longer than its pool allows
    NO_HELLO = "no_hello"  # killed: it never said hello
    FAILED = "failed"


@dataclass(frozen=True)
class Ended:
    """An attempt's trainer ended.

    :param message: what it wrote last, for people.
    :param last_attempt: the launcher itself repeated the attempt, up to this one; 0 if it did not.
    :param final: another attempt would end alike, so that the session's open assignments fail by it.
    :param counted: notices that count have reported the failures that led here.
    :param reason: stable cause in UPPER_SNAKE_CASE, where the launcher knows better than ``kind`` says.
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

    def of(self, attempt: int) -> bool:
        """Whether it is about that attempt."""
        return self.attempt <= attempt <= max(self.attempt, self.last_attempt)


@dataclass(frozen=True)
class Notice:
    """Something about a run under way that deserves telling.

    :param type: stable cause in UPPER_SNAKE_CASE.
    :param message: what was seen.
    :param remedy: what to do about it.
    :param counts: whether it counts as a failed attempt.
    :param over: whether the attempt is over and the launcher itself begins the next.
    """

    run: str
    attempt: int
    type: str
    message: str
    remedy: str
    counts: bool = False
    over: bool = False


Listener = Callable[[Ended], Awaitable[None]]
Noticer = Callable[[Notice], Awaitable[None]]


class Launcher(Protocol):
    """Starts trainers, a bounded number at a time, and tells when they end."""

    pools: frozenset[str] | None
    """Pools that there are; None: any name will do."""

    attempts_per_launch: int
    """How many attempts one submission may become, as the launcher itself replaces a trainer that was interrupted."""

    placing_seconds: float
    """How long an attempt may wait for its turn although there is room for it."""

    def cores(self, pool: str) -> int:
        """Cores that a run of the pool may use."""
        ...

    async def start(self) -> int:
        """Begins; how many runs have a trainer that an earlier process started and that goes on."""
        ...

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        """Queues an attempt. One of the same run and attempt is left as it is.

        :param starting: awaited when its turn has come; False: it is not wanted any more.
        """
        ...

    def knows(self, run: str, attempt: int) -> bool:
        """Whether the attempt is queued or under way."""
        ...

    def known(self) -> frozenset[str]:
        """Runs that have a trainer queued or under way."""
        ...

    def said_hello(self, run: str, attempt: int) -> None:
        """Its trainer is there."""
        ...

    async def stop(self, run: str, attempt: int | None = None) -> None:
        """Ends a run's trainers, queued or under way: asks, then kills. With an attempt, that one's only."""
        ...

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        """The end of what the run's trainers wrote, all attempts that are kept, oldest first; None if nothing is kept.

        :raises Unavailable: when what keeps it cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Ends all trainers that would not outlive this process by design."""
        ...
