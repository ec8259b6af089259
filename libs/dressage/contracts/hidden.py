"""What the processes of generated code may not read of this installation: rules that policies have to find out.

The rules of small environments contain NoiseWorld's boards and the meaning of their codes; recorded episodes show a part of
them. The processes of rewards, judges, policies and feedback classes need neither: their inputs arrive in messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dressage.envs.catalogue import Entry, catalogue


def _paths(entry: Entry) -> Iterator[Path]:
    """Yield what to hide of an environment. Each path costs time at the start of a process."""
    if entry.trajectories.exists():
        yield entry.trajectories
    if entry.rules_file.exists():
        yield entry.rules_file
        yield entry.rules_file.parent / "__pycache__"  # Python's compiled files contain the rules, too


HIDDEN: tuple[Path, ...] = tuple(dict.fromkeys(path for entry in catalogue().values() for path in _paths(entry)))
"""Files and folders to hide from generated code."""
