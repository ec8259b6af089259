"""A member's hyperparameters, whichever algorithm trains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dressage.training import sac
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import load_preset


def complete(algorithm: str, given: Mapping[str, Any], environment: str) -> Hyperparameters:
    """Return complete hyperparameters: they start from the algorithm's in the environment's preset.

    :param algorithm: ``ppo`` (also if empty) or ``sac``.
    :raises InvalidArgument: for one that the algorithm does not have, or an invalid value.
    """
    preset = load_preset(environment)
    if algorithm == "sac":
        return sac.complete(given, base=preset.sac)
    return Hyperparameters.for_run(given, base=preset.ppo)
