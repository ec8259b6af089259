"""Initial states of recorded cases, from the ``init`` records of a file; Karel's and Minigrid's differ in their fields."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.errors import InvalidArgument
from dressage.programs.engine.worlds import Worlds
from dressage.programs.karel.layouts import Layout
from dressage.programs.karel.tasks import TASK_CLASSES
from dressage.programs.karel.worlds import Worlds as KarelWorlds
from dressage.programs.minigrid import cells
from dressage.programs.minigrid.layouts import Layout as MinigridLayout
from dressage.programs.minigrid.tasks import TASKS
from dressage.programs.minigrid.worlds import Worlds as MinigridWorlds

_HEADINGS = 4
_COLOURS = 6
_KINDS = {1: cells.EMPTY, 2: cells.WALL, 4: cells.DOOR, 6: cells.BALL, 7: cells.BOX, 8: cells.GOAL, 9: cells.LAVA}
"""Minigrid's numbers of objects."""
_OPEN = 0
"""Minigrid's state of an open door."""


class StoredStates:
    """Initial states by task and seed."""

    def __init__(self) -> None:
        self._layouts: dict[str, dict[int, Any]] = {}
        self._worlds: dict[tuple[str, int | None], Worlds] = {}

    def add(self, record: dict[str, Any]) -> None:
        """Add an ``init`` record.

        :raises InvalidArgument: for an unknown task, or a state that is not one of the task.
        """
        task, seed = record["task"], record["seed"]
        self._layouts.setdefault(task, {})[seed] = _reader(task)(record)
        for key in ((task, seed), (task, None)):
            self._worlds.pop(key, None)

    def one(self, task: str, seed: int) -> Worlds:
        """Return the state of one seed."""
        if seed not in self._layouts.get(task, {}):
            raise InvalidArgument(
                field="seed", problem=f"no initial state of {task}", value=seed, expected="an init record before it"
            )
        return self._worlds_of(task, seed, [seed])

    def all(self, task: str) -> tuple[list[int], Worlds]:
        """Return all seeds of a task in their order, and their states."""
        seeds = sorted(self._layouts.get(task, {}))
        if not seeds:
            raise InvalidArgument(
                field="task", problem="no initial state", value=task, expected="init records before it"
            )
        return seeds, self._worlds_of(task, None, seeds)

    def _worlds_of(self, task: str, key: int | None, seeds: list[int]) -> Worlds:
        if (task, key) not in self._worlds:
            layouts = [self._layouts[task][seed] for seed in seeds]
            if task in TASKS:
                self._worlds[task, key] = MinigridWorlds.from_layouts(TASKS[task], layouts)
            else:
                self._worlds[task, key] = KarelWorlds.from_layouts(TASK_CLASSES[task], layouts)
        return self._worlds[task, key]


def _reader(task: str) -> Callable[[dict[str, Any]], Layout | MinigridLayout]:
    if task in TASKS:
        return minigrid_layout
    if task in TASK_CLASSES:
        return stored_layout
    raise InvalidArgument(
        field="task", problem="unknown task", value=task, expected=f"one of {', '.join((*TASK_CLASSES, *TASKS))}"
    )


def minigrid_layout(record: dict[str, Any]) -> MinigridLayout:
    """Return the layout of a Minigrid ``init`` record, whose cells are (column, row).

    :raises InvalidArgument: for another size, an object that the tasks do not have, or an agent outside of the map.
    """
    task = TASKS[record["task"]]
    _check_size(record, task.height, task.width)
    encoded = np.frombuffer(base64.b64decode(record["grid"]), np.uint8)
    if encoded.size != 3 * task.height * task.width:
        expected = f"{3 * task.height * task.width} bytes in base64"
        raise InvalidArgument(field="grid", problem="wrong size", value=encoded.size, expected=expected)
    objects = encoded.reshape(task.width, task.height, 3)
    grid = np.zeros((task.height, task.width), np.uint8)
    for column in range(task.width):
        for row in range(task.height):
            kind, colour, state = (int(value) for value in objects[column, row])
            if kind not in _KINDS or colour >= _COLOURS:
                expected = f"objects {', '.join(map(str, _KINDS))} and colours below {_COLOURS}"
                raise InvalidArgument(field="grid", problem="unknown object", value=(kind, colour), expected=expected)
            contents = _KINDS[kind]
            colour = 0 if contents == cells.EMPTY else colour
            grid[row, column] = cells.cell(contents, colour, is_open=contents == cells.DOOR and state == _OPEN)
    column, row = record["agent"]
    return MinigridLayout(grid, *_check_agent(record["dir"], row, column, task.height, task.width))


def _check_size(record: dict[str, Any], height: int, width: int) -> None:
    if (record["h"], record["w"]) != (height, width):
        size = (record["h"], record["w"])
        raise InvalidArgument(field="h, w", problem="wrong size", value=size, expected=f"{height} and {width}")


def _check_agent(heading: Any, row: Any, column: Any, height: int, width: int) -> tuple[tuple[int, int], int]:
    inside = all(isinstance(value, int) for value in (heading, row, column))
    if not inside or not (0 <= row < height and 0 <= column < width and 0 <= heading < _HEADINGS):
        raise InvalidArgument(
            field="agent", value=[row, column, heading], expected=f"a cell of {height}x{width} and a heading below 4"
        )
    return (row, column), heading


def stored_layout(record: dict[str, Any]) -> Layout:
    """Return the layout of a Karel ``init`` record.

    :raises InvalidArgument: for another size, or an agent outside of the map.
    """
    task = TASK_CLASSES[record["task"]]
    height, width = task.height, task.width
    _check_size(record, height, width)
    bits = np.unpackbits(np.frombuffer(base64.b64decode(record["walls"]), np.uint8))[: height * width]
    markers = np.array([int(digit, 16) for digit in record["markers"]], np.uint8).reshape(height, width)
    row, column, heading = record["hero"]
    agent, heading = _check_agent(heading, row, column, height, width)
    params = record["params"]
    goal = params.get("marker_position") or params.get("end_marker_cell") or (0, 0)
    return Layout(
        walls=bits.reshape(height, width).astype(bool),
        markers=markers,
        agent=agent,
        heading=heading,
        goal=(goal[0], goal[1]),
        key=tuple(params.get("key_cell", (0, 0))),
        special=_special(record["task"], params, markers),
        food=tuple((cell[0], cell[1]) for cell in record.get("spawn", ())),
    )


def _special(task: str, params: dict[str, Any], markers: NDArray[np.uint8]) -> set[tuple[int, int]]:
    height, width = markers.shape
    if "legal_pos" in params:
        return {divmod(position, width) for position in params["legal_pos"]}
    if task == "WallAvoider":
        inner = {(row, column) for row in range(1, height - 1) for column in range(1, width - 1)}
        return {(row, column) for row, column in inner if row in (1, height - 2) or column in (1, width - 2)}
    cells = params.get("valid_positions") or params.get("goal_markers") or params.get("markers") or ()
    return {(row, column) for row, column in cells}
