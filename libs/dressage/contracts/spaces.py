"""The observation and action spaces of a code policy: what it is given, and which of its answers are actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.failures import PolicyError, shorten
from dressage.errors import InvalidArgument

if TYPE_CHECKING:  # a policy's process needs no environments
    from dressage.envs.cards import EnvironmentCard

Array = NDArray[Any]


@dataclass(frozen=True)
class Spaces:
    """Spaces of one environment.

    :param observation_size: D; of discrete observations the length of their one-hot form.
    :param num_observations: number of discrete observations; 0: observations are (D,) float64.
    :param num_actions: number of discrete actions; 0: actions are boxes.
    :param low: lower bound of each action component; empty for discrete actions.
    :param high: upper bounds.
    """

    observation_size: int
    num_observations: int
    num_actions: int
    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def of(cls, card: EnvironmentCard) -> Spaces:
        """Return the spaces of an environment."""
        box = card.action_kind == "box"
        return cls(
            observation_size=card.observation_size,
            num_observations=card.num_observations,
            num_actions=card.num_actions,
            low=tuple(float(np.float32(part.low)) for part in card.action) if box else (),
            high=tuple(float(np.float32(part.high)) for part in card.action) if box else (),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spaces:
        """Return the spaces of `to_dict`'s data."""
        return cls(**{**values, "low": tuple(values["low"]), "high": tuple(values["high"])})

    def to_dict(self) -> dict[str, Any]:
        """Return the spaces as JSON values."""
        return {**asdict(self), "low": list(self.low), "high": list(self.high)}

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action: (A,), or () where it is an integer."""
        return () if self.num_actions else (len(self.low),)

    def describe_action(self) -> str:
        """Return what an action is, for messages."""
        if self.num_actions:
            return f"an int from 0 to {self.num_actions - 1}"
        return f"a list or array of {len(self.low)} finite number{'s' if len(self.low) != 1 else ''}"

    def rows(self, observations: Array) -> Sequence[Any]:
        """Return what each policy is given: copies of the rows, or the integers of discrete observations.

        :param observations: (n, D) float64, one-hot rows for discrete observations.
        """
        if self.num_observations:
            numbers: list[int] = observations.argmax(axis=1).tolist()
            return numbers
        return [row.copy() for row in observations]

    def actions(self, answers: Sequence[Any]) -> Array:
        """Return the actions of what policies returned: (n,) int64, or (n, A) float32 clipped to the bounds.

        :raises PolicyError: for the first answer that is no action; ``row`` is its index.
        """
        return self._choices(answers) if self.num_actions else self._boxes(answers)

    def _choices(self, answers: Sequence[Any]) -> Array:
        try:
            array = np.array(answers)
        except (ValueError, TypeError, OverflowError):
            array = np.empty(0)
        integers = array.shape == (len(answers),) and array.dtype.kind in "iu"
        if integers and bool(((array >= 0) & (array < self.num_actions)).all()):
            return array.astype(np.int64)
        return np.array([self._choice(answer, index) for index, answer in enumerate(answers)], np.int64)

    def _choice(self, answer: Any, index: int) -> int:
        if isinstance(answer, np.ndarray) and answer.shape == ():
            answer = answer[()]
        if not isinstance(answer, (int, np.integer)):
            self._refuse("action-type", answer, index)
        if not 0 <= int(answer) < self.num_actions:
            self._refuse("action-range", answer, index)
        return int(answer)

    def _boxes(self, answers: Sequence[Any]) -> Array:
        try:
            array = np.array(answers, np.float64)
        except (ValueError, TypeError, OverflowError):
            array = np.empty(0)
        if array.shape != (len(answers), len(self.low)) or not np.isfinite(array).all():
            array = np.array([self._box(answer, index) for index, answer in enumerate(answers)])
        return np.clip(array, self.low, self.high).astype(np.float32)

    def _box(self, answer: Any, index: int) -> Array:
        try:
            array = np.asarray(answer, np.float64)
        except (ValueError, TypeError, OverflowError):
            self._refuse("action-type", answer, index)
        if array.shape != self.action_shape:
            self._refuse("action-shape", answer, index)
        if not np.isfinite(array).all():
            self._refuse("action-finite", answer, index)
        return array

    def _refuse(self, rule: str, answer: Any, index: int) -> Any:
        message = f"act() must return {self.describe_action()}; change what it returns."
        raise PolicyError(rule, message, seen=_describe(answer), row=index)

    def check_reply(self, array: Any, count: int) -> Array:
        """Return the actions that a sandboxed process sent, after a check on the trusted side.

        :raises InvalidArgument: if they are not what `actions` returns for ``count`` rows.
        """
        kind = np.int64 if self.num_actions else np.float32
        whole = isinstance(array, np.ndarray) and array.dtype == kind and array.shape == (count, *self.action_shape)
        low, high = (
            (0, self.num_actions - 1)
            if self.num_actions
            else (np.array(self.low, np.float32), np.array(self.high, np.float32))
        )
        # A comparison with NaN is false.
        if not whole or not bool(((array >= low) & (array <= high)).all()):
            expected = f"{count} actions, each {self.describe_action()}"
            raise InvalidArgument(field="actions", value=_describe(array), expected=expected)
        return np.asarray(array)


def _describe(value: Any) -> str:
    """Return a short description of what a policy returned, without its own ``__repr__``."""
    if isinstance(value, np.ndarray):
        text = f"array of shape {value.shape}, {value.dtype}"
        return text if value.size > 8 else f"{text}: {value.tolist()}"
    if isinstance(value, (list, tuple)) and len(value) > 20:
        return f"{type(value).__name__} of {len(value)} items"
    if value is None or isinstance(value, (bool, int, float, str, list, tuple, np.generic)):
        try:
            return shorten(f"{type(value).__name__} {value!r}", 120)
        except (ValueError, RecursionError):
            return type(value).__name__
    return str(type(value).__name__)
