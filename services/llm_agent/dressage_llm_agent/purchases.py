"""Requests to a provider on their way: each ends in the journal, whatever becomes of the caller that asked for it.

A request that was sent is paid for. If its caller disconnects, because it died or its connection was cut, the request continues
until its reply is journalled. A caller that asks for the same reply meanwhile waits for that request instead of sending
another. While the journal cannot be written, the reply is kept in memory and the write is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from dressage.errors import Unavailable
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_before_delay, wait_exponential

from dressage_llm_agent.provider.base import Reply, Usage

T = TypeVar("T")
_WRITE_SECONDS = 600.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


@dataclass
class Purchase:
    """A reply that is being obtained.

    :param usage: what the provider charged for it; None before that, and for a reply of the journal.
    """

    usage: Usage | None = None
    _counted: bool = field(default=False, repr=False)

    def take_usage(self) -> Usage | None:
        """Return the usage to the first caller; None to all others, so that it is counted once."""
        if self._counted:
            return None
        self._counted = self.usage is not None
        return self.usage


Obtain = Callable[[Purchase], Awaitable[Reply]]


class Purchases:
    """The requests on their way, by the entries of the journal that they will fill.

    Their number is bounded by that of the tasks and, after these, by the provider's concurrent requests and their deadlines.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[Purchase, asyncio.Task[Reply]]] = {}

    def join(self, entry: str, obtain: Obtain) -> tuple[Purchase, asyncio.Task[Reply]]:
        """Return the request for an entry that is on its way, or start one.

        :param entry: name of the entry and its request.
        :param obtain: returns the reply once it is journalled.
        """
        if entry in self._pending:
            return self._pending[entry]
        purchase = Purchase()

        async def work() -> Reply:
            return await obtain(purchase)

        task = asyncio.create_task(work(), name=f"reply {entry}")
        self._pending[entry] = (purchase, task)
        task.add_done_callback(lambda done: self._remove(entry, done))
        return purchase, task

    async def drain(self, seconds: float) -> None:
        """Wait so long for the requests on their way, and cancel the rest."""
        tasks = [task for _, task in self._pending.values()]
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=seconds)
            for task in pending:
                task.cancel()

    def _remove(self, entry: str, task: asyncio.Task[Reply]) -> None:
        del self._pending[entry]
        if not task.cancelled() and task.exception() is not None:  # retrieved here: its caller may be gone
            structlog.get_logger("dressage.llm_agent").warning("no reply", entry=entry, error=str(task.exception()))


async def persistently(write: Callable[[], Awaitable[T]], *, seconds: float = _WRITE_SECONDS) -> T:
    """Return the result of a write, which is repeated while the store is unavailable.

    :raises Unavailable: if the store stays away for so many seconds.
    """
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(Unavailable),
        stop=stop_before_delay(seconds),
        wait=wait_exponential(_FIRST_PAUSE, max=_LONGEST_PAUSE),
        before_sleep=_note,
        reraise=True,
    )

    async def attempt() -> T:
        return await write()

    return await retrying(attempt)


def _note(state: RetryCallState) -> None:
    log = structlog.get_logger("dressage.llm_agent")
    error = state.outcome.exception() if state.outcome else None
    log.warning("a reply cannot be journalled yet", error=getattr(error, "message", ""), pause=state.upcoming_sleep)
