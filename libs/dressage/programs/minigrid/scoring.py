"""Scores Minigrid programs."""

from __future__ import annotations

from dressage.programs.engine.grammar import MINIGRID_GRAMMAR, Grammar
from dressage.programs.engine.scoring import ProgramScorer, scoring_kernels
from dressage.programs.engine.worlds import Worlds
from dressage.programs.minigrid.machine import MINIGRID_MACHINE

_KERNELS = scoring_kernels("minigrid", MINIGRID_MACHINE)


class MinigridScorer(ProgramScorer):
    """Scores programs in variations of a Minigrid task."""

    def __init__(self, worlds: Worlds, grammar: Grammar = MINIGRID_GRAMMAR) -> None:
        super().__init__(worlds, grammar, _KERNELS)
