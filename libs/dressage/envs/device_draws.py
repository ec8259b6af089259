"""Random starts of episodes on a device: the part of numpy's generator that they use, on a key of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dressage.envs.device import DeviceArray
from dressage.envs.tasks.base import Draws

_CANDIDATES = 32
"""Candidates of `KeyDraws.first_accepted`. The tasks accept at least 0.6 of them, so none fits once in 10^13 starts."""


class KeyDraws:
    """See `dressage.envs.tasks.base.DeviceDraws`. It serves one environment; map it over keys for several.

    :param key: of JAX.
    """

    def __init__(self, key: Any) -> None:
        self._key = key

    def uniform(self, low: float, high: float, size: int) -> DeviceArray:
        """Return numbers (size,) from low to high."""
        numbers: DeviceArray = jax.random.uniform(self._next(), (size,), minval=low, maxval=high)
        return numbers

    def standard_normal(self, size: int) -> DeviceArray:
        """Return numbers (size,) of mean 0 and deviation 1."""
        numbers: DeviceArray = jax.random.normal(self._next(), (size,))
        return numbers

    def first_accepted(self, draw: Callable[[Draws], DeviceArray], accept: Callable[[DeviceArray], Any]) -> DeviceArray:
        """Return the first of 32 candidates that is accepted, or the first of all where none is."""
        values = jax.vmap(lambda key: draw(KeyDraws(key)))(jax.random.split(self._next(), _CANDIDATES))
        chosen: DeviceArray = values[jnp.argmax(jax.vmap(accept)(values))]
        return chosen

    def _next(self) -> Any:
        self._key, key = jax.random.split(self._key)
        return key
