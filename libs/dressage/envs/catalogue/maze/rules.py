"""A maze of 3 × 3 cells, numbered row by row from 0, the start, to 8, the goal.

Actions: 0 north, 1 south, 2 east, 3 west. A move against a wall leaves the agent where it is. The passages are 0-3, 3-4,
4-7, 7-8, and the dead ends 4-1-2-5 and 7-6, so that the shortest way takes four moves. The observation is the cell. Rewards:
1 for the move that reaches the goal, which ends the episode, and -0.1/9 for every other. The best return is
1 - 3 × 0.1/9 = 0.967.

``state``: the cell. There are no draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.envs.rules import OwnRules

_SIZE = 3
GOAL = 8
_STEP_REWARD = -0.1 / 9
_GOAL_REWARD = 1.0
_MOVES = (-_SIZE, _SIZE, 1, -1)
_PASSAGES = frozenset({(0, 3), (3, 4), (4, 7), (7, 8), (1, 4), (1, 2), (2, 5), (6, 7)})


def _neighbour(cell: int, action: int) -> int:
    """Return the cell that a move leads to; the same one where a wall is in the way."""
    other = cell + _MOVES[action]
    return other if (min(cell, other), max(cell, other)) in _PASSAGES else cell


NEXT_CELL = np.array([[_neighbour(cell, action) for action in range(len(_MOVES))] for cell in range(_SIZE * _SIZE)])
"""``NEXT_CELL[cell, action]`` is the cell after a move."""


def _start(state: Any, draws: Any) -> None:
    state[0] = 0.0


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    cell = NEXT_CELL[int(state[0]), choice]
    state[0] = cell
    return (_GOAL_REWARD if cell == GOAL else _STEP_REWARD), cell == GOAL


RULES = {
    "Maze3x3-v0": OwnRules(
        name="maze",
        state_size=1,
        observation_size=_SIZE * _SIZE,
        start=_start,
        step=_step,
        num_actions=len(_MOVES),
        max_episode_steps=100,
        target=0.9,
    )
}
