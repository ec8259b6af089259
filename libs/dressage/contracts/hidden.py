"""What the processes of generated code may not read of this installation: rules that policies have to find out.

The rules of small environments contain NoiseWorld's boards and the meaning of their codes; recorded episodes show a part of
them. The processes of rewards, judges, policies and feedback classes need neither: their inputs arrive in messages.
"""

from __future__ import annotations

from pathlib import Path

from dressage.envs.catalogue import catalogue

HIDDEN: tuple[Path, ...] = tuple(
    path
    for entry in catalogue().values()
    # Python's compiled files contain the rules, too.
    for path in (entry.rules_file, entry.rules_file.parent / "__pycache__", entry.trajectories)
)
"""Files and folders to hide from generated code."""
