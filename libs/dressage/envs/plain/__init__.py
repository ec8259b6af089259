"""Environments without MuJoCo, one module for each kind; `plain` finds their descriptions by id.

Adding one: a module here with ``ENVIRONMENTS``, its ids in `_MODULES` and in
`dressage.envs.cards.SEARCH_ENVIRONMENT_IDS`, then ``python -m dressage.envs.generate``.
"""

from __future__ import annotations

import importlib

from dressage.envs.plain.base import PlainEnvironment

_MODULES = {
    "MountainCar-v0": "mountain_car",
    "MountainCarContinuous-v0": "mountain_car",
    "FrozenLake-v1": "frozen_lake",
    "Nim-v0": "nim",
    "Pong5-v0": "pong",
    "Maze3x3-v0": "maze",
    **{f"NoiseWorld{board}-v0": "noise_world" for board in range(7)},
}


def is_plain(env_id: str) -> bool:
    """Return whether an id is one of these environments."""
    return env_id in _MODULES


def plain(env_id: str) -> PlainEnvironment:
    """Return the description of that id.

    :raises KeyError: for an id that is not `is_plain`.
    """
    module = importlib.import_module(f"dressage.envs.plain.{_MODULES[env_id]}")
    entry: PlainEnvironment = module.ENVIRONMENTS[env_id]
    return entry
