"""Calls of generated code, written by the sandboxed process that makes them and read by its parent.

Both share one page. The process writes to it when a call begins and when it returns. The parent needs neither a thread nor a
message of the process, so code that holds the interpreter's lock for ever, as ``sum(range(10**15))`` does, is noticed too.

`StallWatch` decides when a call does not return. It counts processor time of the calling thread, so that neither a
suspended nor an overloaded machine makes a call look stalled, and work outside of calls (compilation, updates, files) never
counts. Code that forges the page escapes it, and is still subject to every other limit and to the deadline of its run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

_BYTES = 24
"""Three unsigned words: number of begun and returned calls (odd: a call is in progress), thread, longest call in ns."""
_CALLS, _THREAD, _LONGEST = range(3)

FLOOR_SECONDS = 10.0
"""A call may always take this long."""
CEILING_SECONDS = 45.0
"""No call may take longer. The slowest reward that passes its check takes a third of it for its largest batch (65,536 rows
of 0.25 ms). With the time to notice and to end the process, a call on a free core ends within a minute."""
SLOWER_THAN_BEFORE = 20.0
"""Between floor and ceiling a call may take this multiple of the longest call that returned."""
ASLEEP_SECONDS = 300.0
"""A call may sleep this long. Sleep costs little, and the threads of a library may be why it waits."""
STACK_SIGNAL = signal.SIGUSR1
"""On this signal the process writes the stacks of its threads to its standard error, also while code holds the lock."""
_MAX_STEP = 1.0
"""Seconds that may pass between two samples; more means that the watcher itself did not run."""


class Heartbeat:
    """The process's side of the page. Calls must be made by one thread; calls within a call are part of it.

    :param page: the page's bytes, writable.
    """

    def __init__(self, page: memoryview) -> None:
        self._words = page[:_BYTES].cast("Q")
        self._began = self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._words[_THREAD] = threading.get_native_id()
        self._began = time.thread_time_ns()
        self._words[_CALLS] += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._words[_LONGEST] = max(self._words[_LONGEST], time.thread_time_ns() - self._began)
        self._words[_CALLS] += 1


class _State:
    """The heartbeat of this process; no parent reads it before `attach` is called."""

    current = Heartbeat(memoryview(bytearray(_BYTES)))


def attach(descriptor: int) -> None:
    """Write calls to the page of this descriptor from now on, and write stacks on `STACK_SIGNAL`; closes the descriptor."""
    page = mmap.mmap(descriptor, mmap.PAGESIZE)
    os.close(descriptor)
    _State.current = Heartbeat(memoryview(page))
    faulthandler.register(STACK_SIGNAL, file=sys.stderr, all_threads=True)


def heartbeat() -> Heartbeat:
    """Return this process's heartbeat, a context for each call of generated code."""
    return _State.current


@dataclass(frozen=True)
class Beat:
    """What the page holds at one time. A sandboxed process may write anything."""

    calls: int = 0
    thread: int = 0
    longest_seconds: float = 0.0

    @property
    def calling(self) -> bool:
        """Whether a call is in progress."""
        return self.calls % 2 == 1


class Page:
    """The parent's side: a file in memory of which the process maps one page. The parent reads it and does not map it, so
    that a process that shortens it cannot harm the parent."""

    def __init__(self) -> None:
        self.descriptor = _memory_file() if hasattr(os, "memfd_create") else _temporary_file()
        """Passed to the process."""
        weakref.finalize(self, os.close, self.descriptor)

    def read(self) -> Beat:
        """Return what the page holds."""
        data = os.pread(self.descriptor, _BYTES, 0)
        if len(data) < _BYTES:
            return Beat()
        words = memoryview(data).cast("Q")
        return Beat(words[_CALLS], words[_THREAD], words[_LONGEST] / 1e9)


def _memory_file() -> int:
    """Return a file of one page that stays so: pages of such a file do not count as a process's memory."""
    descriptor = os.memfd_create("heartbeat", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return descriptor


def _temporary_file() -> int:
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), mmap.PAGESIZE)
        return os.dup(file.fileno())


@dataclass(frozen=True)
class ThreadTime:
    """A thread at one time.

    :param cpu_seconds: processor time.
    :param asleep: it waits for something else than a processor or a disk.
    """

    cpu_seconds: float
    asleep: bool


def thread_time(pid: int, thread: int) -> ThreadTime | None:
    """Return the state of a process's thread; None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()
        return ThreadTime((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == "S")
    return None


def seconds_allowed(longest: float, ceiling: float = CEILING_SECONDS) -> float:
    """Return the processor seconds that a call may take.

    :param longest: of the calls that returned; 0 if none did.
    """
    if longest <= 0:
        return ceiling
    return min(ceiling, max(FLOOR_SECONDS, SLOWER_THAN_BEFORE * longest))


class StallWatch:
    """Decides from samples whether a call of generated code has stalled.

    :param ceiling: processor seconds that no call may exceed.
    """

    def __init__(self, ceiling: float) -> None:
        self._ceiling = ceiling
        self._calls = 0
        self._cpu: float | None = None
        self._spent = self._slept = self._last = 0.0

    def observe(self, now: float, beat: Beat, thread: ThreadTime | None) -> str | None:
        """Take a sample.

        :param now: monotonic seconds.
        :param thread: of the call in progress. Where it cannot be read, the time between two samples counts instead.
        :returns: how long the call in progress has taken if that is too long; None otherwise.
        """
        step, self._last = min(_MAX_STEP, now - self._last), now
        if not beat.calling or beat.calls != self._calls:
            self._calls = beat.calls
            self._cpu = None if thread is None else thread.cpu_seconds
            self._spent = self._slept = 0.0
            return None
        if thread is None:
            self._spent += step
        else:
            base = self._cpu if self._cpu is not None else thread.cpu_seconds - self._spent
            self._cpu, self._spent = base, max(self._spent, thread.cpu_seconds - base)
            self._slept += step if thread.asleep else 0.0
        # Processor time, so that a suspended or overloaded machine ends no training (decision 0052).
        allowed = seconds_allowed(beat.longest_seconds, self._ceiling)
        if self._spent > allowed:
            return f"a call has not returned after {self._spent:.0f} s of processor time; {allowed:.0f} s are allowed"
        if self._slept > ASLEEP_SECONDS:
            return f"a call sleeps and has not returned for {self._slept:.0f} s"
        return None
