"""The environments, one module each; `task` finds them by id.

Adding an environment: a module here with a ``TASK``, its id in `_MODULES` and in `dressage.envs.cards.ENVIRONMENT_IDS`,
then ``python -m dressage.envs.generate``. The parity tests pick it up by themselves.
"""

from __future__ import annotations

import importlib

from dressage.envs import custom
from dressage.envs.cards import load_card
from dressage.envs.tasks.base import Task

_MODULES = {
    "HalfCheetah-v5": "half_cheetah",
    "Hopper-v5": "hopper",
    "InvertedPendulum-v5": "inverted_pendulum",
    "Walker2d-v5": "walker2d",
    "Swimmer-v5": "swimmer",
    "InvertedDoublePendulum-v5": "inverted_double_pendulum",
    "Reacher-v5": "reacher",
    "Ant-v5": "ant",
    "Humanoid-v5": "humanoid",
    "HumanoidStandup-v5": "humanoid_standup",
    "Pusher-v5": "pusher",
}
SIMULATED_IDS: tuple[str, ...] = tuple(_MODULES)
"""Environments of MuJoCo's that have a task, without custom models."""


def is_simulated(env_id: str) -> bool:
    """Return whether an id is one of MuJoCo's environments or a model of the user's."""
    return env_id in _MODULES or env_id.startswith(custom.MODEL)


def task(env_id: str) -> Task:
    """Return the task of that id.

    :raises dressage.errors.NotFound: listing the known ids, the nearest first.
    """
    if env_id.startswith(custom.MODEL):
        from dressage.envs.tasks.custom_model import CustomModel

        return CustomModel(env_id)
    if env_id not in _MODULES:
        load_card(env_id)  # raises the NotFound that lists the known ids
    chosen: Task = importlib.import_module(f"dressage.envs.tasks.{_MODULES[env_id]}").TASK
    return chosen
