"""Reads the resource usage of a process from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

_KIB = 1024


@dataclass(frozen=True)
class Usage:
    """Resource usage at one time. All zero where there is no /proc."""

    memory_bytes: int = 0
    """Resident and swapped out."""
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
    memory = (int(fields["VmRSS"][0]) + int(fields.get("VmSwap", ["0"])[0])) * _KIB
    return Usage(memory, max(memory, before.peak_memory_bytes), threads, cpu)
