"""Plays whole seeded episodes of many candidates in MuJoCo's environments, in batches of simulations.

Each row of the batch is an episode of one candidate. When it ends, the row starts the next one; when none is left, the row
is no longer stepped. A row equals an episode on stock Gymnasium with the same actions, and does not depend on the others.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.envs import random_state
from dressage.envs.engine import Engine, make_engine
from dressage.envs.mujoco_batch import rules_of
from dressage.envs.options import EnvOptions
from dressage.envs.tasks import task as task_of
from dressage.episodes.kernels import act_kernel
from dressage.episodes.networks import Networks
from dressage.episodes.outcomes import Outcomes
from dressage.errors import Internal, InvalidArgument
from dressage.policies.kinds import PolicySpec

Array = NDArray[Any]
_ROWS = 256
"""Simulations of a batch: enough to keep the interpreter's share small."""
_MAX_REWARDS = 1 << 24
_PART_ROWS = 4


class SimulatedEpisodes:
    """The `EpisodeEngine` of environments that MuJoCo simulates.

    :param env_id: an environment of MuJoCo's that has a card.
    :param threads: native threads that step the simulations.
    :raises InvalidArgument: for a bad option.
    """

    def __init__(
        self,
        env_id: str,
        spec: PolicySpec,
        seeds: Sequence[int],
        options: EnvOptions | None = None,
        *,
        threads: int = 1,
        rows: int = _ROWS,
    ) -> None:
        options = options or EnvOptions()
        self._card = options.check(env_id)
        self._spec, self._seeds, self._threads = spec, tuple(seeds), threads
        self._task, self._rules = task_of(env_id), rules_of(self._card, options)
        self._model = _model(env_id)
        self._substeps = round(self._card.time_step / float(self._model.opt.timestep))
        self._time_step = float(self._model.opt.timestep) * self._substeps
        self._limit = self._rules.max_episode_steps
        self._rows = max(1, min(rows, _MAX_REWARDS // self._limit))
        self.part = max(1, -(-_PART_ROWS * self._rows // len(self._seeds)))
        self._starts: dict[int, tuple[Array, Array]] = {}
        self._act, self._width = act_kernel(), 0
        self._engine: Engine | None = None

    def play(self, parameters: Array) -> Outcomes:
        parameters = np.asarray(parameters, np.float64)
        networks = Networks.of(self._spec, parameters)
        episodes = len(parameters) * len(self._seeds)
        if self._engine is None or self._width < min(self._rows, episodes):
            self._width = min(self._rows, episodes)
            sources = {"qpos", "qvel", *self._task.sources}
            self._engine = make_engine(self._model, self._width, num_threads=self._threads, sources=sources)
        return _Play(self, self._engine, networks, episodes).run()


@functools.lru_cache(maxsize=4)
def _model(env_id: str) -> Any:
    """Return an environment's model, which no simulation changes."""
    return task_of(env_id).load()


class _Play:
    """All episodes of one call."""

    def __init__(self, owner: SimulatedEpisodes, engine: Any, networks: Networks, episodes: int) -> None:
        self._owner, self._engine, self._networks = owner, engine, networks
        self._episodes, self._next = episodes, 0
        self._returns, self._lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        width = min(owner._width, episodes)
        self._rewards = np.zeros((width, owner._limit))
        # Of the rows that still run: place in the batch, episode, steps done.
        self._places, self._running = np.arange(width), np.zeros(width, np.int64)
        self._steps = np.zeros(width, np.int64)
        self._raw: dict[str, Array] = {}

    def run(self) -> Outcomes:
        """Play.

        :raises InvalidArgument: if an action is not a number.
        """
        self._refill(np.arange(len(self._places)))
        while len(self._places):
            self._step()
        shape = (-1, len(self._owner._seeds))
        return Outcomes(self._returns.reshape(shape), self._lengths.reshape(shape))

    def _step(self) -> None:
        owner, before = self._owner, self._raw
        actions = self._actions(owner._task.observation(before))
        whole = len(self._places) == owner._width
        failed = self._engine.step(actions, owner._substeps, None if whole else self._places)
        if failed is not None:
            raise Internal(f"the simulator failed in {owner._card.id}", reason="SIMULATION_FAILED")
        self._raw = after = self._copy()
        outcome = owner._task.outcome(before, after, actions, time_step=owner._time_step, rules=owner._rules)
        self._rewards[self._places, self._steps] = outcome.reward
        self._steps += 1
        ended = np.flatnonzero(outcome.terminated | (self._steps >= owner._limit))
        if len(ended):
            self._finish(ended)

    def _actions(self, observations: Array) -> Array:
        """Return the actions (n, A) float32 of the rows that run."""
        networks, count = self._networks, len(observations)
        candidates = self._running // len(self._owner._seeds)
        actions = np.zeros((count, networks.bounds.shape[1]), np.float32)
        bad = self._owner._act(
            networks.weights,
            networks.sizes,
            networks.relu,
            networks.normalization,
            networks.clip,
            networks.bounds,
            candidates,
            np.ascontiguousarray(observations, np.float64),
            actions,
            np.zeros(0, np.int64),
        )
        if bad >= 0:
            expected = f"{actions.shape[1]} finite numbers at step {self._steps[bad]}"
            raise InvalidArgument(field="action", value="not a number", expected=expected)
        return actions

    def _finish(self, ended: Array) -> None:
        """Note these rows' results, and let them start the next episodes or drop them."""
        for index in ended:
            episode, steps = self._running[index], self._steps[index]
            self._returns[episode] = np.sum(self._rewards[self._places[index], :steps])
            self._lengths[episode] = steps
        self._refill(ended)

    def _refill(self, rows: Array) -> None:
        started = rows[: self._episodes - self._next]
        dropped = rows[len(started) :]
        if len(started):
            self._running[started] = np.arange(self._next, self._next + len(started))
            self._next += len(started)
            self._steps[started] = 0
            starts = [self._start(int(episode)) for episode in self._running[started]]
            qpos, qvel = (np.stack(arrays) for arrays in zip(*starts, strict=True))
            self._engine.restart(self._places[started], qpos, qvel)
        if len(dropped):
            keep = np.ones(len(self._places), bool)
            keep[dropped] = False
            self._places, self._running, self._steps = self._places[keep], self._running[keep], self._steps[keep]
        self._raw = self._copy()

    def _copy(self) -> dict[str, Array]:
        """Return the simulator's arrays of the rows that run."""
        if len(self._places) == self._owner._width:
            return {name: array.copy() for name, array in self._engine.live.items()}
        return {name: array[self._places] for name, array in self._engine.live.items()}

    def _start(self, episode: int) -> tuple[Array, Array]:
        """Return the first positions and velocities of an episode, which its seed decides."""
        owner = self._owner
        seed = owner._seeds[episode % len(owner._seeds)]
        if seed not in owner._starts:
            stream, scale = random_state.generator(seed), owner._rules.reset_noise_scale or 0.0
            initial = owner._task.initial_qpos(owner._model)
            owner._starts[seed] = owner._task.start(stream, initial, nv=int(owner._model.nv), scale=scale)
        return owner._starts[seed]
