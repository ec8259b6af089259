"""Which environments have compiled rules. The compiler is imported when rules are first read."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dressage.episodes.rules.base import Rules

_RULES = {
    "CartPole-v1": "cart_pole:RULES",
    "MountainCar-v0": "mountain_car:RULES",
    "MountainCarContinuous-v0": "mountain_car:CONTINUOUS",
    "FrozenLake-v1": "frozen_lake:RULES",
    "Nim-v0": "games:NIM",
    "Pong5-v0": "games:PONG",
    "Maze3x3-v0": "games:MAZE",
    **{f"NoiseWorld{board}-v0": f"noise_world:BOARD_{board}" for board in range(7)},
}
COMPILED_IDS: tuple[str, ...] = tuple(_RULES)
"""Environments that have compiled rules."""


@functools.cache
def rules_of(env_id: str) -> Rules | None:
    """Return the rules of an environment; None: it has none."""
    if env_id not in _RULES:
        return None
    module, _, name = _RULES[env_id].partition(":")
    rules: Rules = getattr(importlib.import_module(f"dressage.episodes.rules.{module}"), name)
    return rules
