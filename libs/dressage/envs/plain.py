"""Environments without MuJoCo and without a batch: what their cards need in words, and the fields of their state.

An environment's words are in its folder of `dressage.envs.catalogue`, apart from its rules and without importing them: a
description cannot contain what it does not read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as with_default

from dressage.envs.cards import SEARCH_ENVIRONMENT_IDS, ActionComponent, Field, ObservationComponent
from dressage.envs.catalogue import catalogue
from dressage.envs.fields import BoundField, observation_field
from dressage.envs.state import Array, Raw

SECOND = 1.0
"""Time step of a game without physical time: one step counts as one second."""


@dataclass(frozen=True)
class PlainEnvironment:
    """An environment whose visible state is its observation: Gymnasium's small ones, and those of `dressage.envs.small`.

    :param bound: the fields, as functions of the arrays ``observed`` (T, D) and ``steps`` (T,).
    :param constants: attributes of the live environment on which the words rely, and their values.
    """

    title: str
    description: str
    termination: str
    stock_reward: str
    example_intents: tuple[str, ...]
    observation_components: tuple[ObservationComponent, ...]
    action: tuple[ActionComponent, ...]
    bound: tuple[BoundField, ...]
    num_actions: int = 0
    num_observations: int = 0
    time_step: float = SECOND
    constants: Mapping[str, float] = with_default(default_factory=dict)

    @property
    def observation_size(self) -> int:
        """Numbers in the flat observation; discrete observations are one-hot."""
        return len(self.observation_components)


def is_plain(env_id: str) -> bool:
    """Return whether an id is one of these environments."""
    return env_id in SEARCH_ENVIRONMENT_IDS


def plain(env_id: str) -> PlainEnvironment:
    """Return the description of that id.

    :raises KeyError: for an id that is not `is_plain`.
    """
    words: Mapping[str, PlainEnvironment] = importlib.import_module(catalogue()[env_id].module).WORDS
    return words[env_id]


def column(name: str, unit: str, meaning: str, index: int) -> BoundField:
    """Return one number of the observation as a field."""
    return BoundField(Field(name, (), unit, meaning), lambda raw: raw["observed"][:, index], ("observed",))


def derived_field(name: str, unit: str, meaning: str, function: Callable[[Array], Array]) -> BoundField:
    """Return a function of the observations (T, D) as a field (T,)."""
    return BoundField(Field(name, (), unit, meaning), lambda raw: function(raw["observed"]), ("observed",))


def number_of(name: str, meaning: str) -> BoundField:
    """Return the number of a discrete observation as a field."""
    return derived_field(name, "1", meaning, lambda observed: observed.argmax(axis=1).astype(observed.dtype))


def common_fields(size: int, time_step: float, *, stock: bool) -> tuple[BoundField, BoundField]:
    """Return the fields ``observation`` and ``time``.

    :param stock: the environment is Gymnasium's.
    """

    def seconds(raw: Raw) -> Array:
        return raw["steps"] * time_step

    time = Field("time", (), "s", "time since the episode began")
    return (
        observation_field(size, ("observed",), lambda raw: raw["observed"], stock=stock),
        BoundField(time, seconds, ("steps",)),
    )


def one_hot(name: str, count: int, words: Callable[[int], str]) -> tuple[ObservationComponent, ...]:
    """Return the components of a discrete observation, which is flattened to one-hot.

    :param words: what observation ``index`` means.
    """
    group = f"one-hot: 1 at the number of the {name}, else 0"
    return tuple(
        ObservationComponent(f"{name}_{index}", "1", f"1 if {words(index)}, else 0", group=group)
        for index in range(count)
    )


def choice(name: str, *meanings: str) -> tuple[ActionComponent]:
    """Return the description of a discrete action.

    :param meanings: what each number does, from 0.
    """
    words = ", ".join(f"{index} = {meaning}" for index, meaning in enumerate(meanings))
    return (ActionComponent(name, 0, len(meanings) - 1, "1", words),)
