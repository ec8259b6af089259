"""Import this module to load the compiler and the engines of programs ahead, in a process that is kept ready."""

from __future__ import annotations

from dressage.episodes import ahead
from dressage.programs.karel import machine as karel
from dressage.programs.minigrid import machine as minigrid

__all__ = ["ahead", "karel", "minigrid"]
