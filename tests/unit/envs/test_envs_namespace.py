"""Fields, outcomes and trackers have one definition for numpy and JAX: compiled by JAX, they give numpy's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import mujoco
import numpy as np
import pytest
from dressage.envs import SEARCH_ENVIRONMENT_IDS, custom, load_card, make_batch
from dressage.envs.adding import add_model
from dressage.envs.catalogue import cart_pole
from dressage.envs.fields import BoundField, sources_of, trackers_of
from dressage.envs.layout import layout_of
from dressage.envs.plain import plain
from dressage.envs.state import Raw
from dressage.envs.stock import make_by_id
from dressage.envs.tasks import SIMULATED_IDS, task
from dressage.envs.tasks.base import Rules

ROWS, STEPS = 5, 2
Arrays = dict[str, np.ndarray]


def _states(model: Any, sources: set[str], initial: np.ndarray, rng: np.random.Generator) -> tuple[list[Arrays], Any]:
    """Simulator arrays of ROWS random states at STEPS + 1 instants, and the actions between them."""
    rows = [mujoco.MjData(model) for _ in range(ROWS)]
    actions = rng.uniform(-1, 1, (STEPS, ROWS, model.nu))
    for row, data in enumerate(rows):
        data.qpos[:] = initial + rng.uniform(-0.3, 0.3, model.nq) * row
        data.qvel[:] = rng.normal(size=model.nv) * 3 * row
        mujoco.mj_forward(model, data)
    instants = []
    for step in range(STEPS + 1):
        for row, data in enumerate(rows):
            if step:
                data.ctrl[:] = actions[step - 1, row]
                mujoco.mj_step(model, data, 5)
            mujoco.mj_rnePostConstraint(model, data)
        instants.append({name: np.stack([np.array(getattr(data, name)) for data in rows]) for name in sources})
    return instants, actions


def _follow(bound: Sequence[BoundField], instants: Sequence[Raw]) -> list[dict[str, Any]]:
    """The arrays at each instant with those of the trackers."""
    trackers = trackers_of(bound)
    first = dict(instants[0])
    followed = [first | {name: tracker.start(first) for name, tracker in trackers.items()}]
    for instant in instants[1:]:
        after = dict(instant)
        followed.append(after | {name: tracker.step(followed[-1], after) for name, tracker in trackers.items()})
    return followed


def _fields(bound: Sequence[BoundField], instants: Sequence[Raw]) -> dict[str, Any]:
    last = _follow(bound, instants)[-1]
    return {entry.field.name: entry.function(last) for entry in bound}


def _simulated(env_id: str) -> Callable[[Sequence[Raw], Any], dict[str, Any]]:
    definition = task(env_id)
    model = definition.load()
    bound, initial = definition.fields(layout_of(model)), definition.initial_qpos(model)
    time_step = load_card(env_id).time_step

    def everything(instants: Sequence[Raw], actions: Any) -> dict[str, Any]:
        numbers = {f"field {name}": value for name, value in _fields(bound, instants).items()}
        before, after = instants[-2:]
        rules = Rules(1000, True, 0.1)
        outcome = definition.outcome(before, after, actions[-1], time_step=time_step, rules=rules)
        facts = definition.facts(before, after, time_step=time_step, initial_qpos=initial)
        return {"reward": outcome.reward, "terminated": outcome.terminated, **outcome.terms, **facts} | numbers

    return everything


def _compare(expected: Mapping[str, Any], compiled: Mapping[str, Any]) -> None:
    assert expected.keys() == compiled.keys()
    for name, value in expected.items():
        assert np.shape(value) == np.shape(compiled[name]), name
        scale = float(np.abs(np.asarray(value, np.float64)).max(initial=0.0))
        np.testing.assert_allclose(compiled[name], value, rtol=1e-6, atol=1e-6 * min(scale, 1.0), err_msg=name)


def _frozen(instants: Sequence[Arrays]) -> None:
    for instant in instants:
        for array in instant.values():
            array.flags.writeable = False


@pytest.fixture
def quadruped(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's own model with a free root."""
    monkeypatch.setenv(custom.VARIABLE, str(tmp_path))
    path = tmp_path / "own.xml"
    path.write_text(OWN_MODEL)
    return add_model(path).id


OWN_MODEL = """
<mujoco model="own">
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="trunk" pos="0 0 .5">
      <freejoint/>
      <geom type="capsule" size=".05 .2"/>
      <body name="arm" pos="0 0 .2">
        <joint name="shoulder" axis="0 1 0"/>
        <geom type="capsule" size=".03 .1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" ctrlrange="-1 1" ctrllimited="true"/></actuator>
</mujoco>
"""


@pytest.mark.parametrize("env_id", SIMULATED_IDS)
def test_compiled_fields_and_outcomes_equal_those_of_numpy(env_id: str) -> None:
    _check_simulated(env_id)


def test_compiled_fields_of_a_users_model_equal_those_of_numpy(quadruped: str) -> None:
    _check_simulated(quadruped)


def _check_simulated(env_id: str) -> None:
    definition, rng = task(env_id), np.random.default_rng(7)
    model = definition.load()
    bound = definition.fields(layout_of(model))
    assert [entry.field.name for entry in bound] == list(load_card(env_id).field_names)
    sources = {"qpos", "qvel", *definition.sources, *sources_of(bound)}
    instants, actions = _states(model, sources, definition.initial_qpos(model), rng)
    _frozen(instants)
    everything = _simulated(env_id)
    with jax.enable_x64(True):
        _compare(everything(instants, actions), jax.device_get(jax.jit(everything)(instants, actions)))
    # No constant turns single precision into double precision; plain numbers (weak types) do not.
    single = jax.tree.map(lambda array: np.asarray(array, np.float32), (instants, actions))
    with jax.enable_x64(True):
        shapes = jax.eval_shape(everything, *single)
    assert not [name for name, value in shapes.items() if value.dtype == np.float64 and not value.weak_type]


def test_compiled_fields_of_cart_pole_equal_those_of_numpy() -> None:
    rng = np.random.default_rng(7)
    instant = {"state": rng.uniform(-1, 1, (ROWS, 4)), "time": rng.uniform(0, 1, ROWS)}
    _frozen([instant])
    bound = cart_pole.bound_fields()
    assert [entry.field.name for entry in bound] == list(load_card("CartPole-v1").field_names)
    with jax.enable_x64(True):
        _compare(_fields(bound, [instant]), jax.jit(lambda raw: _fields(bound, [raw]))(instant))


@pytest.mark.parametrize("env_id", SEARCH_ENVIRONMENT_IDS)
def test_compiled_fields_of_observations_equal_those_of_numpy(env_id: str) -> None:
    from dressage.envs.vector import Adapter

    env = make_by_id(env_id)
    adapter = Adapter(env, env_id)
    env.action_space.seed(7)
    observed = [adapter.flat(env.reset(seed=7)[0])]
    for _ in range(ROWS):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        observed.append(adapter.flat(observation))
        if terminated or truncated:
            break
    instant = {"observed": np.array(observed, np.float64), "steps": np.arange(float(len(observed)))}
    _frozen([instant])
    bound = plain(env_id).bound
    with jax.enable_x64(True):
        _compare(_fields(bound, [instant]), jax.jit(lambda raw: _fields(bound, [raw]))(instant))


def test_a_state_of_abstract_arrays_computes_its_fields() -> None:
    from dressage.envs import State

    bound = {entry.field.name: entry.function for entry in cart_pole.bound_fields()}

    @jax.jit
    def height(values: Any) -> Any:
        return State(raw={"state": values}, functions=bound).tip_height

    values = np.array([[0.0, 0.0, 0.5, 0.0]])
    np.testing.assert_allclose(height(values), np.cos([0.5]), rtol=1e-6)
    batch = make_batch("CartPole-v1", 1, num_threads=1)
    batch.reset([0])
    assert not batch.state().tip_height.flags.writeable
