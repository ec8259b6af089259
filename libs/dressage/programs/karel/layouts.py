"""Initial states of the Karel tasks by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.programs.karel import clean_house, tasks
from dressage.programs.karel.tasks import Profile, TaskClass

Cell = tuple[int, int]
NORTH, EAST, SOUTH, WEST = 0, 1, 2, 3
_FOOD_DRAWS = 1024
"""Cells drawn for Snake's food. Twenty foods need about 50; the list starts again should an episode need more."""

# fmt: off
_PUBLISHED_WALL_AVOIDER = (
    (2, 2, 2), (0, 1, 2), (1, 1, 2), (2, 0, 1), (3, 1, 2), (2, 1, 3), (3, 1, 0), (3, 2, 2),
    (4, 1, 3), (0, 0, 3), (3, 0, 0), (2, 1, 1), (3, 0, 1), (4, 0, 2), (4, 0, 0), (4, 0, 0),
    (1, 2, 2), (5, 0, 0), (2, 0, 2), (1, 1, 2), (5, 0, 0), (0, 2, 3), (1, 1, 0), (1, 1, 2),
    (5, 1, 1), (1, 1, 0), (5, 2, 2), (0, 1, 1), (0, 1, 0), (5, 1, 1), (0, 1, 2), (5, 1, 0),
)
# fmt: on
"""Row, column and heading of the published starts, by seed. How the original draws them from the seed is not known."""


@dataclass
class Layout:
    """One initial state. Rows and columns include the border walls."""

    walls: NDArray[np.bool_]
    markers: NDArray[np.uint8]
    agent: Cell
    heading: int = EAST
    goal: Cell = (0, 0)
    """The marker of StairClimber, Maze and DoorKey, or Snake's first food."""
    key: Cell = (0, 0)
    special: set[Cell] = field(default_factory=set)
    """Cells that the task treats specially: steps, corners, cells to top off, the path and its surroundings, the ring."""
    food: tuple[Cell, ...] = ()


def layout(task: TaskClass, seed: int, profile: Profile = "llmgs-v1") -> Layout:
    """Return the initial state of a seed."""
    random = np.random.RandomState(seed)
    walls = np.zeros((task.height, task.width), bool)
    walls[0], walls[-1], walls[:, 0], walls[:, -1] = True, True, True, True
    empty = Layout(walls, np.zeros((task.height, task.width), np.uint8), (1, 1))
    if task.code == tasks.SNAKE:
        empty.food = _food(seed)
    if task.code == tasks.WALL_AVOIDER and profile == "llmgs-v1" and seed < len(_PUBLISHED_WALL_AVOIDER):
        row, column, heading = _PUBLISHED_WALL_AVOIDER[seed]
        return _wall_avoider(empty, row, column, heading)
    if task.code == tasks.WALL_AVOIDER:
        offset = 0 if profile == "llmgs-v1" else 1
        row, column = random.randint(task.height - 2) + offset, random.randint(task.width - 2) + offset
        return _wall_avoider(empty, row, column, random.randint(4))
    return _BUILDERS[task.code](empty, random)


def _stair_climber(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    steps = [(height - 1 - i, i) for i in range(1, width - 1)]
    above = [(row - 1, column) for row, column in steps[:-1]]
    for row, column in steps:
        state.walls[row, column + 1 : column + 3] = True
    first = random.randint(0, len(steps) - 1)
    state.agent, state.goal = steps[first], steps[random.randint(first + 1, len(steps))]
    state.markers[state.goal] = 1
    state.special = {*steps, *above}
    return state


def _maze(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    state.walls[:] = True
    state.agent = (height - 2, 1)
    rooms = {(row, column) for row in range(height - 2, 1, -2) for column in range(1, width - 1, 2)}
    state.walls[state.agent] = False
    seen, stack = {state.agent}, [state.agent]
    while stack:
        row, column = stack.pop()
        near = [(row - 2, column), (row + 2, column), (row, column - 2), (row, column + 2)]
        near = [room for room in near if room in rooms]
        random.shuffle(near)
        for room in near:
            if room not in seen:
                state.walls[room] = state.walls[(row + room[0]) // 2, (column + room[1]) // 2] = False
                seen.add(room)
                stack.append(room)
    goal = state.agent
    while state.walls[goal] or goal == state.agent:
        goal = (random.randint(1, height - 1), random.randint(1, width - 1))
    state.goal = goal
    state.markers[goal] = 1
    return state


def _four_corners(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    state.agent = (height - 2, random.randint(2, width - 2))
    state.special = {(row, column) for row in (1, height - 2) for column in (1, width - 2)}
    return state


def _top_off(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    cells = [(height - 2, column) for column in range(2, width - 1)]
    random.shuffle(cells)
    state.agent = (height - 2, 1)
    state.special = set(cells[: random.randint(1, len(cells))])
    for cell in state.special:
        state.markers[cell] = 1
    return state


def _harvester(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    state.markers[1:-1, 1:-1] = 1
    state.agent = (height - 2, random.randint(2, width - 2))
    return state


def _clean_house(state: Layout, random: Any) -> Layout:
    state.walls = np.array([[cell == "#" for cell in row] for row in clean_house.APARTMENT])
    state.agent, state.heading = clean_house.START, SOUTH
    cells = clean_house.marker_cells()
    for index in random.permutation(len(cells))[: clean_house.RANDOM_MARKERS]:
        state.markers[cells[index]] = 1
    state.markers[clean_house.FIXED_MARKER] = 1
    return state


def _door_key(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    state.walls[:, width // 2] = True
    state.key = (random.randint(1, height - 1), random.randint(1, width // 2))
    state.goal = (random.randint(1, height - 1), random.randint(width // 2 + 1, width - 1))
    state.agent = state.key
    while state.agent == state.key:
        state.agent = (random.randint(1, height - 1), random.randint(1, width // 2))
    state.markers[state.key] = state.markers[state.goal] = 1
    return state


def _one_stroke(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    column = random.randint(1, width - 1)
    state.agent = (random.randint(1, height - 1), column)
    return state


def _seeder(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    column = random.randint(2, width - 2)
    state.agent = (random.randint(1, height - 1), column)
    return state


def _snake(state: Layout, random: Any) -> Layout:
    height, width = state.walls.shape
    state = _seeder(state, random)
    state.goal = (random.randint(1, height - 1), random.randint(1, width - 1))
    state.markers[state.goal] = 1
    return state


def _food(seed: int) -> tuple[Cell, ...]:
    """The generator starts again at each reset, so that food is drawn from the beginning of the seed's numbers."""
    random = np.random.RandomState(seed)
    return tuple((random.randint(1, 7), random.randint(1, 7)) for _ in range(_FOOD_DRAWS))


def _path_follow(state: Layout, random: Any) -> Layout:
    height, _ = state.walls.shape
    moves = [0] * 5 + [1] * 5
    random.shuffle(moves)
    row, column = state.agent = (height - 2, 1)
    state.heading = NORTH
    path = [state.agent]
    for move in moves:
        row, column = (row, column + 1) if move else (row - 1, column)
        path.append((row, column))
    for row, column in path:
        state.markers[row, column] = 1
        state.special |= {(row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)}
    return state


def _wall_avoider(state: Layout, row: int, column: int, heading: int) -> Layout:
    height, width = state.walls.shape
    state.agent, state.heading = (row, column), heading
    inner = {(r, c) for r in range(1, height - 1) for c in range(1, width - 1)}
    state.special = {(r, c) for r, c in inner if r in (1, height - 2) or c in (1, width - 2)}
    return state


_BUILDERS: dict[int, Callable[[Layout, Any], Layout]] = {
    tasks.STAIR_CLIMBER: _stair_climber,
    tasks.STAIR_CLIMBER_SPARSE: _stair_climber,
    tasks.MAZE: _maze,
    tasks.MAZE_SPARSE: _maze,
    tasks.FOUR_CORNERS: _four_corners,
    tasks.FOUR_CORNERS_SPARSE: _four_corners,
    tasks.TOP_OFF: _top_off,
    tasks.TOP_OFF_SPARSE: _top_off,
    tasks.HARVESTER: _harvester,
    tasks.HARVESTER_SPARSE: _harvester,
    tasks.CLEAN_HOUSE: _clean_house,
    tasks.CLEAN_HOUSE_SPARSE: _clean_house,
    tasks.DOOR_KEY: _door_key,
    tasks.ONE_STROKE: _one_stroke,
    tasks.SEEDER: _seeder,
    tasks.SNAKE: _snake,
    tasks.PATH_FOLLOW: _path_follow,
}
