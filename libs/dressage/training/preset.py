"""Presets: how an environment is trained unless a session asks for something else.

The table ``preset`` of an environment's description has what differs from the default preset, ``default`` of
``presets.toml``, which has what differs from the algorithms' own defaults. SAC's table of an environment replaces the default
preset's. Environments without a table, such as custom ones, have the default preset.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any, TypeVar

from dressage.envs.catalogue import catalogue
from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.sac import SacHyperparameters, complete

H = TypeVar("H", bound=Hyperparameters)

DEFAULT = "default"
"""Name of the preset of environments that have none."""

_FILE = "presets.toml"
_KEYS = ("steps_per_member", "steps_per_second", "ppo", "sac")


@dataclass(frozen=True)
class Preset:
    """An environment's settings for training.

    :param steps_per_member: environment steps for which a member trains.
    :param steps_per_second: expected speed of a stacked training: environment steps per second and core, over all members.
    :param ppo: PPO's hyperparameters.
    :param sac: SAC's.
    """

    steps_per_member: int
    steps_per_second: float
    ppo: Hyperparameters
    sac: SacHyperparameters


@dataclass(frozen=True)
class DevicePreset:
    """Settings of trainings on a device, with thousands of environments.

    :param steps_factor: length of a training in environment steps, as a multiple of the environment's preset.
    :param ppo: hyperparameters that replace those of the environment's preset, by name.
    """

    steps_factor: int
    ppo: Mapping[str, Any]


def load_preset(environment: str) -> Preset:
    """Return the preset of an environment, the default one if it has none.

    :param environment: an environment id, such as ``HalfCheetah-v5`` or ``mjcf:dog``.
    """
    return _preset(environment if environment in preset_names() else DEFAULT)


@functools.cache
def _preset(name: str) -> Preset:
    if name == DEFAULT:
        return parse_preset(_tables()[DEFAULT], path=f"{_FILE}: {DEFAULT}")
    return parse_preset(catalogue()[name].table("preset"), path=f"{name}: preset", base=_preset(DEFAULT))


def complete_hyperparameters(algorithm: str, values: Mapping[str, Any], environment: str) -> Hyperparameters:
    """Return complete hyperparameters: they start from the algorithm's in the environment's preset.

    :param algorithm: ``ppo`` (also if empty) or ``sac``.
    :raises InvalidArgument: for one that the algorithm does not have, or an invalid value.
    """
    preset = load_preset(environment)
    if algorithm == "sac":
        return complete(values, base=preset.sac)
    return Hyperparameters.for_run(values, base=preset.ppo)


@functools.cache
def device_preset() -> DevicePreset:
    """Return the preset of trainings on a device.

    :raises InvalidArgument: for a value that PPO cannot train with.
    """
    values = _tables()["device"]
    Hyperparameters.from_dict(values["ppo"])
    return DevicePreset(values["steps_factor"], values["ppo"])


@functools.cache
def preset_names() -> frozenset[str]:
    """Return the ids of environments that have a preset, and ``default``."""
    return frozenset({DEFAULT, *(name for name, entry in catalogue().items() if entry.table("preset"))})


def parse_preset(values: Mapping[str, Any], *, path: str, base: Preset | None = None) -> Preset:
    """Return the preset of a table.

    :param path: the table's name in errors.
    :param base: provides what the table leaves out of PPO, steps and speed.
    :raises InvalidArgument: naming the key that is missing, unknown or wrong.
    """
    if unknown := values.keys() - _KEYS:
        raise InvalidArgument(field=path, value=sorted(unknown), expected=f"the keys {', '.join(_KEYS)}")
    steps = values.get("steps_per_member", base and base.steps_per_member)
    speed = values.get("steps_per_second", base and base.steps_per_second)
    if type(steps) is not int or steps < 1:
        raise InvalidArgument(field=f"{path}: steps_per_member", value=steps, expected="an integer of at least 1")
    if type(speed) not in (int, float) or not 0 < speed < float("inf"):
        raise InvalidArgument(field=f"{path}: steps_per_second", value=speed, expected="a number above 0")
    build = partial(Hyperparameters.from_dict, base=None if base is None else base.ppo)
    return Preset(steps, float(speed), _build(build, values, path, "ppo"), _build(complete, values, path, "sac"))


def _build(build: Callable[[Mapping[str, Any]], H], values: Mapping[str, Any], path: str, name: str) -> H:
    """Return the hyperparameters of a table, with its name in errors."""
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise InvalidArgument(field=f"{path}: {name}", value=table, expected="a table of hyperparameters")
    try:
        return build(table)
    except InvalidArgument as error:
        raise error.rename(lambda field: f"{path}: {name}.{field}") from None


@functools.cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(resources.files("dressage.training").joinpath(_FILE).read_text("utf-8"))
