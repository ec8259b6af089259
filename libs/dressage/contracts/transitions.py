"""Recorded trajectories as what a reward is called with: states, actions, next states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.faults import RewardError
from dressage.contracts.reward import BatchReward, RewardModule
from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import State
from dressage.envs.trajectory import Trajectory

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Segments:
    """R pieces of episodes, side by side: what R environments did.

    ``fields`` are (L+1, R, …), ``action`` (L, R, A), where L is the longest one's number of steps. Of a shorter one what lies
    past its end means nothing.
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

    def at(self, instant: int, rows: int | None = None) -> State:
        """Return the state at an instant (0 to L) of the first ``rows`` rows, or of all."""
        return State({name: array[instant, :rows] for name, array in self.fields.items()})


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
    return Segments({name: stacked(name) for name in card.field_names}, action, np.full(len(pieces), length))


def whole(trajectories: Sequence[Trajectory], card: EnvironmentCard) -> Segments:
    """Return whole trajectories side by side, in the order given."""
    lengths = np.array([trajectory.num_steps for trajectory in trajectories])
    steps = int(lengths.max())

    def padded(arrays: Sequence[Any], size: int) -> Float:
        stacked = np.zeros((size, len(arrays), *arrays[0].shape[1:]))
        for row, array in enumerate(arrays):
            stacked[: len(array), row] = array
        return stacked

    fields = {name: padded([t.fields[name] for t in trajectories], steps + 1) for name in card.field_names}
    return Segments(fields, padded([t.action for t in trajectories], steps), lengths)


def evaluate(
    module: RewardModule, card: EnvironmentCard, segments: Segments, reward: BatchReward | None = None
) -> Float:
    """Return the terms (L, K, R) of a reward over segments, from fresh memory unless ``reward`` is given.

    The reward sees every row's own steps and nothing past them; there the terms are 0.

    :param reward: goes on from its memory; for rows of one length only.
    :raises RewardError: with the row, if it is one's fault, and the step at which it happened in what was seen.
    """
    reward = reward or BatchReward(module, card, segments.rows)
    results = np.zeros((segments.steps, len(module.terms), segments.rows))
    # The longest first, so that those still running are the first ones, which costs no copy at each step.
    order = np.argsort(-segments.lengths, kind="stable")
    if (np.diff(order) < 0).any():
        segments = segments.select(order)
    running, after = segments.rows, segments.at(0)
    for step in range(segments.steps):
        if segments.lengths[running - 1] <= step:
            running = int(np.count_nonzero(segments.lengths > step))
            reward.keep(running)
            after = segments.at(step, running)
        before, after = after, segments.at(step + 1, running)
        try:
            terms = reward(before, segments.action[step, :running], after).terms
        except RewardError as error:
            raise _placed(error, step, order) from error
        results[step][:, order[:running]] = list(terms.values())
    return results


def _placed(error: RewardError, step: int, order: NDArray[np.int64]) -> RewardError:
    """The error with the step, and the row as the caller counts."""
    row = None if error.row is None else int(order[error.row])
    seen = f"{error.seen} at step {step}".lstrip()
    return RewardError(error.rule, error.failure.message, line=error.line, seen=seen, term=error.term, row=row)
