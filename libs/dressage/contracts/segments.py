"""Recorded trajectories as batches: states, actions, next states. Arrays only, no generated code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import State
from dressage.envs.trajectory import Trajectory

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Segments:
    """R pieces of episodes as a batch of R environments.

    ``fields`` are (L+1, R, …) and ``action`` is (L, R, A), where L is the number of steps of the longest piece. Values past
    the end of a shorter piece are padding.
    """

    fields: dict[str, Float]
    action: Float
    lengths: NDArray[np.int64]
    """(R,) steps of each piece."""

    @property
    def steps(self) -> int:
        """L."""
        return len(self.action)

    @property
    def rows(self) -> int:
        """R."""
        return int(self.action.shape[1])

    def select(self, rows: Any) -> Segments:
        """Return the chosen rows, in the order given."""
        fields = {name: array[:, rows] for name, array in self.fields.items()}
        return Segments(fields, self.action[:, rows], self.lengths[rows])

    def until(self, steps: int) -> Segments:
        """Return the first ``steps`` steps of each row."""
        fields = {name: array[: steps + 1] for name, array in self.fields.items()}
        return Segments(fields, self.action[:steps], np.minimum(self.lengths, steps))

    def at(self, instant: int, rows: int | None = None) -> State:
        """Return the state at an instant (0 to L) of the first ``rows`` rows, or of all."""
        return State({name: array[instant, :rows] for name, array in self.fields.items()})


def cut_segments(trajectories: Sequence[Trajectory], card: EnvironmentCard, *, length: int, limit: int) -> Segments:
    """Cut trajectories into at most ``limit`` pieces of ``length`` steps, taken from all of them in turn.

    Shorter trajectories are skipped. If all of them are shorter, the length is that of the shortest.
    """
    lengths = [trajectory.num_steps for trajectory in trajectories if trajectory.num_steps > 0]
    if not any(steps >= length for steps in lengths):
        length = min(lengths)
    pieces = [
        (trajectory, start)
        for start in range(0, max(lengths), length)
        for trajectory in trajectories
        if start + length <= trajectory.num_steps
    ][:limit]

    def stack(name: str) -> Float:
        columns = [np.asarray(t.fields[name][start : start + length + 1], np.float64) for t, start in pieces]
        return np.stack(columns, axis=1)

    action = np.stack([np.asarray(t.action[s : s + length], np.float64) for t, s in pieces], axis=1)
    return Segments({name: stack(name) for name in card.field_names}, action, np.full(len(pieces), length))


def whole_episodes(trajectories: Sequence[Trajectory], card: EnvironmentCard) -> Segments:
    """Return whole trajectories as a batch, in the order given."""
    lengths = np.array([trajectory.num_steps for trajectory in trajectories])
    steps = int(lengths.max())

    def pad(arrays: Sequence[Any], size: int) -> Float:
        stack = np.zeros((size, len(arrays), *arrays[0].shape[1:]))
        for row, array in enumerate(arrays):
            stack[: len(array), row] = array
        return stack

    fields = {name: pad([t.fields[name] for t in trajectories], steps + 1) for name in card.field_names}
    return Segments(fields, pad([t.action for t in trajectories], steps), lengths)
