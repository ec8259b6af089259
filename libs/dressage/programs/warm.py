"""Compiles the kernels of programs ahead of their use."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dressage.episodes import compiling
from dressage.programs.engine.scoring import ProgramScorer
from dressage.programs.engine.trees import unflatten
from dressage.programs.families import FAMILIES, program_task
from dressage.programs.search.draws import neighbours, random_programs


def compile_kernels(folder: Path) -> None:
    """Compile all kernels of this package into a folder that this process may write; see `dressage.episodes.compiling`."""
    compiling.write_to(folder)
    for family in FAMILIES.values():
        task = program_task(f"{family.name}/{next(iter(family.tasks))}")
        scorer = task.scorer((0,))
        assert isinstance(scorer, ProgramScorer)
        match = scorer.search(np.zeros(0, np.int32), 0, 0, 1, 1, -np.inf, np.arange(1))
        assert match is not None
        scorer.score(match[1])
        program = unflatten(match[1], task.language)
        task.play(program, (0,))
        task.trace(program, 0)
        random_programs(scorer.grammar, 0, 1)
        neighbours(program, scorer.grammar, 0, 1)
