"""The preset of trainings on a device, with thousands of environments: what differs there from an environment's own preset."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dressage.training.hyperparameters import Hyperparameters

_FILE = "device.toml"


@dataclass(frozen=True)
class DevicePreset:
    """See ``device.toml``.

    :param steps_factor: length of a training in environment steps, as a multiple of the environment's preset.
    :param ppo: hyperparameters that replace those of the environment's preset, by name.
    """

    steps_factor: int
    ppo: Mapping[str, Any]


@functools.cache
def device_preset() -> DevicePreset:
    """Return the preset.

    :raises InvalidArgument: for a value that PPO cannot train with.
    """
    values = tomllib.loads(resources.files("dressage.training").joinpath(_FILE).read_text(encoding="utf-8"))
    Hyperparameters.from_dict(values["ppo"])
    return DevicePreset(values["steps_factor"], values["ppo"])
