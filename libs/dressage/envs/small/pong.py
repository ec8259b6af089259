"""Pong5-v0: one paddle and a wall, with a state of five numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

WIDTH, HEIGHT = 800.0, 600.0
PADDLE_X = 780.0
PADDLE_HALF = 50.0
PADDLE_SPEED = 6.0
BALL_SPEED = 5.0
"""Horizontal speed of the ball; also the largest vertical speed at the start."""
SPIN = 0.05
"""Vertical speed that a return adds for each pixel between the ball and the paddle's centre."""
MOST_VERTICAL = 8.0
"""Largest vertical speed of the ball."""
DRAWS_AT_RESET = 3
_DIRECTION = (0.0, 1.0, -1.0)


@dataclass(slots=True)
class Rally:
    """The state, in pixels and pixels per step; y points up and x towards the paddle."""

    ball_x: float
    ball_y: float
    speed_x: float
    speed_y: float
    paddle_y: float


def start(height: float, slope: float, side: float) -> Rally:
    """Return the state at the start.

    :param height: a draw in [0, 1): the ball's height, 100 to 500.
    :param slope: a draw in [0, 1): its vertical speed, -5 to 5.
    :param side: a draw in [0, 1): the ball moves towards the paddle below 0.5, else away from it.
    """
    speed = BALL_SPEED if side < 0.5 else -BALL_SPEED
    return Rally(WIDTH / 2, 100.0 + 400.0 * height, speed, BALL_SPEED * (2.0 * slope - 1.0), HEIGHT / 2)


def advance(rally: Rally, action: int) -> tuple[float, bool]:
    """Advance the state by one step in place; return the reward and whether the ball was missed.

    First the paddle moves and is kept inside, then the ball moves and is reflected at the floor or ceiling, then at the
    wall (x = 0) or at the paddle's line. Only a return reads the paddle.
    """
    paddle = rally.paddle_y + PADDLE_SPEED * _DIRECTION[action]
    rally.paddle_y = min(max(paddle, PADDLE_HALF), HEIGHT - PADDLE_HALF)
    rally.ball_x += rally.speed_x
    rally.ball_y += rally.speed_y
    if rally.ball_y < 0.0:
        rally.ball_y, rally.speed_y = -rally.ball_y, -rally.speed_y
    elif rally.ball_y > HEIGHT:
        rally.ball_y, rally.speed_y = 2.0 * HEIGHT - rally.ball_y, -rally.speed_y
    if rally.ball_x < 0.0:
        rally.ball_x, rally.speed_x = -rally.ball_x, -rally.speed_x
        return 0.0, False
    if rally.ball_x < PADDLE_X:
        return 0.0, False
    offset = rally.ball_y - rally.paddle_y
    if abs(offset) > PADDLE_HALF:
        return 0.0, True
    rally.ball_x, rally.speed_x = 2.0 * PADDLE_X - rally.ball_x, -rally.speed_x
    rally.speed_y = min(max(rally.speed_y + SPIN * offset, -MOST_VERTICAL), MOST_VERTICAL)
    return 1.0, False


class Pong(gymnasium.Env[NDArray[np.float32], Any]):
    """Return a ball that comes back from a wall, on a field of 800 × 600 pixels.

    The paddle is 100 high and moves along x = 780 by 6 a step; the ball moves by 5 a step along x. It starts at x =
    400, at a random height, with a random slope, towards the paddle or away from it; the paddle starts in the middle.
    See `advance` for a step. Actions: 0 stay, 1 up, 2 down. Observation, float32: the ball's x, y and its velocities
    along both, then the paddle's centre. The state is kept in float64. Rewards: 1 for a return, else 0. A missed ball
    ends the episode. From one return to the next the ball takes 312 steps and to the first one at least 76, so that an
    episode of 1000 steps has three returns at most.

    Draws: three at reset (``height``, ``slope``, ``side`` of `start`), none in a step.
    """

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        low = [0.0, 0.0, -BALL_SPEED, -MOST_VERTICAL, PADDLE_HALF]
        high = [WIDTH, HEIGHT, BALL_SPEED, MOST_VERTICAL, HEIGHT - PADDLE_HALF]
        self.observation_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        self.action_space = spaces.Discrete(len(_DIRECTION))
        self._rally = start(0.5, 0.5, 0.0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a rally."""
        super().reset(seed=seed)
        self._rally = start(*(self.np_random.random() for _ in range(DRAWS_AT_RESET)))
        return self._observation(), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move the paddle and the ball."""
        reward, missed = advance(self._rally, int(action))
        return self._observation(), reward, missed, False, {}

    def _observation(self) -> NDArray[np.float32]:
        state = self._rally
        return np.array([state.ball_x, state.ball_y, state.speed_x, state.speed_y, state.paddle_y], np.float32)
