"""Recorded trajectories as what a reward is called with: states, actions, next states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.reward import BatchReward, RewardModule
from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import State
from dressage.envs.trajectory import Trajectory

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Segments:
    """R pieces of episodes of L steps each, side by side: what R environments did.

    ``fields`` are (L+1, R, …), ``action`` (L, R, A).
    """

    fields: dict[str, Float]
    action: Float

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
        return Segments({name: array[:, rows] for name, array in self.fields.items()}, self.action[:, rows])

    def __iter__(self) -> Iterator[tuple[State, Float, State]]:
        """Yield (state, action, next_state) of each step."""
        after = State({name: array[0] for name, array in self.fields.items()})
        for step in range(self.steps):
            before, after = after, State({name: array[step + 1] for name, array in self.fields.items()})
            yield before, self.action[step], after


def cut(trajectories: Sequence[Trajectory], card: EnvironmentCard, *, length: int, limit: int) -> Segments:
    """Cut trajectories into at most ``limit`` pieces of ``length`` steps, taken from all of them in turn.

    Trajectories shorter than that are passed over, unless all are: then the length is the shortest one's.
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

    def stacked(name: str) -> Float:
        columns = [np.asarray(t.fields[name][start : start + length + 1], np.float64) for t, start in pieces]
        return np.stack(columns, axis=1)

    action = np.stack([np.asarray(t.action[s : s + length], np.float64) for t, s in pieces], axis=1)
    return Segments({name: stacked(name) for name in card.field_names}, action)


def whole(trajectories: Sequence[Trajectory], card: EnvironmentCard) -> Segments:
    """Return whole trajectories side by side; shorter ones stand still at their last state."""
    steps = max(trajectory.num_steps for trajectory in trajectories)

    def padded(array: Any, size: int) -> Float:
        values = np.asarray(array, np.float64)
        return values[np.minimum(np.arange(size), len(values) - 1)]

    fields = {
        name: np.stack([padded(t.fields[name], steps + 1) for t in trajectories], axis=1) for name in card.field_names
    }
    return Segments(fields, np.stack([padded(t.action, steps) for t in trajectories], axis=1))


def evaluate(
    module: RewardModule, card: EnvironmentCard, segments: Segments, reward: BatchReward | None = None
) -> Float:
    """Return the terms (L, K, R) of a reward over segments, from fresh memory unless ``reward`` is given.

    :raises RewardError: with the step at which it happened in what was seen.
    """
    reward = reward or BatchReward(module, card, segments.rows)
    results = np.empty((segments.steps, len(module.terms), segments.rows))
    for step, (state, action, next_state) in enumerate(segments):
        results[step] = list(reward(state, action, next_state).terms.values())
    return results
