"""Small environments of this project, registered with Gymnasium by importing this package.

``gymnasium.make("dressage.envs.small:Nim-v0")`` imports and makes one; `dressage.envs.stock` does the same. No id is
one of Gymnasium's or of ``ale-py``'s. Each class documents its rules and the order of its random draws. The draws are
``self.np_random.random()`` only, a fixed number at reset and a fixed number in every step, so that a batched engine can
draw the numbers of a seed in advance: ``numpy.random.default_rng(seed).random(count)`` gives the same ones.
"""

from __future__ import annotations

import gymnasium

IDS: tuple[str, ...] = ("Nim-v0", "Pong5-v0", "Maze3x3-v0", *(f"NoiseWorld{board}-v0" for board in range(7)))
"""The ids that this package registers."""

_GAMES = (
    ("Nim-v0", "nim:Nim", 10, 0.95),
    ("Pong5-v0", "pong:Pong", 1000, 2.8),
    ("Maze3x3-v0", "maze:Maze", 100, 0.9),
)


def register() -> None:
    """Register the environments that are not registered yet."""
    from dressage.envs.small.boards import BOARDS

    worlds = (
        (f"NoiseWorld{index}-v0", "noise_world:NoiseWorld", board.steps, board.target)
        for index, board in enumerate(BOARDS)
    )
    for env_id, entry, steps, target in (*_GAMES, *worlds):
        if env_id in gymnasium.registry:
            continue
        gymnasium.register(
            env_id,
            entry_point=f"dressage.envs.small.{entry}",
            max_episode_steps=steps,
            reward_threshold=target,
            kwargs={"board": int(env_id[10])} if env_id.startswith("NoiseWorld") else {},
        )


register()
