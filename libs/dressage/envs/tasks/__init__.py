"""The tasks of environments that MuJoCo simulates; `task` finds them by id."""

from __future__ import annotations

import importlib

from dressage.envs import custom
from dressage.envs.cards import load_card
from dressage.envs.catalogue import catalogue
from dressage.envs.tasks.base import Task

SIMULATED_IDS: tuple[str, ...] = tuple(name for name, entry in catalogue().items() if entry.simulated)
"""Environments of MuJoCo's that have a task, without custom models."""


def is_simulated(env_id: str) -> bool:
    """Return whether an id is one of MuJoCo's environments or a model of the user's."""
    return env_id in SIMULATED_IDS or env_id.startswith(custom.MODEL)


def task(env_id: str) -> Task:
    """Return the task of that id.

    :raises dressage.errors.NotFound: listing the known ids, the nearest first.
    """
    if env_id.startswith(custom.MODEL):
        from dressage.envs.tasks.custom_model import CustomModel

        return CustomModel(env_id)
    if env_id not in SIMULATED_IDS:
        load_card(env_id)  # raises the NotFound that lists the known ids
    kind: type[Task] = importlib.import_module(catalogue()[env_id].module).TASK
    return kind(env_id)
