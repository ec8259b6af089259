"""Maze3x3-v0: the shortest way through a maze of nine cells."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

SIZE = 3
GOAL = 8
STEP_REWARD = -0.1 / 9
GOAL_REWARD = 1.0
_MOVES = (-SIZE, SIZE, 1, -1)
_PASSAGES = frozenset({(0, 3), (3, 4), (4, 7), (7, 8), (1, 4), (1, 2), (2, 5), (6, 7)})


def _neighbour(cell: int, action: int) -> int:
    """Return the cell that a move leads to; the same one where a wall is in the way."""
    other = cell + _MOVES[action]
    return other if (min(cell, other), max(cell, other)) in _PASSAGES else cell


NEXT_CELL: tuple[tuple[int, ...], ...] = tuple(
    tuple(_neighbour(cell, action) for action in range(len(_MOVES))) for cell in range(SIZE * SIZE)
)
"""``NEXT_CELL[cell][action]`` is the cell after a move."""


class Maze(gymnasium.Env[Any, Any]):
    """A maze of 3 × 3 cells, numbered row by row from 0, the start, to 8, the goal.

    Actions: 0 north, 1 south, 2 east, 3 west. A move against a wall leaves the agent where it is. The passages are 0-3,
    3-4, 4-7, 7-8, and the dead ends 4-1-2-5 and 7-6, so that the shortest way takes four moves. The observation is the
    cell. Rewards: 1 for the move that reaches the goal, which ends the episode, and -0.1/9 for every other. The best
    return is 1 - 3 × 0.1/9 = 0.967.

    Draws: none.
    """

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(SIZE * SIZE)
        self.action_space = spaces.Discrete(len(_MOVES))
        self._cell = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Return to the start."""
        super().reset(seed=seed)
        self._cell = 0
        return self._cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move."""
        self._cell = NEXT_CELL[self._cell][int(action)]
        arrived = self._cell == GOAL
        return self._cell, GOAL_REWARD if arrived else STEP_REWARD, arrived, False, {}
