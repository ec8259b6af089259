"""Minigrid as a family of program tasks; see `dressage.programs.families`. The engine is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dressage.programs.minigrid.tasks import TASKS, minigrid_task
from dressage.programs.syntax import MINIGRID, Program

if TYPE_CHECKING:
    from dressage.programs.engine.playing import Episode
    from dressage.programs.search.parallel import Scorer
    from dressage.programs.trace import World

_MAX_CALLS = 999


class MinigridFamily:
    """Three tasks of Minigrid."""

    name = "minigrid"
    language = MINIGRID
    tasks = tuple(TASKS)

    def scorer(self, task: str, profile: str, states: Sequence[int]) -> Scorer:
        """Return what scores programs on initial states."""
        from dressage.programs.minigrid.scoring import MinigridScorer

        return MinigridScorer(_worlds(task, states))

    def play(self, task: str, profile: str, program: Program, states: Sequence[int]) -> Sequence[Episode]:
        """Play a program from each state to the end.

        :raises InvalidArgument: for a program that is nested too deeply.
        """
        from dressage.programs.minigrid.play import play

        return play(program, _worlds(task, states))

    def world(self, task: str, profile: str, state: int) -> World:
        """Return an initial state for a trace."""
        from dressage.programs.minigrid.stepping import MinigridWorld

        return MinigridWorld(_worlds(task, (state,)), 0)

    def max_steps(self, task: str) -> int:
        """Return the largest number of perceptions and actions of an episode."""
        return _MAX_CALLS


def _worlds(task: str, states: Sequence[int]) -> Any:
    from dressage.programs.minigrid.worlds import Worlds

    return Worlds.of(minigrid_task(task), states)
