"""`BatchEnv` on MuJoCo: every environment is one row of the simulator's arrays.

The simulator's arrays are live (`dressage.envs.engine`), so after each step the few that observation, reward and fields
read are copied once; everything else is array operations on those copies. What stock Gymnasium does is followed in its
order: reset the simulation, draw noise from the environment's own generator, compute the forward dynamics; then steps
that carry the solver's warm start on (it is part of the simulator's state rows, and so of a snapshot).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dressage.envs import random_state
from dressage.envs.cards import EnvironmentCard
from dressage.envs.engine import make_engine
from dressage.envs.fields import sources_of, trackers_of
from dressage.envs.layout import layout_of
from dressage.envs.options import EnvOptions
from dressage.envs.protocol import BatchStep, Info, check_snapshot, environment_bytes
from dressage.envs.state import Array, Raw, State
from dressage.envs.tasks import task as task_of
from dressage.envs.tasks.base import Rules
from dressage.errors import FailedPrecondition, InvalidArgument

_RAW = "raw/"


class MujocoBatch:
    """Environments of MuJoCo on native threads, as a `BatchEnv`."""

    def __init__(
        self,
        card: EnvironmentCard,
        num_envs: int,
        *,
        num_threads: int,
        options: EnvOptions,
        fields: Collection[str] | None,
    ) -> None:
        self.card = card
        self.num_envs = num_envs
        self.observation_size = card.observation_size
        self.action_size = card.action_size
        self.action_kind, self.num_actions = card.action_kind, card.num_actions
        self.action_low = np.array([part.low for part in card.action], dtype=np.float32)
        self.action_high = np.array([part.high for part in card.action], dtype=np.float32)
        self.divergences = 0
        self._task = task_of(card.id)
        self._rules = rules_of(card, options)
        model = self._task.load()
        self._time_step = float(model.opt.timestep) * (frame_skip := round(card.time_step / model.opt.timestep))
        self._frame_skip = frame_skip
        bound = [entry for entry in self._task.fields(layout_of(model)) if fields is None or entry.field.name in fields]
        self._functions = {entry.field.name: entry.function for entry in bound}
        self._trackers = trackers_of(bound)
        sources = {"qpos", "qvel", *self._task.sources, *sources_of(bound)}
        self._engine = make_engine(model, num_envs, num_threads=num_threads, sources=sources)
        self._initial_qpos = self._task.initial_qpos(model)
        self._nv = int(model.nv)
        self._generators: list[np.random.Generator] = []
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._raw: dict[str, Array] = {}
        self._state = State()

    def reset(self, seeds: Sequence[int]) -> Array:
        if len(seeds) != self.num_envs:
            raise InvalidArgument(
                field="seeds", value=len(seeds), expected=f"{self.num_envs} seeds, one per environment"
            )
        self._generators = [random_state.generator(seed) for seed in seeds]
        self._restart(np.arange(self.num_envs))
        self._adopt(self._start_trackers(self._copy(), None))
        return self._task.observation(self._raw)

    def state(self) -> State:
        self._require_reset()
        return self._state

    def step(self, actions: Array) -> BatchStep:
        self._require_reset()
        actions, refused = self._check_actions(actions)
        before, state = self._raw, self._state
        failed = self._engine.step(actions, self._frame_skip)
        after = self._copy()
        outcome = self._task.outcome(before, after, actions, time_step=self._time_step, rules=self._rules)
        reward, terminated = outcome.reward, outcome.terminated
        self._elapsed += 1
        truncated = self._elapsed >= self._rules.max_episode_steps
        diverged = self._rows_to_end(after, refused, failed)
        if diverged is not None:
            self.divergences += int(diverged.sum())
            reward, terminated, truncated = (
                np.where(diverged, 0.0, reward),
                terminated & ~diverged,
                truncated | diverged,
            )
            for name, array in after.items():
                # The last good state: a value that is not finite must not reach rewards and statistics.
                array[diverged] = before[name][diverged]
        for name, tracker in self._trackers.items():
            after[name] = tracker.step(before, after)
        info = self._info(before, after, outcome.terms)
        final_observation = self._task.observation(after)
        done = terminated | truncated
        if not done.any():
            self._adopt(after)
            return BatchStep(
                final_observation.copy(), final_observation, reward, terminated, truncated, state, self._state, info
            )
        next_state = State(raw=after, functions=self._functions)
        self._restart(np.flatnonzero(done))
        fresh = self._copy() | {name: after[name].copy() for name in self._trackers}
        self._adopt(self._start_trackers(fresh, done))
        observation = self._task.observation(self._raw)
        return BatchStep(observation, final_observation, reward, terminated, truncated, state, next_state, info)

    def snapshot(self) -> dict[str, Array]:
        self._require_reset()
        return {
            "environment": environment_bytes(self.card.id),
            "simulation": self._engine.state,
            "generators": random_state.pack(self._generators),
            "elapsed_steps": self._elapsed.copy(),
            "divergences": np.array(self.divergences, dtype=np.int64),
            # Derived arrays lag the state by a substep, so they cannot be recomputed from it.
            **{_RAW + name: array.copy() for name, array in self._raw.items()},
        }

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            "simulation": self._engine.state.shape,
            "generators": (self.num_envs, random_state.WIDTH),
            "elapsed_steps": (self.num_envs,),
            "divergences": (),
            **{_RAW + name: shape for name, shape in self._raw_shapes().items()},
        }
        check_snapshot(snapshot, self.card.id, shapes)
        self._engine.load(np.asarray(snapshot["simulation"]))
        self._generators = random_state.unpack(snapshot["generators"])
        self._elapsed = snapshot["elapsed_steps"].astype(np.int64)
        self.divergences = int(snapshot["divergences"])
        self._adopt({name: np.array(snapshot[_RAW + name]) for name in self._raw_shapes()})

    def _adopt(self, raw: dict[str, Array]) -> None:
        self._raw = raw
        self._state = State(raw=raw, functions=self._functions)

    def _copy(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self._engine.live.items()}

    def _start_trackers(self, raw: dict[str, Array], rows: Array | None) -> dict[str, Array]:
        """Return ``raw`` with its tracked arrays at their start in these rows (None: in all)."""
        for name, tracker in self._trackers.items():
            start = tracker.start(raw)
            if rows is None:
                raw[name] = start
            else:
                raw[name][rows] = start[rows]
        return raw

    def _info(self, before: Raw, after: Raw, terms: Mapping[str, Array]) -> Info:
        """Return stock Gymnasium's ``info``; the entries are computed when they are read."""
        task, step, initial = self._task, self._time_step, self._initial_qpos
        return Info(lambda: {**task.facts(before, after, time_step=step, initial_qpos=initial), **terms})

    def _restart(self, rows: Array) -> None:
        qpos, qvel = np.empty((len(rows), len(self._initial_qpos))), np.empty((len(rows), self._nv))
        scale = self._rules.reset_noise_scale or 0.0
        for index, row in enumerate(rows):
            start = self._task.start(self._generators[row], self._initial_qpos, nv=self._nv, scale=scale)
            qpos[index], qvel[index] = start
        self._engine.restart(rows, qpos, qvel)
        self._elapsed[rows] = 0

    def _rows_to_end(self, after: dict[str, Array], refused: Array | None, failed: Array | None) -> Array | None:
        """Return the rows to end, or None. MuJoCo resets a diverged simulation silently, but counts a warning for it."""
        reset = self._engine.reset_rows()
        sound = refused is None and failed is None and reset is None
        if sound and np.isfinite(after["qpos"]).all() and np.isfinite(after["qvel"]).all():
            return None
        rows: Array = ~np.asarray(np.isfinite(after["qpos"]).all(axis=1) & np.isfinite(after["qvel"]).all(axis=1))
        for others in (reset, refused):
            if others is not None:
                rows |= others
        if failed is not None:
            rows[failed] = True
        return rows

    def _check_actions(self, actions: Array) -> tuple[Array, Array | None]:
        """Return actions as a float array, and the rows that were not finite (their actions become 0), if any."""
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs, self.action_size) or actions.dtype.kind not in "fiu":
            expected = f"numbers of shape ({self.num_envs}, {self.action_size})"
            raise InvalidArgument(field="actions", value=f"{actions.dtype} {actions.shape}", expected=expected)
        if np.isfinite(actions).all():
            return actions, None
        refused: Array = ~np.asarray(np.isfinite(actions).all(axis=1))
        return np.where(refused[:, None], actions.dtype.type(0), actions), refused

    def _require_reset(self) -> None:
        if not self._raw:
            raise FailedPrecondition("the batch has no state yet: call reset(seeds) or restore(snapshot) first")

    def _raw_shapes(self) -> dict[str, tuple[int, ...]]:
        live = {name: array.shape for name, array in self._engine.live.items()}
        return live | {name: (self.num_envs, *tracker.shape) for name, tracker in self._trackers.items()}


def rules_of(card: EnvironmentCard, options: EnvOptions) -> Rules:
    """Return the options in force: the given ones, else the card's defaults."""
    values: dict[str, Any] = {**card.options, **options.overrides()}
    return Rules(
        max_episode_steps=int(values["max_episode_steps"]),
        terminate_when_unhealthy=values.get("terminate_when_unhealthy"),
        reset_noise_scale=values.get("reset_noise_scale"),
    )
