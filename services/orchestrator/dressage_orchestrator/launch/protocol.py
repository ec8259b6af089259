"""What starts trainers: processes of this machine now, Kubernetes Jobs later."""

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
    """

    run: str
    attempt: int
    address: str
    token: str


class ExitKind(Enum):
    """How an attempt's trainer ended."""

    DONE = "done"
    CODE_FAULT = "code_fault"  # the generated code is to blame: a repeat would end alike
    CHECKPOINTED = "checkpointed"  # stopped on purpose after writing a checkpoint
    NO_HELLO = "no_hello"  # killed: it never said hello
    FAILED = "failed"


@dataclass(frozen=True)
class Ended:
    """An attempt's trainer ended.

    :param message: what it wrote last, for people.
    """

    run: str
    attempt: int
    kind: ExitKind
    message: str


Listener = Callable[[Ended], Awaitable[None]]


class Launcher(Protocol):
    """Starts trainers, a bounded number at a time, and tells when they end."""

    cores_per_run: int

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        """Queues an attempt. One of the same run and attempt is left as it is.

        :param starting: awaited when its turn has come; False: it is not wanted any more.
        """
        ...

    def knows(self, run: str, attempt: int) -> bool:
        """Whether the attempt is queued or under way."""
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
        """Ends all trainers."""
        ...
