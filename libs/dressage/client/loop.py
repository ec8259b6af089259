"""An event loop in a thread of its own, for blocking code that uses asyncio's.

Blocking calls then also work inside a running event loop, such as a notebook's. An interrupted call is cancelled on the loop.
The thread is a daemon, so that a loop that was not stopped does not keep the interpreter alive; what still runs on it is
cancelled when the interpreter exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from dressage.errors import FailedPrecondition

T = TypeVar("T")

_STOP_SECONDS = 5.0
_CLOSE_SECONDS = 10.0


class LoopThread:
    """An event loop that runs in a daemon thread until it is stopped.

    A forked child has no such thread: there every call fails at once instead of waiting for ever.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        thread = threading.Thread(target=self.loop.run_forever, name="dressage-client", daemon=True)
        thread.start()
        # Also at the interpreter's exit, where a daemon thread would be frozen in the middle of a call.
        self._stop = weakref.finalize(self, _stop, self.loop, thread, self._pid)

    @property
    def running(self) -> bool:
        """Whether calls can be made."""
        return self._stop.alive and os.getpid() == self._pid

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result; it is cancelled if the caller is interrupted.

        :raises FailedPrecondition: in a forked child, and after `stop`.
        """
        if not self.running:
            work.close()
            message = "the client is closed" if os.getpid() == self._pid else "the client belongs to the parent process"
            raise FailedPrecondition(f"{message}; connect again", reason="CLIENT_CLOSED")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator, each fetched when it is requested."""

        async def fetch() -> tuple[bool, T | None]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        try:
            while True:
                more, item = self.run(fetch())
                if not more:
                    return
                yield item  # type: ignore[misc]  # an item came with more
        finally:
            if self.running:
                self.run(_close(source))

    def stop(self) -> None:
        """Cancel what still runs, then end the loop and its thread. Does nothing when repeated."""
        self._stop()


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result, as `asyncio.run` does, also where an event loop runs in this thread already."""
    loop = LoopThread()
    try:
        return loop.run(work)
    finally:
        loop.stop()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if os.getpid() != pid or not loop.is_running():
        return
    if threading.current_thread() is thread:  # the garbage collector may run anywhere; a thread cannot wait for itself
        loop.call_soon(loop.stop)
        return
    closing = asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
    try:
        closing.result(_CLOSE_SECONDS)
    except TimeoutError:
        closing.cancel()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_STOP_SECONDS)
    if not loop.is_running():
        loop.close()


async def _cancel_all() -> None:
    """What `asyncio.run` does at its end: tasks are cancelled, generators closed, threads of the executor joined."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_asyncgens()
    with contextlib.suppress(RuntimeError):  # at the interpreter's exit, when no thread can be started to wait in
        await loop.shutdown_default_executor()


async def _close(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()
