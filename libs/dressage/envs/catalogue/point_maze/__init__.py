"""Mazes of Gymnasium-Robotics, through which a ball is pushed."""

from __future__ import annotations

from typing import Any

from dressage.envs.packs.simulators import report_success
from dressage.envs.packs.words import Words

_STEPS = 800
_POINT = [
    ("achieved_x", "m", "x of the ball"),
    ("achieved_y", "m", "y of the ball"),
    ("goal_x", "m", "x of the goal"),
    ("goal_y", "m", "y of the goal"),
    ("x_position", "m", "x of the ball"),
    ("y_position", "m", "y of the ball"),
    ("x_velocity", "m/s", "velocity of the ball along x"),
    ("y_velocity", "m/s", "velocity of the ball along y"),
]


def _maze(title: str, start: str, target: float) -> Words:
    return Words(
        title=title,
        description=(
            "A ball in a maze is pushed by forces and reaches a goal. Each cell of the maze is 1 m × 1 m; the origin is the "
            "centre of the map, x points to the right and y up, so the cell in row i and column j (both from 0) has its "
            f"centre at x = j - 5.5, y = 4 - i. {start} "
            "The map, # = wall:\n{map}"
        ),
        observation=_POINT,
        action=[("force_x", "1", "force along x"), ("force_y", "1", "force along y")],
        stock_reward="1 for each step in which the ball is within 0.45 m of the goal, else 0; the episode continues there",
        termination="never before the time limit.",
        intents=("reach the goal of the maze",),
        time_step=0.01,
        target=target,
    )


WORDS: dict[str, Words] = {
    # Straight to the goal, through no wall, earns 330 in the first maze and 240 in the second one, because some goals are near.
    "PointMaze_Large-v3": _maze(
        "ball in a large maze", "Start and goal are drawn from all free cells in each episode.", 550.0
    ),
    "PointMaze_Large_Diverse_G-v3": _maze(
        "ball in a large maze, goals in some cells",
        "The episode starts in the free cell at the top left; the goal is drawn from seven cells.",
        500.0,
    ),
}


def make(env_id: str, steps: int | None) -> Any:
    """Return the environment, in a process of the pack."""
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make(env_id, disable_env_checker=True, max_episode_steps=steps or _STEPS)
    return report_success(env, "success")
