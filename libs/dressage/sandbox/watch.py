"""Reads what a process uses, from /proc and its scratch folder; for the parent's watch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

_KIB = 1024
_MAX_FILES = 20_000


@dataclass(frozen=True)
class Usage:
    """One reading. All zero where there is no /proc."""

    memory_bytes: int = 0
    """Resident and swapped out."""
    peak_memory_bytes: int = 0
    threads: int = 0
    cpu_seconds: float = 0.0
    leader_gone: bool = False
    """The main thread ended while others go on; its memory is no longer shown then, so no such process is tolerated."""


def usage_of(pid: int, before: Usage) -> Usage:
    """Return the present use of process ``pid``; ``before`` is the last reading, kept where nothing can be read."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return before
    fields = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.splitlines()}
    threads = int(fields["Threads"][0])
    cpu = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    if "VmRSS" not in fields:
        return replace(before, threads=threads, cpu_seconds=cpu, leader_gone=threads > 1)
    memory = (int(fields["VmRSS"][0]) + int(fields.get("VmSwap", ["0"])[0])) * _KIB
    return Usage(memory, max(memory, before.peak_memory_bytes), threads, cpu)


def scratch_size(folder: Path, enough: int) -> int:
    """Return the bytes on disk below ``folder``, counting no further than ``enough`` or 20,000 entries.

    A folder with more entries than that counts as over any bound: its names alone would fill the disk.
    """
    total = entries = 0
    pending = [str(folder)]
    while pending and total <= enough:
        try:
            with os.scandir(pending.pop()) as listing:
                for entry in listing:
                    entries += 1
                    if entries > _MAX_FILES:
                        return max(enough + 1, total)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # removed while we looked
    return total
