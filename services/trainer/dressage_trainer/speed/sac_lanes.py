"""The compiled gradient steps of SAC on several cores, in lanes as in `lanes`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from dressage_trainer.ppo.interfaces import Environment
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.sac.replay import Transitions
from dressage_trainer.sac.sac import (
    Coefficients,
    Minibatches,
    SacState,
    coefficients_of,
    first_state,
    settings_of,
    update_function,
)
from dressage_trainer.speed.lanes import FLOAT32_OPTIONS, BackgroundCompilation, Lanes, Piece, shape_of

_shaped: Any = jax.ShapeDtypeStruct
_block: Any = jax.block_until_ready


class SacLanes:
    """Runs the gradient steps of a group (`dressage_trainer.sac.sac.Optimise`) in lanes, as `LaneUpdate` runs PPO's updates.

    Parameters are those of `LaneUpdate`. A gradient step of SAC takes milliseconds, so that a fixed cost does not count, and
    a member a lane is the fastest.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        *,
        environment: Environment,
        threads: int,
        size: int = 1,
        dtype: Any = np.float32,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._members, self._environment, self._size, self._dtype = list(members), environment, size, dtype
        self._lanes = Lanes(len(members), size=size, threads=threads)
        self.compilation = BackgroundCompilation(self._compile, clock)

    def _compile(self) -> Any:
        members, g = self._members[: self._size], settings_of(self._members).gradient_steps
        generators = [np.random.default_rng(0) for _ in members]
        state = first_state(members, generators, self._environment, dtype=self._dtype)
        d, a = self._environment.observation_size, self._environment.action_size

        def shape(*dims: int) -> Any:
            return _shaped((g, self._size, members[0].hyperparameters.minibatch_size, *dims), self._dtype)

        transitions = Transitions(shape(d), shape(a), shape(d), shape(), shape())
        c = jax.tree.map(shape_of, coefficients_of(members, dtype=self._dtype))
        arguments = (jax.tree.map(shape_of, state), Minibatches(transitions, shape(a), shape(a)), c)
        number = _shaped((), np.int32)
        with jax.enable_x64(self._dtype == np.float64):
            lowered = update_function(self._members).lower(*arguments, number, number)
            return lowered.compile(FLOAT32_OPTIONS if self._dtype == np.float32 else None)

    def __call__(self, state: SacState, minibatches: Minibatches, coefficients: Coefficients) -> SacState:
        """Run a gradient step for each minibatch. Numpy arrays in and out."""
        update = self.compilation.result()[0]

        def run(lane: slice, piece: Piece, before: Any) -> SacState:
            begun = jax.tree.map(lambda x: x[lane], state) if before is None else before
            batches = jax.tree.map(lambda x: np.ascontiguousarray(x[:, lane]), minibatches)
            c = jax.tree.map(lambda x: x[lane], coefficients)
            with jax.enable_x64(self._dtype == np.float64):
                end: SacState = _block(update(begun, batches, c, np.int32(piece.first), np.int32(piece.last)))
            return end

        state = self._lanes.run(len(minibatches.noise), run)
        return state
