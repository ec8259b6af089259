"""Initial states of Karel's tasks as arrays for the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressage.programs.engine import worlds as engine
from dressage.programs.karel import rules, tasks
from dressage.programs.karel.layouts import Cell, Layout, layout
from dressage.programs.karel.tasks import Profile, TaskClass


class Worlds(engine.Worlds):
    """N variations of a task. A cell holds its number of markers, plus 16 for a wall; ``facts`` are those of `rules`."""

    @staticmethod
    def of(task: TaskClass, seeds: Sequence[int], profile: Profile = "llmgs-v1") -> Worlds:
        """Return the variations of these seeds."""
        return Worlds.from_layouts(task, [layout(task, seed, profile) for seed in seeds])

    @staticmethod
    def from_layouts(task: TaskClass, layouts: Sequence[Layout]) -> Worlds:
        """Return the variations of explicit initial states."""
        height, width = task.height + 2, task.width + 2

        def offset(cell: Cell) -> int:
            return (cell[0] + 1) * width + cell[1] + 1

        count = len(layouts)
        cells = np.full((count, height, width), rules.WALL, np.uint8)
        special = np.zeros((count, height * width), np.uint8)
        facts = np.zeros((count, rules.FACTS), np.int64)
        agents = np.zeros((count, 2), np.int64)
        food = np.zeros((count, max(1, *(len(state.food) for state in layouts))), np.int64)
        for i, state in enumerate(layouts):
            cells[i, 1:-1, 1:-1] = state.markers + rules.WALL * state.walls.astype(np.uint8)
            agents[i] = offset(state.agent), state.heading
            for cell in state.special:
                special[i, offset(cell)] = 1
            food[i, : len(state.food)] = [offset(cell) for cell in state.food]
            distance = abs(state.agent[0] - state.goal[0]) + abs(state.agent[1] - state.goal[1])
            goal_cell = (state.goal[0] + 1) << 16 | (state.goal[1] + 1)
            facts[i] = (
                offset(state.goal),
                offset(state.key),
                offset((2, 4)),
                offset((3, 4)),
                distance,
                _target_count(task, state),
                int(state.markers.sum()),
                goal_cell,
            )
        return Worlds(
            task.code,
            height,
            width,
            cells.reshape(count, -1),
            special,
            agents,
            facts,
            food,
            best=task.best,
            slack=0.0 if task.exact and count & (count - 1) == 0 else 1e-9,
        )


def _target_count(task: TaskClass, state: Layout) -> int:
    """Return the number of cells that the task wants in order."""
    if task.code == tasks.SEEDER:
        return int((~state.walls).sum())
    if task.code == tasks.WALL_AVOIDER:
        return int((~state.walls).sum()) - len(state.special)
    return len(state.special)
