"""Presets: how an environment is trained unless a session asks for something else.

``presets/<environment id>.toml`` holds one environment's settings with a comment on their source: all of PPO's, and in a table
``sac`` those of SAC that differ from its defaults.
``presets/default.toml`` serves environments without a file, such as custom ones.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any, TypeVar

from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.sac import SacHyperparameters, complete

H = TypeVar("H", bound=Hyperparameters)

DEFAULT = "default"
"""Name of the preset of environments that have none."""

_SUFFIX = ".toml"
_KEYS = {"steps_per_member", "steps_per_second", "ppo"}
_OPTIONAL = {"sac"}
_MAY_BE_MISSING = {"target_kl", "desired_kl", "observation_inputs"}  # Where one is missing, it is off.


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


def load_preset(environment: str) -> Preset:
    """Return the preset of an environment, the default one if it has none.

    :param environment: an environment id, such as ``HalfCheetah-v5`` or ``mjcf:dog``.
    """
    return _read(environment if environment in preset_names() else DEFAULT)


@functools.cache
def preset_names() -> frozenset[str]:
    """Return the ids of environments that have a preset, and ``default``."""
    names = (entry.name for entry in _folder().iterdir())
    return frozenset(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


@functools.cache
def _read(name: str) -> Preset:
    return parse_preset(_folder().joinpath(f"{name}{_SUFFIX}").read_text("utf-8"), name=name)


def parse_preset(text: str, *, name: str) -> Preset:
    """Return the preset that a file holds.

    :param text: TOML.
    :param name: the file's name in errors.
    :raises InvalidArgument: naming the key that is missing, unknown or wrong.
    """
    path = f"presets/{name}{_SUFFIX}"
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{path}: not TOML ({error})", field=path, expected="TOML") from error
    _check_keys(values, path, expected=_KEYS | (_OPTIONAL & values.keys()))
    steps, speed, ppo = values["steps_per_member"], values["steps_per_second"], values["ppo"]
    if type(steps) is not int or steps < 1:
        raise InvalidArgument(field=f"{path}: steps_per_member", value=steps, expected="an integer of at least 1")
    if type(speed) not in (int, float) or not 0 < speed < float("inf"):
        raise InvalidArgument(field=f"{path}: steps_per_second", value=speed, expected="a number above 0")
    names = {item.name for item in fields(Hyperparameters)}
    _check_keys(_table(ppo, f"{path}: ppo"), f"{path}: ppo", expected=names - (_MAY_BE_MISSING - ppo.keys()))
    sac = _table(values.get("sac", {}), f"{path}: sac")
    return Preset(
        steps,
        float(speed),
        _checked(Hyperparameters.from_dict, ppo, f"{path}: ppo"),
        _checked(complete, sac, f"{path}: sac"),
    )


def _checked(build: Callable[[Mapping[str, Any]], H], values: Mapping[str, Any], path: str) -> H:
    """Return hyperparameters, with the table's name in errors."""
    try:
        return build(values)
    except InvalidArgument as error:
        raise error.rename(lambda field: f"{path}.{field}") from None


def _table(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(field=path, value=value, expected="a table of hyperparameters")
    return value


def _check_keys(values: Mapping[str, Any], path: str, *, expected: set[str]) -> None:
    """Refuse keys that are missing or unknown."""
    if values.keys() != expected:
        missing, unknown = sorted(expected - values.keys()), sorted(values.keys() - expected)
        message = f"{path}: missing keys: {', '.join(missing) or 'none'}; unknown keys: {', '.join(unknown) or 'none'}"
        raise InvalidArgument(message, field=path, expected=f"the keys {', '.join(sorted(expected))}")


def _folder() -> Any:
    return resources.files("dressage.training").joinpath("presets")
