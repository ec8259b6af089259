"""The Minigrid tasks, in the profiles of `dressage.programs.karel.tasks`.

Their rules are the same in both profiles: ``corrected`` reports on other initial states than it searches on.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressage.errors import InvalidArgument

LAVA_GAP, PUT_NEAR, RED_BLUE_DOOR = 0, 1, 2


@dataclass(frozen=True)
class MinigridTask:
    """A task. Returns are multiples of 1/2, so that their sums are exact."""

    name: str
    code: int
    """Number that the compiled rules use."""
    height: int = 6
    """Rows, border walls included."""
    width: int = 6
    best: float = 1.0
    """No episode returns more."""


TASKS: dict[str, MinigridTask] = {
    task.name: task
    for task in (
        MinigridTask("LavaGap", LAVA_GAP),
        MinigridTask("PutNear", PUT_NEAR),
        MinigridTask("RedBlueDoor", RED_BLUE_DOOR, width=12),
    )
}


def minigrid_task(name: str) -> MinigridTask:
    """Return a task by its name.

    :raises InvalidArgument: for an unknown name.
    """
    if name not in TASKS:
        raise InvalidArgument(
            field="task", problem="unknown Minigrid task", value=name, expected=f"one of {', '.join(TASKS)}"
        )
    return TASKS[name]
