"""Karel as a family of program tasks; see `dressage.programs.families`. It imports the engine when a task is first played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dressage.programs.karel.tasks import NAMED_TASKS, karel_task
from dressage.programs.syntax import KAREL, Program

if TYPE_CHECKING:
    from dressage.programs.karel.play import Episode
    from dressage.programs.search.parallel import Scorer
    from dressage.programs.trace import World

_MAX_CALLS = 10_000


class KarelFamily:
    """The ten tasks of the published benchmark and its two novel ones."""

    name = "karel"
    language = KAREL
    tasks = tuple(NAMED_TASKS)

    def scorer(self, task: str, profile: str, states: Sequence[int]) -> Scorer:
        """Return what scores programs on initial states."""
        from dressage.programs.karel.scoring import KarelScorer

        return KarelScorer(_worlds(task, profile, states))

    def play(self, task: str, profile: str, program: Program, states: Sequence[int]) -> Sequence[Episode]:
        """Play a program from each state to the end.

        :raises InvalidArgument: for a program that is nested too deeply.
        """
        from dressage.programs.karel.play import play

        return play(program, _worlds(task, profile, states))

    def world(self, task: str, profile: str, state: int) -> World:
        """Return an initial state for a trace."""
        from dressage.programs.karel.stepping import KarelWorld

        return KarelWorld(_worlds(task, profile, (state,)), 0)

    def max_steps(self, task: str) -> int:
        """Return the largest number of perceptions and actions of an episode."""
        return _MAX_CALLS


def _worlds(task: str, profile: Any, states: Sequence[int]) -> Any:
    from dressage.programs.karel.worlds import Worlds

    return Worlds.of(karel_task(task, profile).task_class, states, profile)
