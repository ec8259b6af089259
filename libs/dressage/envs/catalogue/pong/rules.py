"""Return a ball that comes back from a wall, on a field of 800 × 600 pixels.

The paddle is 100 high and moves along x = 780 by 6 a step; the ball moves by 5 a step along x. It starts at x = 400, at a
random height, with a random slope, towards the paddle or away from it; the paddle starts in the middle. Actions: 0 stay,
1 up, 2 down. In a step the paddle moves and is kept inside, then the ball moves and is reflected at the floor or ceiling,
then at the wall (x = 0) or at the paddle's line. Rewards: 1 for a return, else 0. A missed ball ends the episode. From one
return to the next the ball takes 312 steps and to the first one at least 76, so that an episode of 1000 steps has three
returns at most.

``state``, in pixels and pixels per step, with y up and x towards the paddle: the ball's x, y and its velocities along both,
then the paddle's centre. The observation is the same in single precision. Draws at the start: the ball's height, its slope,
and its side. There are none in a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.envs.rules import OwnRules, no_number

_WIDTH, _HEIGHT = 800.0, 600.0
PADDLE_X = 780.0
PADDLE_HALF = 50.0
PADDLE_SPEED = 6.0
BALL_SPEED = 5.0
"""Horizontal speed of the ball; also the largest vertical speed at the start."""
_SPIN = 0.05
"""Vertical speed that a return adds for each pixel between the ball and the paddle's centre."""
_MOST_VERTICAL = 8.0
"""Largest vertical speed of the ball."""


def _start(state: Any, draws: Any) -> None:
    state[0] = _WIDTH / 2
    state[1] = 100.0 + 400.0 * draws[0]
    state[2] = BALL_SPEED if draws[2] < 0.5 else -BALL_SPEED
    state[3] = BALL_SPEED * (2.0 * draws[1] - 1.0)
    state[4] = _HEIGHT / 2


def _observe(state: Any, observation: Any) -> None:
    for index in range(5):
        observation[index] = np.float32(state[index])


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    direction = 0.0 if choice == 0 else (1.0 if choice == 1 else -1.0)
    state[4] = min(max(state[4] + PADDLE_SPEED * direction, PADDLE_HALF), _HEIGHT - PADDLE_HALF)
    state[0] += state[2]
    state[1] += state[3]
    if state[1] < 0.0:
        state[1], state[3] = -state[1], -state[3]
    elif state[1] > _HEIGHT:
        state[1], state[3] = 2.0 * _HEIGHT - state[1], -state[3]
    if state[0] < 0.0:
        state[0], state[2] = -state[0], -state[2]
        return 0.0, False
    if state[0] < PADDLE_X:
        return 0.0, False
    offset = state[1] - state[4]
    if abs(offset) > PADDLE_HALF:
        return 0.0, True
    state[0], state[2] = 2.0 * PADDLE_X - state[0], -state[2]
    state[3] = min(max(state[3] + _SPIN * offset, -_MOST_VERTICAL), _MOST_VERTICAL)
    return 1.0, False


RULES = {
    "Pong5-v0": OwnRules(
        name="pong",
        state_size=5,
        observation_size=5,
        start=_start,
        step=_step,
        observe=_observe,
        number=no_number,
        draws_at_start=3,
        num_actions=3,
        max_episode_steps=1000,
        target=2.8,
        low=(0.0, 0.0, -BALL_SPEED, -_MOST_VERTICAL, PADDLE_HALF),
        high=(_WIDTH, _HEIGHT, BALL_SPEED, _MOST_VERTICAL, _HEIGHT - PADDLE_HALF),
    )
}
