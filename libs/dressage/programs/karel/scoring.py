"""Scores Karel programs."""

from __future__ import annotations

from dressage.programs.engine.grammar import KAREL_GRAMMAR, Grammar
from dressage.programs.engine.scoring import ProgramScorer, scoring_kernels
from dressage.programs.engine.worlds import Worlds
from dressage.programs.karel.machine import KAREL_MACHINE

_KERNELS = scoring_kernels("karel", KAREL_MACHINE)


class KarelScorer(ProgramScorer):
    """Scores programs in variations of a Karel task."""

    def __init__(self, worlds: Worlds, grammar: Grammar = KAREL_GRAMMAR) -> None:
        super().__init__(worlds, grammar, _KERNELS)
