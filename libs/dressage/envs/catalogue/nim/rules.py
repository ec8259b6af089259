"""Misère Nim with ten sticks: whoever removes the last stick loses.

The player moves first. Action a removes a + 1 sticks, 1 to 3; more than are left is illegal and loses at once, with the
sticks unchanged. Then the opponent moves: it removes ``(sticks - 1) % 4``, which leaves the player a lost position; if that is
0, or it errs, it removes a random legal number. The observation is the number of sticks left at the player's turn, 0 to 10
(0 only at the end). Rewards: 1 for a win, -1 for a loss, 0 for a move after which the game continues. A game has at most
five moves of the player. Since (10 - 1) % 4 = 1, the player wins with certainty by leaving 9, 5 and 1.

``state``: the sticks. Draws of a step: whether the opponent errs, then its random choice, also in a step in which it does not
move.
"""

from __future__ import annotations

from typing import Any

from dressage.envs.rules import OwnRules

STICKS = 10
MOST = 3
"""Sticks that a move removes at most."""
ERROR_RATE = 0.1
"""Probability with which the opponent moves at random although it has a winning move."""


def _start(state: Any, draws: Any) -> None:
    state[0] = STICKS


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    sticks = int(state[0])
    if choice + 1 > sticks:
        return -1.0, True
    sticks -= choice + 1
    if sticks == 0:
        state[0] = 0.0
        return -1.0, True
    take = (sticks - 1) % (MOST + 1)
    if take == 0 or draws[first] < ERROR_RATE:
        take = 1 + int(draws[first + 1] * min(MOST, sticks))
    sticks -= take
    state[0] = sticks
    return (1.0 if sticks == 0 else 0.0), sticks == 0


RULES = {
    "Nim-v0": OwnRules(
        name="nim",
        state_size=1,
        observation_size=STICKS + 1,
        start=_start,
        step=_step,
        draws_per_step=2,
        num_actions=MOST,
        max_episode_steps=10,
        target=0.95,
    )
}
