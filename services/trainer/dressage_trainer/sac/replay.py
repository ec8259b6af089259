"""The replay buffer of stacked members: a ring of transitions for each, in one array.

Its memory is reserved at once and taken as it fills.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


class Transitions(NamedTuple):
    """Transitions with any leading axes."""

    observations: Any
    """(..., D) before the step."""
    actions: Any
    """(..., A) within [-1, 1]."""
    next_observations: Any
    """(..., D) after it, before a reset."""
    rewards: Any
    """(...)"""
    terminations: Any
    """(...) 1.0 where no value follows; an episode that its time limit ended has one that does."""


class ReplayBuffer:
    """The last transitions of M members.

    :param size: transitions of each member; a multiple of the environments is used.
    :param num_envs: n, environments of each member, which add a transition each at a time.
    """

    def __init__(
        self, *, members: int, size: int, num_envs: int, observation_size: int, action_size: int, dtype: Any
    ) -> None:
        self._sizes = observation_size, action_size
        # A multiple of the environments, so that the rows of a step never wrap around.
        self.capacity = max(1, size // num_envs) * num_envs
        self._rows = np.zeros((members, self.capacity, 2 * observation_size + action_size + 2), dtype)
        self._next = 0
        self._full = False
        self._lent = False
        """Whether a snapshot refers to rows."""

    @property
    def filled(self) -> int:
        """Transitions of each member."""
        return self.capacity if self._full else self._next

    def add(self, transitions: Transitions) -> None:
        """Add (M, n) transitions in place of the oldest."""
        n = transitions.rewards.shape[1]
        # A snapshot refers to the rows that this step overwrites (decision 0051).
        if self._full and self._lent:
            self._rows, self._lent = self._rows.copy(), False
        rows = self._rows[:, self._next : self._next + n]
        np.concatenate(
            [
                transitions.observations,
                transitions.next_observations,
                transitions.actions,
                transitions.rewards[..., None],
                transitions.terminations[..., None],
            ],
            axis=-1,
            out=rows,
            casting="same_kind",
        )
        self._next += n
        if self._next == self.capacity:
            self._next, self._full = 0, True

    def sample(self, generators: list[np.random.Generator], shape: tuple[int, int]) -> Transitions:
        """Draw transitions uniformly, with replacement, each member's by its own generator.

        :param shape: (G, B) minibatches and their size.
        :returns: transitions with the axes (G, M, B).
        """
        gradient_steps, size = shape
        rows = np.empty((gradient_steps, len(generators), size, self._rows.shape[-1]), self._rows.dtype)
        for member, generator in enumerate(generators):
            indices = generator.integers(0, self.filled, shape)
            rows[:, member] = self._rows[member][indices]
        d, a = self._sizes
        return Transitions(
            observations=rows[..., :d],
            next_observations=rows[..., d : 2 * d],
            actions=rows[..., 2 * d : 2 * d + a],
            rewards=rows[..., -2],
            terminations=rows[..., -1],
        )

    def arrays(self) -> Arrays:
        """The filled part for a snapshot, and the place of the oldest transition.

        The snapshot refers to these rows. They are copied once the next steps overwrite one, thus never in a ring that holds
        a whole training.
        """
        self._lent = True
        # An array for each member is contiguous, and is written to a file without a copy.
        rows = {f"rows/{member}": rows[: self.filled] for member, rows in enumerate(self._rows)}
        return {**rows, "next": np.array(self._next), "full": np.array(self._full)}

    def load(self, arrays: Arrays) -> None:
        """Restore what `arrays` returned; its buffer may have been smaller, if that run was shorter."""
        buffers = [arrays[f"rows/{member}"] for member in range(len(self._rows))]
        filled, place = len(buffers[0]), int(arrays["next"])
        keep = min(filled, self.capacity)
        same = filled == keep and (not bool(arrays["full"]) or filled == self.capacity)
        for own, rows in zip(self._rows, buffers, strict=True):
            # In a buffer of another size the oldest comes first.
            own[:keep] = rows if same else np.roll(rows, -place, axis=0)[filled - keep :]
        self._next, self._full = (place if same else keep) % self.capacity, keep == self.capacity
