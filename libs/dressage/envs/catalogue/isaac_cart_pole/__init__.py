"""Isaac Lab's cart-pole on the Newton simulator."""

from __future__ import annotations

from dressage.envs.packs.words import Task

TASK = Task(
    "cart-pole of Isaac Lab",
    "Isaac Lab's cart-pole on the Newton simulator: a pole on a cart that a force moves along a rail. It begins near "
    "upright.",
    ("keep the pole upright", "keep the pole upright in the middle of the rail"),
    1.0,
)
