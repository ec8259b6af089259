"""A member's hyperparameters, whichever algorithm trains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dressage.training import sac
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import load_preset


def complete(algorithm: str, given: Mapping[str, Any], environment: str) -> Hyperparameters:
    """Return complete hyperparameters: PPO's start from the environment's preset, SAC's from its own defaults.

    :param algorithm: ``ppo`` (also if empty) or ``sac``.
    :raises InvalidArgument: for one that the algorithm does not have, or an invalid value.
    """
    if algorithm == "sac":
        return sac.complete(given)
    return Hyperparameters.for_run(given, base=load_preset(environment).ppo)
