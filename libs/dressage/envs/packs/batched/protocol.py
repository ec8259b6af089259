"""What a simulator of a pack must offer. Its state is read where it computes rewards, which is before any reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dressage.envs.cards import Field
from dressage.envs.state import Array


@dataclass(frozen=True)
class VisibleState:
    """What is visible of N environments.

    :param observation: (N, D) float64.
    :param fields: by name, (N, ...) float64.
    """

    observation: Array
    fields: Mapping[str, Array]

    def finite(self) -> Array:
        """Return the rows (N,) all of whose numbers are finite."""
        rows = np_finite(self.observation)
        for value in self.fields.values():
            rows &= np_finite(value)
        return rows


def np_finite(array: Array) -> Array:
    """Return the rows (N,) of an array (N, ...) all of whose numbers are finite."""
    import numpy as np

    flat = np.asarray(array).reshape(len(array), -1)
    return np.asarray(np.isfinite(flat).all(axis=1))


@dataclass(frozen=True)
class Result:
    """A step before any environment is restarted.

    :param state: the state in which the rewards were computed.
    :param reward: (N,) the stock reward.
    :param terminated: (N,) bool.
    :param truncated: (N,) bool, by the time limit.
    :param restarted: (N,) bool: the simulator has restarted these already.
    """

    state: VisibleState
    reward: Array
    terminated: Array
    truncated: Array
    restarted: Array


@dataclass(frozen=True)
class Facts:
    """The live numbers and names of an environment, from which its card is generated.

    :param observation: name and size of each part of the observation, in order.
    :param action: names of the components of the action.
    :param fields: of the state, without ``observation`` and ``time``.
    :param terminations: names of the conditions that end an episode before its time limit.
    :param rewards: names of the terms of the stock reward.
    """

    observation: Sequence[tuple[str, int]]
    action: Sequence[str]
    fields: Sequence[Field]
    time_step: float
    max_episode_steps: int
    terminations: Sequence[str]
    rewards: Sequence[str]


class Simulator(Protocol):
    """N environments of a pack's simulator."""

    num_envs: int

    def facts(self) -> Facts:
        """Return the names and numbers of the live environment."""
        ...

    def reset(self, seed: int) -> None:
        """Seed all random streams and restart every environment."""
        ...

    def restart(self, rows: Array) -> None:
        """Restart the environments of these numbers."""
        ...

    def step(self, actions: Array) -> Result:
        """Apply actions (N, A) for one time step."""
        ...

    def visible_state(self) -> VisibleState:
        """Return the current state, after restarts."""
        ...

    def spoil(self, row: int) -> None:
        """Make the physical state of one environment NaN, for tests of faults."""
        ...

    def close(self) -> None:
        """Release what the simulator holds."""
        ...


def simulator_arguments(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `make` from a message, typed."""
    limit = request.get("max_episode_steps")
    return {
        "num_envs": int(request["num_envs"]),
        "max_episode_steps": None if limit is None else int(limit),
    }
