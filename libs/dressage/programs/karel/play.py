"""Plays Karel programs in full; see `dressage.programs.engine.playing`."""

from __future__ import annotations

from dressage.programs.engine.playing import Episode, player
from dressage.programs.karel.machine import KAREL_MACHINE
from dressage.programs.karel.rules import MARKERS
from dressage.programs.syntax import KAREL

__all__ = ["MARKERS", "Episode", "play"]

play = player("karel", KAREL, KAREL_MACHINE).play
"""Play a program in every variation; ``cells & MARKERS`` of an episode are the markers at the end."""
