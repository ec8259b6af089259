"""Per-environment episode memory of vectorised rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.failures import RewardError


class Memory:
    """Attributes declared in MEMORY: one number per environment each, replaced as a whole and never modified in place.

    :param initial: value of each attribute at the start of an episode.
    :param num_envs: N; every attribute is an (N,) float64 array.
    """

    __slots__ = ("_initial", "_size", "_values")

    _initial: dict[str, float]
    _size: int
    _values: dict[str, Any]

    def __init__(self, initial: Mapping[str, float], num_envs: int) -> None:
        object.__setattr__(self, "_initial", {name: float(value) for name, value in initial.items()})
        object.__setattr__(self, "_size", num_envs)
        object.__setattr__(self, "_values", {})
        self._reset(None)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(self._undeclared_error(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._initial:
            raise AttributeError(self._undeclared_error(name))
        shape = getattr(value, "shape", None)
        if shape != (self._size,):
            seen = f"shape {shape}" if shape is not None else type(value).__name__
            raise RewardError(
                "memory-shape",
                f"memory.{name} must be given an (N,) array, one value per environment.",
                seen=seen,
            )
        self._values[name] = value

    def _undeclared_error(self, name: str) -> str:
        return f"memory.{name} is not declared in MEMORY; declared: {', '.join(self._initial) or 'none'}"

    def _reset(self, mask: NDArray[np.bool_] | None) -> None:
        for name, value in self._initial.items():
            if mask is None:
                self._values[name] = _freeze(np.full(self._size, value))
            else:
                self._values[name] = _freeze(np.where(mask, value, np.asarray(self._values[name], np.float64)))

    def _hold(self, values: Mapping[str, Any]) -> None:
        """Take arrays as they are, JAX's abstract ones too."""
        self._values.update(values)

    def _arrays(self) -> dict[str, Any]:
        return dict(self._values)

    def _keep(self, count: int) -> None:
        object.__setattr__(self, "_size", count)
        for name, values in self._values.items():
            self._values[name] = _freeze(np.asarray(values)[:count])

    def _snapshot(self) -> dict[str, NDArray[np.float64]]:
        return {name: np.array(self._values[name], np.float64) for name in self._initial}

    def _restore(self, values: Mapping[str, NDArray[Any]]) -> None:
        for name in self._initial:
            self._values[name] = _freeze(np.array(values[name], np.float64))


def _freeze(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
