"""The classes of Karel's tasks, in two profiles.

``llmgs-v1`` reproduces the published experiment, its quirks included: search and report use the same 32 seeds, and the
agent of WallAvoider is placed without the offset of the border, so that it may start inside a wall. ``corrected`` places
it inside the walls and reports on other seeds than it searches on. Loops are detected by exact states in both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dressage.errors import InvalidArgument

Profile = Literal["llmgs-v1", "corrected"]

STAIR_CLIMBER, STAIR_CLIMBER_SPARSE, MAZE, MAZE_SPARSE = 0, 1, 2, 3
FOUR_CORNERS, FOUR_CORNERS_SPARSE, TOP_OFF, TOP_OFF_SPARSE = 4, 5, 6, 7
HARVESTER, HARVESTER_SPARSE, CLEAN_HOUSE, CLEAN_HOUSE_SPARSE = 8, 9, 10, 11
DOOR_KEY, ONE_STROKE, SEEDER, SNAKE, PATH_FOLLOW, WALL_AVOIDER = 12, 13, 14, 15, 16, 17


@dataclass(frozen=True)
class TaskClass:
    """A way to place the world and to reward an episode."""

    name: str
    code: int
    """Number that the compiled rules use."""
    height: int = 8
    """Rows, border walls included."""
    width: int = 8
    best: float = field(default=1.0, kw_only=True)
    """No episode returns more than this, apart from rounding (below 1e-9)."""
    exact: bool = field(default=False, kw_only=True)
    """Returns are multiples of 1/4 and sums of them are exact, so that the bound holds without an allowance."""


TASK_CLASSES: dict[str, TaskClass] = {
    row.name: row
    for row in (
        TaskClass("StairClimber", STAIR_CLIMBER, 12, 12),
        TaskClass("StairClimberSparse", STAIR_CLIMBER_SPARSE, 12, 12, exact=True),
        TaskClass("Maze", MAZE),
        TaskClass("MazeSparse", MAZE_SPARSE, exact=True),
        TaskClass("FourCorners", FOUR_CORNERS, 12, 12, exact=True),
        TaskClass("FourCornersSparse", FOUR_CORNERS_SPARSE, exact=True),
        TaskClass("TopOff", TOP_OFF, 12, 12),
        TaskClass("TopOffSparse", TOP_OFF_SPARSE, exact=True),
        TaskClass("Harvester", HARVESTER),
        TaskClass("HarvesterSparse", HARVESTER_SPARSE, exact=True),
        TaskClass("CleanHouse", CLEAN_HOUSE, 14, 22),
        TaskClass("CleanHouseSparse", CLEAN_HOUSE_SPARSE, 14, 22, exact=True),
        TaskClass("DoorKey", DOOR_KEY, exact=True),
        TaskClass("OneStroke", ONE_STROKE),
        TaskClass("Seeder", SEEDER),
        TaskClass("Snake", SNAKE),
        TaskClass("PathFollow", PATH_FOLLOW),
        TaskClass("WallAvoider", WALL_AVOIDER, 8, 5),
    )
}

_SPARSE = {"StairClimber": "StairClimberSparse", "Maze": "MazeSparse"}
"""Tasks of the published benchmark whose class has another name."""


def class_of(task: str) -> TaskClass:
    """Return the class of a task of the catalogue."""
    return task_class(_SPARSE.get(task, task))


def task_class(name: str) -> TaskClass:
    """Return a class by its name.

    :raises InvalidArgument: for an unknown name.
    """
    if name not in TASK_CLASSES:
        raise InvalidArgument(
            field="task", problem="unknown Karel task class", value=name, expected=f"one of {', '.join(TASK_CLASSES)}"
        )
    return TASK_CLASSES[name]
