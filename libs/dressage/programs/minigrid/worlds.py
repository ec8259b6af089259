"""Initial states of the Minigrid tasks as arrays for the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressage.errors import InvalidArgument
from dressage.programs.engine import worlds as engine
from dressage.programs.minigrid import cells, machine, tasks
from dressage.programs.minigrid.layouts import Layout, layout
from dressage.programs.minigrid.tasks import MinigridTask


class Worlds(engine.Worlds):
    """N variations of a task; a cell holds what `cells` defines, ``facts`` are those of `machine`."""

    @staticmethod
    def of(task: MinigridTask, seeds: Sequence[int]) -> Worlds:
        """Return the variations of these seeds."""
        return Worlds.from_layouts(task, [layout(task, seed) for seed in seeds])

    @staticmethod
    def from_layouts(task: MinigridTask, layouts: Sequence[Layout]) -> Worlds:
        """Return the variations of explicit initial states.

        :raises InvalidArgument: for a state without the box or the doors that the task is about.
        """
        height, width, count = task.height + 2, task.width + 2, len(layouts)
        grids = np.full((count, height, width), cells.cell(cells.WALL, cells.GREY), np.uint8)
        agents = np.zeros((count, 2), np.int64)
        facts = np.zeros((count, machine.FACTS), np.int64)
        for i, state in enumerate(layouts):
            grids[i, 1:-1, 1:-1] = state.grid
            agents[i] = (state.agent[0] + 1) * width + state.agent[1] + 1, state.heading
            facts[i] = [_find(grids[i], *what) for what in _FACTS[task.code]]
        return Worlds(
            task.code,
            height,
            width,
            grids.reshape(count, -1),
            np.zeros((count, 1), np.uint8),
            agents,
            facts,
            np.zeros((count, 1), np.int64),
            best=task.best,
            slack=0.0 if count & (count - 1) == 0 else 1e-9,
        )


_FACTS: dict[int, tuple[tuple[int, int | None], ...]] = {
    tasks.LAVA_GAP: ((cells.GOAL, None), (cells.GOAL, None)),
    tasks.PUT_NEAR: ((cells.BOX, None), (cells.BALL, None)),
    tasks.RED_BLUE_DOOR: ((cells.DOOR, cells.RED), (cells.DOOR, cells.BLUE)),
}
"""Kind and colour of what the facts of a task locate."""


def _find(grid: np.ndarray, kind: int, colour: int | None) -> int:
    flat = grid.ravel()
    mask = flat & cells.KIND == kind
    if colour is not None:
        mask &= flat >> cells.COLOUR_SHIFT & 7 == colour
    places = np.flatnonzero(mask)
    if not len(places):
        what = cells.KINDS[kind] if colour is None else f"{cells.COLOURS[colour]} {cells.KINDS[kind]}"
        raise InvalidArgument(field="initial state", problem=f"no {what}", expected="one")
    return int(places[0])
