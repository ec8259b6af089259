"""`DeviceEnv` on MuJoCo Warp: every environment is a world, stepped by one call from JAX (``warp.jax_callable``).

Observations, rewards, terminations and fields are the definitions of `dressage.envs.tasks`, evaluated with JAX. The order is
that of `dressage.envs.mujoco_batch`. Docs/decisions/0059-environments-on-a-device.md has the reasons and the differences.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import mujoco_warp
import numpy as np
import warp

from dressage.envs.batch import check_count
from dressage.envs.device import Carry, DeviceArray, DeviceStep
from dressage.envs.fields import sources_of, trackers_of
from dressage.envs.layout import layout_of
from dressage.envs.mujoco_batch import rules_of
from dressage.envs.options import EnvOptions
from dressage.envs.protocol import check_snapshot, environment_bytes
from dressage.envs.state import Raw, State
from dressage.envs.tasks import is_simulated
from dressage.envs.tasks import task as task_of
from dressage.envs.tasks.base import Draws
from dressage.errors import FailedPrecondition, InvalidArgument

warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)  # it prints each kernel that it loads

_RAW = "raw/"
_INPUTS = ("qpos", "qvel", "act", "time", "qacc_warmstart", "ctrl")
_CONTACT = "cfrc_ext"
_LEAST_SPACE, _ROWS_OF_GEOM = 64, 8  # a contact with friction has four rows in a pyramidal cone
_MOST = 1e10
"""Size of a position or velocity from which MuJoCo counts a simulation as diverged (mjMAXVAL)."""


_CANDIDATES = 32
"""Candidates of `KeyDraws.first_accepted`. The tasks accept at least 0.6 of them, so none fits once in 10^13 starts."""


class KeyDraws:
    """The part of numpy's generator that starts of episodes use, on a key of JAX.

    It serves one environment; map it over keys for several.

    :param key: of JAX.
    """

    def __init__(self, key: Any) -> None:
        self._key = key

    def uniform(self, low: float, high: float, size: int) -> DeviceArray:
        """Return numbers (size,) from low to high."""
        numbers: DeviceArray = jax.random.uniform(self._next(), (size,), minval=low, maxval=high)
        return numbers

    def standard_normal(self, size: int) -> DeviceArray:
        """Return numbers (size,) of mean 0 and deviation 1."""
        numbers: DeviceArray = jax.random.normal(self._next(), (size,))
        return numbers

    def first_accepted(self, draw: Callable[[Draws], DeviceArray], accept: Callable[[DeviceArray], Any]) -> DeviceArray:
        """Return the first of 32 candidates that is accepted, or the first of all where none is."""
        values = jax.vmap(lambda key: draw(KeyDraws(key)))(jax.random.split(self._next(), _CANDIDATES))
        chosen: DeviceArray = values[jnp.argmax(jax.vmap(accept)(values))]
        return chosen

    def _next(self) -> Any:
        self._key, key = jax.random.split(self._key)
        return key


class WarpEnv:
    """MuJoCo Warp's worlds as a `DeviceEnv`.

    :param constraints: scalar constraints that a world has space for; None: two contacts of each geom and all joint limits.
        A world that needs more overflows.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        options: EnvOptions,
        fields: Collection[str] | None = None,
        constraints: int | None = None,
    ) -> None:
        self.card = options.check(env_id)
        if not is_simulated(env_id):
            expected = "an environment of MuJoCo or mjcf:NAME"
            raise InvalidArgument(field="environment", problem="it has no model", value=env_id, expected=expected)
        check_count("num_envs", num_envs)
        for name in fields or ():
            self.card.field(name)
        self.num_envs = num_envs
        self.observation_size, self.action_size = self.card.observation_size, self.card.action_size
        self.action_kind, self.num_actions = self.card.action_kind, self.card.num_actions
        self.action_low = np.array([part.low for part in self.card.action], np.float32)
        self.action_high = np.array([part.high for part in self.card.action], np.float32)
        self._task, self._rules = task_of(env_id), rules_of(self.card, options)
        model = self._task.load()
        frame_skip = round(self.card.time_step / model.opt.timestep)
        self._time_step = float(model.opt.timestep) * frame_skip
        bound = [entry for entry in self._task.fields(layout_of(model)) if fields is None or entry.field.name in fields]
        self._functions = {entry.field.name: entry.function for entry in bound}
        self._trackers = trackers_of(bound)
        sources = {"qpos", "qvel", "time", *self._task.sources, *sources_of(bound)} - {"act"}
        self._initial_qpos, self._nv = self._task.initial_qpos(model), int(model.nv)
        self._physics = Physics(
            model, num_envs, frame_skip=frame_skip, sources=sorted(sources), constraints=constraints
        )
        self.provenance: Mapping[str, str] = self._physics.provenance

    def init(self, key: Any) -> Carry:
        keys, starts = _split(jnp.reshape(key, -1))
        if self.num_envs % len(keys):
            expected = f"a divisor of {self.num_envs} environments"
            raise InvalidArgument(field="key", value=f"{len(keys)} keys", expected=expected)
        raw, hidden = self._first_states(starts)
        for name, tracker in self._trackers.items():
            raw[name] = tracker.start(raw)
        elapsed = jnp.zeros(self.num_envs, jnp.int32)
        return {"key": jax.random.key_data(keys), "elapsed_steps": elapsed, **hidden, **_carry_of(raw)}

    def step(self, carry: Carry, action: DeviceArray) -> tuple[Carry, DeviceStep]:
        before = _raw_of(carry)
        finite = jnp.isfinite(action).all(axis=1)
        action = jnp.where(finite[:, None], action, 0)
        after, hidden, overflow = self._physics.step({**carry, **before}, action)
        diverged = ~(finite & _finite_rows(after["qpos"]) & _finite_rows(after["qvel"]))
        bad = diverged | overflow
        after = {name: _select_rows(bad, before[name], array) for name, array in after.items()}
        outcome = self._task.outcome(before, after, action, time_step=self._time_step, rules=self._rules)
        elapsed = carry["elapsed_steps"] + 1
        terminated, truncated = outcome.terminated & ~bad, (elapsed >= self._rules.max_episode_steps) | bad
        for name, tracker in self._trackers.items():
            after[name] = tracker.step(before, after)
        done = terminated | truncated
        keys, starts = _split(jax.random.wrap_key_data(carry["key"]))
        raw, hidden = self._restart_rows(done, starts, after, hidden)
        following = {
            "key": jax.random.key_data(keys),
            "elapsed_steps": jnp.where(done, 0, elapsed),
            **hidden,
            **_carry_of(raw),
        }
        return following, DeviceStep(
            observation=self._task.observation(raw),
            final_observation=self._task.observation(after),
            reward=jnp.where(bad, 0.0, outcome.reward),
            terminated=terminated,
            truncated=truncated,
            diverged=diverged,
            overflow=overflow,
            before=before,
            after=after,
        )

    def observation(self, carry: Carry) -> DeviceArray:
        return self._task.observation(_raw_of(carry))

    def state(self, raw: Raw) -> State:
        return State(raw=raw, functions=self._functions)

    def snapshot(self, carry: Carry) -> dict[str, DeviceArray]:
        return {"environment": environment_bytes(self.card.id), **jax.device_get(carry)}

    def restore(self, snapshot: Mapping[str, DeviceArray]) -> Carry:
        groups = max(1, len(np.atleast_2d(snapshot.get("key", ()))))
        arrays: dict[str, Any] = jax.eval_shape(self.init, jax.random.split(jax.random.key(0), groups))
        check_snapshot(snapshot, self.card.id, {name: entry.shape for name, entry in arrays.items()})
        return {name: jnp.asarray(snapshot[name], entry.dtype) for name, entry in arrays.items()}

    def _first_states(self, keys: Any) -> tuple[dict[str, DeviceArray], Carry]:
        """Return the arrays of N first states from the groups' keys (G,), and what the simulator carries along."""
        scale = self._rules.reset_noise_scale or 0.0
        initial: DeviceArray = jnp.asarray(self._initial_qpos, jnp.float32)

        def start(key: Any) -> tuple[DeviceArray, DeviceArray]:
            return self._task.start(KeyDraws(key), initial, nv=self._nv, scale=scale)

        each = jax.vmap(lambda key: jax.random.split(key, self.num_envs // len(keys)))(keys)
        qpos, qvel = jax.vmap(start)(each.reshape(-1))
        return self._physics.forward(qpos, qvel)

    def _restart_rows(
        self, done: DeviceArray, keys: Any, after: dict[str, DeviceArray], hidden: Carry
    ) -> tuple[dict[str, DeviceArray], Carry]:
        """Return the arrays with a new episode where one has ended. Nothing is computed where none has."""

        def restart(_: None) -> tuple[dict[str, DeviceArray], Carry]:
            fresh, inner = self._first_states(keys)
            for name, tracker in self._trackers.items():
                fresh[name] = tracker.start(fresh)
            raw = {name: _select_rows(done, fresh[name], array) for name, array in after.items()}
            return raw, {name: _select_rows(done, inner[name], array) for name, array in hidden.items()}

        result: tuple[dict[str, DeviceArray], Carry] = jax.lax.cond(
            done.any(), restart, lambda _: (after, hidden), None
        )
        return result


class Physics:
    """N worlds of one model. Its arrays are scratch space: all state comes in and goes out with each call.

    :param model: ``mujoco.MjModel``; its solver is replaced if MuJoCo Warp lacks it.
    :param frame_skip: physics steps of a step.
    :param sources: names of the simulator arrays that a step returns.
    :param constraints: see `WarpEnv`.
    :raises FailedPrecondition: when MuJoCo Warp does not support the model.
    """

    def __init__(
        self, model: Any, worlds: int, *, frame_skip: int, sources: Sequence[str], constraints: int | None = None
    ) -> None:
        self._worlds, self._sources = worlds, tuple(sources)
        self.provenance = {"simulator": f"MuJoCo Warp {version('mujoco-warp')}", "precision": "float32"}
        if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
            self.provenance["solver"] = "Newton instead of PGS, which MuJoCo Warp does not have"
        start = mujoco.MjData(model)
        mujoco.mj_forward(model, start)
        try:
            # Where JAX computes: Warp would choose a GPU that it finds, also where JAX has none.
            with warp.ScopedDevice(warp.device_from_jax(jax.devices()[0])):
                self._model = mujoco_warp.put_model(model)
                self._data = mujoco_warp.put_data(model, start, nworld=worlds, njmax=constraints or _space(model))
        except NotImplementedError as error:
            message = f"MuJoCo Warp does not support this model: {error}. Train it on a pool of CPU cores."
            raise FailedPrecondition(message, reason="MODEL_NOT_ON_DEVICE") from error
        self._hidden = tuple(name for name in ("act", "qacc_warmstart") if getattr(self._data, name).size)
        inputs = [name for name in _INPUTS if name != "act" or name in self._hidden]
        outputs = [*self._sources, *self._hidden]
        self._inputs, self._outputs = inputs, outputs

        def step() -> None:
            for _ in range(frame_skip):
                mujoco_warp.step(self._model, self._data)
            if _CONTACT in outputs:
                mujoco_warp.rne_postconstraint(self._model, self._data)

        self._step = self._callable(step, inputs, [*outputs, "overflow"])
        self._forward = self._callable(lambda: mujoco_warp.forward(self._model, self._data), inputs, outputs)

    def step(
        self, state: Mapping[str, DeviceArray], action: DeviceArray
    ) -> tuple[dict[str, DeviceArray], Carry, DeviceArray]:
        """Return the arrays after a step of the environment, what the simulator carries along, and the overflow (N,)."""
        inputs = {**state, "ctrl": action.astype(jnp.float32)}
        *arrays, overflow = self._step(*(inputs[name] for name in self._inputs))
        raw, hidden = self._split(arrays)
        return raw, hidden, overflow != 0

    def forward(self, qpos: DeviceArray, qvel: DeviceArray) -> tuple[dict[str, DeviceArray], Carry]:
        """Return the arrays of a new episode after the forward dynamics. As in stock Gymnasium, contact forces are 0 then."""
        zeros = {name: jnp.zeros(getattr(self._data, name).shape, jnp.float32) for name in self._inputs}
        inputs = {**zeros, "qpos": qpos, "qvel": qvel}
        raw, hidden = self._split(self._forward(*(inputs[name] for name in self._inputs)))
        if _CONTACT in raw:
            raw[_CONTACT] = jnp.zeros_like(raw[_CONTACT])
        return raw, hidden

    def _split(self, arrays: Sequence[DeviceArray]) -> tuple[dict[str, DeviceArray], Carry]:
        named = dict(zip(self._outputs, arrays, strict=True))
        raw = {name: named[name] for name in self._sources}
        # A matrix has nine numbers in MuJoCo's arrays.
        raw = {name: array.reshape(*array.shape[:2], 9) if array.ndim == 4 else array for name, array in raw.items()}
        return raw, {name: named[name] for name in self._hidden}

    def _callable(self, work: Callable[[], None], inputs: Sequence[str], outputs: Sequence[str]) -> Callable[..., Any]:
        """Return a function of JAX that sets the inputs, works, and returns the outputs."""
        data = self._data

        def run(*arrays: Any) -> None:
            for name, array in zip(inputs, arrays, strict=False):
                warp.copy(getattr(data, name), array)
            work()
            for name, array in zip(outputs, arrays[len(inputs) :], strict=True):
                warp.copy(array, getattr(data, name))

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [*(f"given_{name}" for name in inputs), *outputs]
        types = [_annotation(getattr(data, name)) for name in (*inputs, *outputs)]
        parameters = [inspect.Parameter(name, kind, annotation=of) for name, of in zip(names, types, strict=True)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = dict(zip(names, types, strict=True))
        dims = {name: getattr(data, name).shape for name in outputs}
        wrapped: Callable[..., Any] = warp.jax_callable(run, num_outputs=len(outputs), output_dims=dims)
        return wrapped


def _space(model: Any) -> int:
    """Return a number of scalar constraints for a world.

    MuJoCo Warp's own default follows from the reference pose, where a robot touches little; a humanoid on its back exceeds it.
    """
    touching = int(((model.geom_contype | model.geom_conaffinity) != 0).sum())
    return max(_LEAST_SPACE, int(model.jnt_limited.sum()) + _ROWS_OF_GEOM * touching)


def _annotation(array: Any) -> Any:
    return warp.array(dtype=array.dtype, ndim=array.ndim)


def _finite_rows(values: DeviceArray) -> DeviceArray:
    """Return whether all numbers of each row are finite and below MuJoCo's bound."""
    rows: DeviceArray = (abs(values) < _MOST).all(axis=1)
    return rows


def _select_rows(rows: DeviceArray, one: DeviceArray, other: DeviceArray) -> DeviceArray:
    """Return ``one`` where the row's flag (N,) is set, else ``other``."""
    chosen: DeviceArray = jnp.where(rows.reshape(-1, *[1] * (other.ndim - 1)), one, other)
    return chosen


def _split(keys: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Return two keys (G,) and (G,) of each."""
    both = jax.vmap(jax.random.split)(keys)
    return both[:, 0], both[:, 1]


def _carry_of(raw: Mapping[str, DeviceArray]) -> Carry:
    return {_RAW + name: array for name, array in raw.items()}


def _raw_of(carry: Carry) -> dict[str, DeviceArray]:
    return {name.removeprefix(_RAW): array for name, array in carry.items() if name.startswith(_RAW)}
