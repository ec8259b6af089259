"""What the processes of generated code may not read of this installation: rules that policies have to find out.

The boards of NoiseWorld and the meaning of their codes are in `dressage.envs.small`, and again in the compiled rules of
`dressage.episodes`; recorded episodes show a part of them. The processes of rewards, judges, policies and feedback classes
need none of these: what they are given arrives in messages.
"""

from __future__ import annotations

from pathlib import Path

from dressage.envs.catalogue import catalogue

_PACKAGE = Path(__file__).resolve().parents[1]

HIDDEN: tuple[Path, ...] = (
    _PACKAGE / "envs" / "small",
    _PACKAGE / "episodes",
    *(entry.trajectories for entry in catalogue().values()),
)
"""Folders to hide from generated code."""
