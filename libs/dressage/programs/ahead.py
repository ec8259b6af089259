"""Import this module to load the compiler and the engines of programs ahead, in a process that is kept ready."""

from __future__ import annotations

from dressage.episodes import ahead
from dressage.programs.karel import play as karel_play
from dressage.programs.karel import scoring as karel_scoring
from dressage.programs.minigrid import play as minigrid_play
from dressage.programs.minigrid import scoring as minigrid_scoring

__all__ = ["ahead", "karel_play", "karel_scoring", "minigrid_play", "minigrid_scoring"]
