"""Processor time of this process and all processes below it, for figures that other load on the machine disturbs little."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def tree_seconds() -> float:
    """Return the processor seconds of this process, of its descendants, and of those that have ended and were waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(entry.name)] = int(fields[1])
        spent[int(entry.name)] = sum(map(int, fields[11:15])) / _TICK
    tree, size = {os.getpid()}, 0
    while len(tree) > size:
        size = len(tree)
        tree |= {process for process, parent in parents.items() if parent in tree}
    return sum(spent[process] for process in tree)
