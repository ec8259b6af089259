"""The state of N environments as named arrays: what generated rewards read.

A `State` maps field names of the environment card to arrays with a leading axis of N environments. Fields are
computed when first read, from copies of the simulator's arrays that the state owns: a reward that reads only
``x_velocity`` pays only for that, and a state stays valid after the environment has moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.errors import ReadOnly, UnknownField

Array = NDArray[Any]
Raw = Mapping[str, Array]
"""Simulator arrays by MuJoCo's names (``qpos``, ``xpos``, ...), each with a leading axis of N rows."""
FieldFunction = Callable[[Raw], Array]


class State:
    """Read-only namespace of arrays with a leading axis of N environments, one per field of the card.

    :param fields: ready arrays by field name.
    :param raw: simulator arrays that ``functions`` read; must not change afterwards.
    :param functions: how to compute each further field from ``raw``; called at most once per field.
    """

    __slots__ = ("_arrays", "_functions", "_raw")

    _arrays: dict[str, Array]
    _functions: Mapping[str, FieldFunction]
    _raw: Raw

    def __init__(
        self,
        fields: Mapping[str, Array] | None = None,
        *,
        raw: Raw | None = None,
        functions: Mapping[str, FieldFunction] | None = None,
    ) -> None:
        object.__setattr__(self, "_arrays", {name: _read_only(value) for name, value in (fields or {}).items()})
        object.__setattr__(self, "_raw", raw or {})
        object.__setattr__(self, "_functions", functions or {})

    def __getattr__(self, name: str) -> Array:
        array = self._arrays.get(name)
        if array is not None:
            return array
        function = self._functions.get(name)
        if function is None:
            raise UnknownField("state", name, self._names())
        array = _read_only(function(self._raw))
        self._arrays[name] = array
        return array

    def __setattr__(self, name: str, value: object) -> None:
        raise ReadOnly(f"the state is read-only: cannot set {name!r}")

    def __dir__(self) -> list[str]:
        return [*self._names(), "fields", "rows"]

    def __repr__(self) -> str:
        return f"State({', '.join(self._names())})"

    @property
    def fields(self) -> Mapping[str, Array]:
        """All fields by name, in the card's order; reading a value computes it."""
        return _Fields(self)

    def rows(self, index: Any) -> State:
        """Return a state of the selected rows, all fields computed.

        :param index: anything that indexes the first axis of an array and keeps it (slice, mask, integers).
        """
        return State({name: array[index] for name, array in self.fields.items()})

    def _names(self) -> list[str]:
        return list(dict.fromkeys((*self._functions, *self._arrays)))


class _Fields(Mapping[str, Array]):
    """Mapping view of a state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Array:
        try:
            return self._state.__getattr__(name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._state._names())

    def __len__(self) -> int:
        return len(self._state._names())


def _read_only(array: Array) -> Array:
    """Return a read-only view, so that generated code cannot write into what others read. JAX's arrays are read-only."""
    if not isinstance(array, np.ndarray):
        if hasattr(array, "__array_namespace__") and not isinstance(array, np.generic):
            return array
        array = np.asarray(array)
    view = array.view()
    view.flags.writeable = False
    return view
