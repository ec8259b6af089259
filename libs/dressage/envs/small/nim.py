"""Nim-v0: misère Nim against an opponent that seldom errs."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

STICKS = 10
MOST = 3
"""Sticks that a move removes at most."""
ERROR_RATE = 0.1
"""Probability with which the opponent moves at random although it has a winning move."""
DRAWS_PER_STEP = 2


def opponent_take(sticks: int, error: float, choice: float) -> int:
    """Return how many sticks the opponent removes.

    It removes ``(sticks - 1) % 4``, which leaves the player a lost position. If that is 0, or ``error < ERROR_RATE``,
    it removes a random legal number: ``1 + floor(choice * min(3, sticks))``.

    :param sticks: sticks that are left, 1 to 9.
    :param error: a draw in [0, 1).
    :param choice: a draw in [0, 1).
    """
    winning = (sticks - 1) % (MOST + 1)
    if winning == 0 or error < ERROR_RATE:
        return 1 + int(choice * min(MOST, sticks))
    return winning


def advance(sticks: int, action: int, error: float, choice: float) -> tuple[int, float, bool]:
    """Return the sticks, the reward and the end after the player's move and the opponent's.

    :param sticks: sticks that are left, 1 to 10.
    :param action: the player removes ``action + 1`` sticks.
    :param error: the opponent's first draw.
    :param choice: the opponent's second draw.
    """
    take = action + 1
    if take > sticks:
        return sticks, -1.0, True
    sticks -= take
    if sticks == 0:
        return 0, -1.0, True
    sticks -= opponent_take(sticks, error, choice)
    return (0, 1.0, True) if sticks == 0 else (sticks, 0.0, False)


class Nim(gymnasium.Env[Any, Any]):
    """Misère Nim with ten sticks: whoever removes the last stick loses.

    The player moves first. Action a removes a + 1 sticks, 1 to 3; more than are left is illegal and loses at once, with
    the sticks unchanged. Then the opponent moves, see `opponent_take`. The observation is the number of sticks left at
    the player's turn, 0 to 10 (0 only at the end). Rewards: 1 for a win, -1 for a loss, 0 for a move after which the
    game continues. A game has at most five moves of the player. Since (10 - 1) % 4 = 1, the player wins with certainty
    by leaving 9, 5 and 1.

    Draws: none at reset; in every step ``error``, then ``choice``, also in a step in which the opponent does not move.
    """

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(STICKS + 1)
        self.action_space = spaces.Discrete(MOST)
        self._sticks = STICKS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start a game."""
        super().reset(seed=seed)
        self._sticks = STICKS
        return self._sticks, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Play a move and the opponent's answer."""
        error, choice = self.np_random.random(), self.np_random.random()
        self._sticks, reward, ended = advance(self._sticks, int(action), error, choice)
        return self._sticks, reward, ended, False, {}
