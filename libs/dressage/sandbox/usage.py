"""Resource usage of a process, and its wall-clock limit, which does not count the time in which it waits for a processor.

On an overloaded machine a process gets a fraction of a processor, and correct code would exceed its limit. The kernel counts
how long a thread is ready to run and does not run (run delay). Sleep and suspension are no run delay, so a process that sleeps
ends at its limit. A process that starts many threads to delay its main thread uses up its processor time instead.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dressage.sandbox.limits import Limits

_KIB = 1024
_MEMORY = ("VmRSS", "VmSwap", "VmPTE", "HugetlbPages")
"""Parts of a process's memory in /proc. The seccomp filter refuses what is in none of them: shared pages without a file."""
_SHARE = 0.1
"""Least part of the time that a process has waited for a processor where the machine is to blame."""


@dataclass(frozen=True)
class Usage:
    """Resource usage at one time. All zero where there is no /proc."""

    memory_bytes: int = 0
    """Resident, swapped out, huge pages and page tables."""
    peak_memory_bytes: int = 0
    threads: int = 0
    cpu_seconds: float = 0.0
    leader_ended: bool = False
    """The main thread ended while others run. /proc has no memory usage then, so such a process is ended."""


def usage_of(pid: int, before: Usage) -> Usage:
    """Return the current usage of process ``pid``, or ``before``, the last reading, if /proc cannot be read."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return before
    fields = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.splitlines()}
    threads = int(fields["Threads"][0])
    cpu = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    if "VmRSS" not in fields:
        return replace(before, threads=threads, cpu_seconds=cpu, leader_ended=threads > 1)
    memory = sum(int(fields.get(name, ["0"])[0]) for name in _MEMORY) * _KIB
    return Usage(memory, max(memory, before.peak_memory_bytes), threads, cpu)


def run_delay(pid: int) -> float:
    """Return how many seconds the main thread of a process has waited for a processor; 0 where the kernel does not count."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def overdue(limits: Limits, elapsed: float, delayed: float) -> tuple[Literal["timeout", "starved"], str] | None:
    """Return how a process exceeds its wall-clock limit, and the reason in a sentence; None if it does not.

    :param elapsed: seconds since its start.
    :param delayed: seconds of these in which it waited for a processor. Without ``limits.starved_seconds`` they count as well.
    """
    if limits.wall_seconds is None:
        return None
    if limits.starved_seconds is None:
        delayed = 0.0
    own, ends = elapsed - delayed, limits.starved_seconds is not None and elapsed > limits.starved_seconds
    # The two limits are one where a caller's deadline is near.
    if own > limits.wall_seconds or (ends and delayed < _SHARE * elapsed):
        waited = f", without {delayed:.0f} s of waiting for a processor" if delayed >= 1 else ""
        return "timeout", f"it ran longer than {limits.wall_seconds:g} s{waited}"
    if ends:
        return "starved", f"in {elapsed:.0f} s a sandboxed process waited {delayed:.0f} s for a processor"
    return None
