"""Plays Minigrid programs in full; see `dressage.programs.engine.playing`."""

from __future__ import annotations

from dressage.programs.engine.playing import Episode, player
from dressage.programs.minigrid.machine import MINIGRID_MACHINE
from dressage.programs.syntax import MINIGRID

__all__ = ["Episode", "play"]

play = player("minigrid", MINIGRID, MINIGRID_MACHINE).play
"""Play a program in every variation."""
