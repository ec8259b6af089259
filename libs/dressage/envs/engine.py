"""N simulations of one MuJoCo model behind one small interface, in two ways.

`NativeEngine` is `mujoco.batch.Batch`: one call steps all simulations on native threads. It never fills what
`mj_rnePostConstraint` computes, the contact forces (``cfrc_ext``). `DataEngine` keeps one ``MjData`` per simulation and
steps them from Python threads: MuJoCo's functions release the interpreter's lock, so they run in parallel, and each step can be
followed by what stock Gymnasium does after it. `make_engine` chooses the second only where something reads
what the first cannot give (docs/decisions/0010-contact-forces.md has the figures).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from dressage.envs.state import Array

POST_CONSTRAINT = frozenset({"cfrc_ext", "cfrc_int", "cacc"})
"""Arrays that only `mj_rnePostConstraint` fills."""

DIVERGENCE = slice(int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADQACC) + 1)
"""The warnings of bad positions, velocities and accelerations, which MuJoCo numbers one after the other."""
_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # the solver's warm start is part of it
# Simulations that a thread takes at a time: few enough that a thread which lost its core leaves the rest to the others.
_BLOCK = 4


class Engine(Protocol):
    """N simulations. ``live`` holds the requested arrays (N, ...) by MuJoCo's names, as of the last call."""

    live: dict[str, Array]

    @property
    def state(self) -> Array:
        """(N, S) float64, a copy: everything that future states depend on, except for future controls."""
        ...

    def load(self, state: Array) -> None:
        """Continue from a value of `state`. ``live`` is stale until the next step."""
        ...

    def step(self, actions: Array, count: int, rows: Array | None = None) -> Array | None:
        """Set the controls (N, nu) and do ``count`` physics steps; the rows in which the simulator raised, if any.

        :param rows: step only these, with the controls (len(rows), nu); None: all.
        """
        ...

    def restart(self, rows: Array, qpos: Array, qvel: Array) -> None:
        """Reset these simulations, set their positions and velocities, compute the forward dynamics."""
        ...

    def reset_rows(self) -> Array | None:
        """Return (N,) bool: rows that MuJoCo has reset since the last call because they diverged; None: none."""
        ...


def make_engine(model: Any, count: int, *, num_threads: int, sources: Collection[str]) -> Engine:
    """Return the faster engine that provides these arrays.

    :param model: ``mujoco.MjModel``.
    :param sources: names of the arrays of ``live``; ``qpos`` and ``qvel`` must be among them.
    """
    if POST_CONSTRAINT & set(sources):
        return DataEngine(model, count, num_threads=num_threads, sources=sources)
    return NativeEngine(model, count, num_threads=num_threads, sources=sources)


class NativeEngine:
    """MuJoCo's own rollout threads as an `Engine`."""

    def __init__(self, model: Any, count: int, *, num_threads: int, sources: Collection[str]) -> None:
        self._batch: Any = Batch(model, count, num_threads)
        self.live: dict[str, Array] = {name: self._batch.bind(name) for name in sorted(sources)}
        self._ctrl: Array = self._batch.bind("ctrl")
        self._warnings: Array = self._batch.warning[:, DIVERGENCE, 1]  # live; the last axis is (last info, count)
        self._warned = self._warnings.copy()

    @property
    def state(self) -> Array:
        copy: Array = self._batch.state.copy()
        return copy

    def load(self, state: Array) -> None:
        self._batch.state[:] = state
        self._warned = self._warnings.copy()

    def step(self, actions: Array, count: int, rows: Array | None = None) -> Array | None:
        self._ctrl[slice(None) if rows is None else rows] = actions
        try:
            self._batch.step(rows, nstep=count)
        except SimulationError as error:
            return np.asarray(error.ids)
        return None

    def restart(self, rows: Array, qpos: Array, qvel: Array) -> None:
        self._batch.reset(rows, stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        self.live["qpos"][rows], self.live["qvel"][rows] = qpos, qvel
        self._batch.forward(rows)
        self._warned = self._warnings.copy()

    def reset_rows(self) -> Array | None:
        changed = self._warnings != self._warned
        if not changed.any():
            return None
        self._warned = self._warnings.copy()
        rows: Array = changed.any(axis=1)
        return rows


class DataEngine:
    """An `MjData` for each environment, as an `Engine`.

    Also fills `POST_CONSTRAINT`, as stock Gymnasium does: after each step, and not after a reset.
    """

    def __init__(self, model: Any, count: int, *, num_threads: int, sources: Collection[str]) -> None:
        self._model, self._count = model, count
        self._datas = [mujoco.MjData(model) for _ in range(count)]
        # Views of each MjData are made once: looking one up costs more than copying what it shows. Plain numbers (time)
        # have none.
        self._numbers = [name for name in sorted(sources) if not isinstance(getattr(self._datas[0], name), np.ndarray)]
        names = sorted(set(sources) - set(self._numbers))
        self._views = [[getattr(data, name) for name in names] for data in self._datas]
        self._ctrls = [data.ctrl for data in self._datas]
        self._warnings = [data.warning.number for data in self._datas]
        self.live: dict[str, Array] = {
            name: np.zeros((count, *view.shape), view.dtype) for name, view in zip(names, self._views[0], strict=True)
        }
        self._rows = [[output[row] for output in self.live.values()] for row in range(count)]
        self.live |= {name: np.zeros(count) for name in self._numbers}
        self._actions = np.zeros((count, model.nu))
        self._state_size = mujoco.mj_stateSize(model, _STATE)
        # One less, because the calling thread takes blocks as well.
        helpers = min(num_threads, -(-count // _BLOCK)) - 1
        self._helpers = helpers
        self._pool = ThreadPoolExecutor(helpers, thread_name_prefix="simulate") if helpers > 0 else None

    @property
    def state(self) -> Array:
        rows = np.empty((self._count, self._state_size))
        for data, row in zip(self._datas, rows, strict=True):
            mujoco.mj_getState(self._model, data, row, _STATE)
        return rows

    def load(self, state: Array) -> None:
        for data, row in zip(self._datas, state, strict=True):
            mujoco.mj_resetData(self._model, data)
            mujoco.mj_setState(self._model, data, row, _STATE)

    def step(self, actions: Array, count: int, rows: Array | None = None) -> Array | None:
        chosen = np.arange(self._count) if rows is None else rows
        self._actions[chosen] = actions
        failed: list[int] = []
        # Shared: whoever is free takes the next.
        blocks = iter([chosen[first : first + _BLOCK].tolist() for first in range(0, len(chosen), _BLOCK)])
        work = (
            [self._pool.submit(self._work, blocks, count, failed) for _ in range(self._helpers)] if self._pool else []
        )
        self._work(blocks, count, failed)
        for done in work:
            done.result()
        return np.array(failed) if failed else None

    def _work(self, blocks: Iterator[list[int]], count: int, failed: list[int]) -> None:
        model, step, post = self._model, mujoco.mj_step, mujoco.mj_rnePostConstraint
        # Of all threads: under the interpreter's lock a list's iterator gives each item to one of them.
        for block in blocks:
            for row in block:
                data = self._datas[row]
                self._ctrls[row][:] = self._actions[row]
                try:
                    step(model, data, count)
                    post(model, data)
                except mujoco.FatalError:
                    failed.append(row)
                self._collect(row)

    def _collect(self, row: int) -> None:
        copy = np.copyto
        for target, source in zip(self._rows[row], self._views[row], strict=True):
            copy(target, source)
        for name in self._numbers:
            self.live[name][row] = getattr(self._datas[row], name)

    def restart(self, rows: Array, qpos: Array, qvel: Array) -> None:
        for row, positions, velocities in zip(rows, qpos, qvel, strict=True):
            data = self._datas[row]
            mujoco.mj_resetData(self._model, data)
            data.qpos[:], data.qvel[:] = positions, velocities
            mujoco.mj_forward(self._model, data)
            self._collect(row)

    def reset_rows(self) -> Array | None:
        # A reset, also MuJoCo's after a divergence, sets the counters to zero; MuJoCo counts its resets after that.
        rows = np.array([bool(numbers[DIVERGENCE].any()) for numbers in self._warnings])
        return rows if rows.any() else None
