"""`BatchEnv`, the protocol of N environments that a trainer steps as one batch, and what its methods return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as with_default
from typing import Literal, Protocol

import numpy as np

from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import Array, State
from dressage.errors import InvalidArgument


class Info(Mapping[str, Array]):
    """Stock Gymnasium's ``info`` of a step as arrays (N, ...), computed when it is first read.

    :param compute: gives the arrays by Gymnasium's names.
    """

    __slots__ = ("_compute", "_values")

    def __init__(self, compute: Callable[[], Mapping[str, Array]] | None = None) -> None:
        self._compute = compute
        self._values: Mapping[str, Array] | None = None

    def __getitem__(self, name: str) -> Array:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> Mapping[str, Array]:
        if self._values is None:
            self._values = self._compute() if self._compute is not None else {}
        return self._values


@dataclass(frozen=True, slots=True)
class BatchStep:
    """The result of one step of N environments. The caller may keep and change the arrays.

    :param observation: (N, D) float64, after auto-reset: the next action is for this one.
    :param final_observation: (N, D) float64, before auto-reset: the last of an episode that ended.
    :param reward: (N,) float64, the stock reward.
    :param terminated: (N,) bool; both this and ``truncated`` may be set, as in stock Gymnasium.
    :param truncated: (N,) bool: the episode reached its time limit, or the simulation diverged.
    :param state: the state before the step.
    :param next_state: the state after it, before auto-reset.
    :param info: what stock Gymnasium's ``info`` holds for the step.
    """

    observation: Array
    final_observation: Array
    reward: Array
    terminated: Array
    truncated: Array
    state: State
    next_state: State
    info: Info = with_default(default_factory=Info)


class BatchEnv(Protocol):
    """N environments that step together; each restarts on its own when its episode ends (auto-reset).

    ``divergences`` counts the environment steps whose simulation diverged (or whose action was not finite): such a row
    is truncated with reward 0, its ``next_state`` and final observation repeat the last good ones.

    ``action_kind`` is ``box`` or ``discrete``; a discrete action is one integer below ``num_actions``, and ``action_size``
    is then 1.
    """

    num_envs: int
    card: EnvironmentCard
    observation_size: int
    action_size: int
    action_kind: Literal["box", "discrete"]
    num_actions: int
    action_low: Array
    action_high: Array
    divergences: int

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start an episode in each environment, seeded as Gymnasium's ``reset(seed=...)`` does.

        :param seeds: one non-negative integer per environment.
        :returns: observations (N, D) float64.
        """
        ...

    def state(self) -> State:
        """Return the current state; it stays valid after further steps."""
        ...

    def step(self, actions: Array) -> BatchStep:
        """Apply actions (N, A), or integers (N,) where they are discrete, for one time step.

        Box actions are not clipped here; the simulator clamps what it applies, and the stock reward's control cost counts
        them as given.
        """
        ...

    def snapshot(self) -> dict[str, Array]:
        """Return everything on which future steps depend, as plain arrays."""
        ...

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Continue from a snapshot, bit by bit, of this batch or of another of the same environment, size and options."""
        ...


def environment_bytes(env_id: str) -> Array:
    """Return an id as the array of a snapshot."""
    return np.frombuffer(env_id.encode(), dtype=np.uint8).copy()


def check_snapshot(snapshot: Mapping[str, Array], env_id: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a snapshot of another environment, size or options.

    :param shapes: the required arrays and their shapes, without ``environment``.
    :raises InvalidArgument: naming the array.
    """
    for name, shape in {"environment": (len(env_id.encode()),), **shapes}.items():
        if name not in snapshot:
            raise InvalidArgument(field=f"snapshot.{name}", value=None, expected="an array; it is missing")
        if np.shape(snapshot[name]) != shape:
            raise InvalidArgument(field=f"snapshot.{name}", value=np.shape(snapshot[name]), expected=f"shape {shape}")
    if bytes(np.asarray(snapshot["environment"], dtype=np.uint8)) != env_id.encode():
        raise InvalidArgument(field="snapshot.environment", value="another", expected=env_id)
