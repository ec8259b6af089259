"""What Pong5-v0 is."""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
from dressage.envs.plain import PlainEnvironment, choice, column, common_fields

_COLUMNS = (
    ("ball_x", "px", "position of the ball along x, 0 = the wall, 780 = the paddle's line"),
    ("ball_y", "px", "height of the ball, 0 to 600"),
    ("ball_x_velocity", "px/step", "velocity of the ball along x, 5 = towards the paddle, -5 = away from it"),
    ("ball_y_velocity", "px/step", "velocity of the ball along y, positive = up"),
    ("paddle_y", "px", "height of the paddle's centre, 50 to 550"),
)

_PONG = PlainEnvironment(
    title="paddle against a wall",
    description=(
        "A ball moves on a field of 800 × 600 pixels between a wall at x = 0 and a paddle that moves up and down "
        "along x = 780; it is reflected at the wall, the floor and the ceiling. The paddle is 100 pixels high and "
        "moves by 6 pixels a step; it has to return the ball. The ball starts in the middle of the field at a random "
        "height with a random slope, towards the paddle or the wall. It moves by 5 pixels a step along x. A return "
        "far from the paddle's centre makes the ball steeper: it adds 0.05 * (ball_y - paddle_y) to the ball's "
        "vertical velocity, which is limited to 8. In 1000 steps three returns are possible."
    ),
    termination="the ball reaches x = 780 more than 50 pixels above or below the paddle's centre.",
    stock_reward="1 for every return, else 0",
    example_intents=("return every ball", "return the ball with the middle of the paddle"),
    observation_components=tuple(ObservationComponent(*entry) for entry in _COLUMNS),
    action=choice("paddle", "stay", "move up by 6 pixels", "move down by 6 pixels"),
    num_actions=3,
    bound=(
        *common_fields(len(_COLUMNS), 1.0, stock=False),
        *(column(*entry, index) for index, entry in enumerate(_COLUMNS)),
    ),
)

WORDS = {"Pong5-v0": _PONG}
