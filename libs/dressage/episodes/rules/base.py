"""What an environment's rules consist of.

``state`` is a float64 array of the rules' own layout. A discrete observation is a number from 0; networks get its one-hot form.
``draws`` are all random numbers that an episode may use, in the order of the reference environment's generator, so that a
seed has the same episode as there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import device

Array = NDArray[Any]


@dataclass(frozen=True)
class Rules:
    """An environment's rules.

    :param name: of the compiled kernel; unique.
    :param state_size: numbers of ``state``.
    :param observation_size: numbers of the observation, in one-hot form where it is discrete.
    :param action_size: components of a continuous action; 0 for discrete actions.
    :param draws: from a seed's generator and the time limit to the random numbers of its episode, (K,) float64.
    :param start: compiled; ``start(state, draws)`` sets the first state.
    :param observe: compiled; ``observe(state, observation)`` writes the observation, (D,) float64.
    :param number: compiled; ``number(state)`` is the discrete observation; -1 where observations are vectors.
    :param step: compiled; ``step(state, choice, action, draws)`` applies the discrete action ``choice`` or the continuous
        one ``action`` (A,) float32, and returns the reward and whether the episode terminated. The time limit is the
        player's.
    :param math_functions: NumPy's functions that the reference uses and the rules take from the C library instead.
    """

    name: str
    state_size: int
    observation_size: int
    action_size: int
    draws: Callable[[np.random.Generator, int], Array]
    start: Any
    observe: Any
    number: Any
    step: Any
    math_functions: tuple[str, ...] = ()


@device
def no_number(state: Any) -> int:
    """`Rules.number` of vector observations."""
    return -1


@device
def first_number(state: Any) -> int:
    """`Rules.number` of rules that keep the discrete observation in ``state[0]``."""
    return int(state[0])


@device
def observe_one_hot(state: Any, observation: Any) -> None:
    """`Rules.observe` of such rules."""
    observation[:] = 0.0
    observation[int(state[0])] = 1.0
