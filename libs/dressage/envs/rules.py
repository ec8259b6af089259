"""What the rules of a small environment consist of: plain functions of a state, which Gymnasium's class of
`dressage.envs.small` runs as they are and `dressage.episodes` compiles.

``state`` is a sequence of floats of the rules' own layout. A discrete observation is a number from 0; networks get its one-hot
form. All random numbers of an episode come from the generator that Gymnasium seeds, in one order, so that an episode's numbers
can be drawn in advance and a seed has the same episode in a class and in a batch. The functions use what numba compiles,
and call no other function of their module.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressage.envs.catalogue import catalogue
from dressage.envs.state import Array


def no_number(state: Any) -> int:
    """`Rules.number` of vector observations."""
    return -1


def first_number(state: Any) -> int:
    """`Rules.number` of rules that keep the discrete observation in ``state[0]``."""
    return int(state[0])


def observe_one_hot(state: Any, observation: Any) -> None:
    """`Rules.observe` of such rules."""
    observation[:] = 0.0
    observation[int(state[0])] = 1.0


@dataclass(frozen=True)
class Rules:
    """An environment's rules.

    :param name: of the compiled kernel; environments with equal functions share it.
    :param state_size: numbers of ``state``.
    :param observation_size: numbers of the observation, in one-hot form where it is discrete.
    :param start: ``start(state, draws)`` sets the first state.
    :param step: ``step(state, choice, action, draws, first)`` applies the discrete action ``choice`` or the continuous one
        ``action`` (A,) float32, and returns the reward and whether the episode terminated. The step's random numbers are
        ``draws[first]`` and those after it. The time limit is the player's.
    :param observe: ``observe(state, observation)`` writes the observation, (D,) float64.
    :param number: ``number(state)`` is the discrete observation; -1 where observations are vectors.
    :param action_size: components of a continuous action; 0 for discrete actions.
    :param draws_at_start: random numbers of ``start``.
    :param draws_per_step: random numbers of each step, whatever happens in it, from ``random()``.
    :param draw_start: from a generator to the numbers of ``start``; None: from ``random()``.
    :param math_functions: NumPy's functions that Gymnasium uses and the rules take from the C library instead.
    """

    name: str
    state_size: int
    observation_size: int
    start: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any] = observe_one_hot
    number: Callable[..., Any] = first_number
    action_size: int = 0
    draws_at_start: int = 0
    draws_per_step: int = 0
    draw_start: Callable[[np.random.Generator], Array] | None = None
    math_functions: tuple[str, ...] = ()

    def first_draws(self, stream: np.random.Generator) -> Array:
        """Return the random numbers of ``start``, (`draws_at_start`,)."""
        return stream.random(self.draws_at_start) if self.draw_start is None else self.draw_start(stream)

    def draws(self, stream: np.random.Generator, limit: int) -> Array:
        """Return the random numbers of an episode of at most ``limit`` steps, (K,) float64."""
        return np.concatenate((self.first_draws(stream), stream.random(self.draws_per_step * limit)))


@dataclass(frozen=True, kw_only=True)
class OwnRules(Rules):
    """The rules of an environment of this project, which Gymnasium gets from here.

    :param num_actions: discrete actions.
    :param low: bounds of a vector observation; empty for a discrete one.
    :param high: the same.
    :param max_episode_steps: time limit.
    :param target: mean return from which it counts as solved.
    """

    num_actions: int
    max_episode_steps: int
    target: float
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@functools.cache
def rules_of(env_id: str) -> Rules | None:
    """Return the rules of an environment; None: it has none."""
    if env_id not in RULED_IDS:
        return None
    module = importlib.import_module(f"{catalogue()[env_id].module}.rules")
    rules: Rules = module.RULES[env_id]
    return rules


RULED_IDS: tuple[str, ...] = tuple(env_id for env_id, entry in catalogue().items() if entry.rules_file.exists())
"""Environments that have rules."""
