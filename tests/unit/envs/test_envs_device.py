"""Environments on a device, on MuJoCo Warp's CPU device: the same physics as MuJoCo, as a pure function of JAX.

One step of every model is compared in test_envs_device_parity.py. The first use of a kernel compiles it, which takes minutes.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from dressage.envs import EnvOptions
from dressage.envs.on_device import make_device_env
from dressage.envs.tasks import SIMULATED_IDS, task
from dressage.envs.warp_env import KeyDraws
from dressage.errors import InvalidArgument, Unavailable

ENV, WORLDS = "Hopper-v5", 3
needs_warp = pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="the extra `warp` is not installed")
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def env() -> Any:
    return make_device_env(ENV, WORLDS, options=EnvOptions(max_episode_steps=4))


@pytest.fixture(scope="module")
def step(env: Any) -> Any:
    return jax.jit(env.step)


@pytest.fixture(scope="module")
def start(env: Any) -> Any:
    return jax.jit(env.init)(jax.random.key(3))


def actions(count: int, seed: int = 0) -> jax.Array:
    return jax.random.uniform(jax.random.key(seed), (count, WORLDS, 3), minval=-1.0, maxval=1.0)


def equal(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), one, other)


@needs_warp
def test_a_compiled_loop_equals_single_steps(env: Any, step: Any, start: Any) -> None:
    given = actions(6)
    last, outcomes = jax.jit(lambda carry: jax.lax.scan(env.step, carry, given))(start)
    carry = start
    for index, action in enumerate(given):
        carry, outcome = step(carry, action)
        equal(outcome, jax.tree.map(lambda array, index=index: array[index], outcomes))
    equal(carry, last)


@needs_warp
def test_steps_equal_those_of_the_simulator_itself(step: Any, start: Any) -> None:
    import mujoco_warp
    import warp

    model = task(ENV).load()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    worlds, parts = mujoco_warp.put_model(model), mujoco_warp.put_data(model, data, nworld=WORLDS)
    for name in ("qpos", "qvel"):
        getattr(parts, name).assign(np.asarray(start[f"raw/{name}"]))
    parts.qacc_warmstart.assign(np.asarray(start["qacc_warmstart"]))
    carry = start
    for action in actions(3):
        warp.copy(parts.ctrl, warp.array(np.asarray(action)))
        for _ in range(4):
            mujoco_warp.step(worlds, parts)
        carry, outcome = step(carry, action)
        np.testing.assert_array_equal(parts.qpos.numpy(), outcome.after["qpos"])
        np.testing.assert_array_equal(parts.geom_xpos.numpy(), outcome.after["geom_xpos"])


@needs_warp
def test_an_episode_at_its_limit_is_truncated_and_restarts(env: Any, step: Any, start: Any) -> None:
    carry, seen = start, [env.observation(start)]
    for index, action in enumerate(actions(4)):
        carry, outcome = step(carry, 0.1 * action)
        assert outcome.truncated.tolist() == [index == 3] * WORLDS and not outcome.terminated.any()
        seen.append(outcome.observation)
    np.testing.assert_array_equal(outcome.final_observation, task(ENV).observation(outcome.after))
    assert not np.array_equal(outcome.final_observation, outcome.observation)
    assert (carry["elapsed_steps"] == 0).all()
    _is_start(carry, range(WORLDS))
    # The new episodes differ from each other and from the first.
    rows = {tuple(row.tolist()) for row in np.asarray(jnp.concatenate([seen[0], seen[-1]]))}
    assert len(rows) == 2 * WORLDS


def _is_start(carry: Any, rows: Any) -> None:
    """These rows are at the start of an episode, with arrays that belong to its positions."""
    model, scale = task(ENV).load(), 5e-3
    data = mujoco.MjData(model)
    for row in rows:
        qpos, qvel = (np.asarray(carry[f"raw/{name}"])[row] for name in ("qpos", "qvel"))
        assert (np.abs(qpos - model.qpos0) <= scale).all() and (np.abs(qvel) <= scale).all()
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(model, data)
        for name in ("xpos", "geom_xpos", "cvel"):
            np.testing.assert_allclose(carry[f"raw/{name}"][row], getattr(data, name), atol=1e-5, err_msg=name)
        assert carry["raw/time"][row] == 0 and not carry["raw/cfrc_ext"][row].any()


@needs_warp
def test_a_fall_ends_one_episode_and_leaves_the_others(step: Any, start: Any) -> None:
    low = start | {"raw/qpos": start["raw/qpos"].at[1, 1].set(0.5)}
    action = jnp.zeros((WORLDS, 3))
    fallen, outcome = step(low, action)
    usual, expected = step(start, action)
    assert outcome.terminated.tolist() == [False, True, False] and not outcome.truncated.any()
    _is_start(fallen, [1])
    others = np.array([0, 2])
    equal(
        {k: v[others] for k, v in fallen.items() if k != "key"}, {k: v[others] for k, v in usual.items() if k != "key"}
    )
    np.testing.assert_array_equal(outcome.observation[others], expected.observation[others])
    assert outcome.final_observation[1, 0] < 0.7 < outcome.observation[1, 0]


@needs_warp
@pytest.mark.parametrize("fault", ["velocity", "action"])
def test_a_divergence_ends_its_episode_and_touches_no_other(step: Any, start: Any, fault: str) -> None:
    action, broken = actions(1)[0], start
    bad = action
    if fault == "velocity":
        broken = start | {"raw/qvel": start["raw/qvel"].at[1].set(1e20)}
    else:
        bad = action.at[1, 0].set(jnp.nan)
    carry, outcome = step(broken, bad)
    assert outcome.diverged.tolist() == [False, True, False] == outcome.truncated.tolist()
    assert not outcome.terminated.any() and not outcome.overflow.any() and outcome.reward[1] == 0.0
    assert all(np.isfinite(array).all() for array in jax.tree.leaves(outcome) if array.dtype == jnp.float32)
    np.testing.assert_array_equal(outcome.after["qpos"][1], broken["raw/qpos"][1])
    _is_start(carry, [1])
    _, expected = step(start, action)
    others = np.array([0, 2])
    np.testing.assert_array_equal(outcome.observation[others], expected.observation[others])
    # The restarted world continues as a sound one.
    _, following = step(carry, action)
    assert not following.diverged.any() and np.isfinite(following.observation).all()


@needs_warp
def test_a_world_without_space_for_its_contacts_is_a_fault() -> None:
    from dressage.envs.warp_env import WarpEnv

    env = WarpEnv(ENV, WORLDS, options=EnvOptions(), constraints=1)
    start = jax.jit(env.init)(jax.random.key(0))
    # All links of one hopper are on the ground; the others hang in the air.
    qpos = start["raw/qpos"].at[:, 1].set(jnp.array([5.0, 0.06, 5.0])).at[1, 2].set(jnp.pi / 2)
    _, outcome = jax.jit(env.step)(start | {"raw/qpos": qpos}, jnp.zeros((WORLDS, 3)))
    assert outcome.overflow.tolist() == [False, True, False] == outcome.truncated.tolist()
    assert outcome.reward[1] == 0.0 and not outcome.diverged.any()


@needs_warp
def test_a_snapshot_continues_bit_by_bit(env: Any, step: Any, start: Any) -> None:
    given = actions(5, seed=2)
    carry, _ = step(start, given[0])
    snapshot = env.snapshot(carry)
    assert all(type(array) is np.ndarray for array in snapshot.values())
    restored = make_device_env(ENV, WORLDS, options=EnvOptions(max_episode_steps=4)).restore(snapshot)
    for action in given[1:]:
        carry, expected = step(carry, action)
        restored, outcome = step(restored, action)
        equal(outcome, expected)
    with pytest.raises(InvalidArgument, match="snapshot"):
        env.restore(snapshot | {"environment": np.frombuffer(b"Walker2d-v5", np.uint8)})
    with pytest.raises(InvalidArgument, match="elapsed_steps"):
        env.restore({name: array for name, array in snapshot.items() if name != "elapsed_steps"})


@needs_warp
def test_fields_of_a_step_are_those_of_the_card(env: Any, step: Any, start: Any) -> None:
    _, outcome = step(start, actions(1)[0])
    fields = env.state(outcome.after).fields
    assert list(fields) == list(env.card.field_names)
    for field in env.card.fields:
        assert fields[field.name].shape == (WORLDS, *field.shape), field.name
    np.testing.assert_allclose(fields["x_velocity"], outcome.after["qvel"][:, 0])


@needs_warp
def test_environments_without_a_model_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="CartPole-v1"):
        make_device_env("CartPole-v1", 2)
    with pytest.raises(InvalidArgument, match="num_envs"):
        make_device_env(ENV, 0)


def test_the_simulator_of_devices_is_imported_only_when_it_is_used() -> None:
    code = (
        "import sys, dressage.envs.device, dressage.envs.mujoco_batch; print([n for n in sys.modules if 'warp' in n])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_missing_simulator_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    monkeypatch.delitem(sys.modules, "dressage.envs.warp_env", raising=False)
    with pytest.raises(Unavailable, match="warp"):
        make_device_env(ENV, 1)


@pytest.mark.parametrize("env_id", SIMULATED_IDS)
def test_starts_on_a_device_are_distributed_as_those_of_numpy(env_id: str) -> None:
    definition, count = task(env_id), 2000
    model = definition.load()
    initial, nv, scale = definition.initial_qpos(model), int(model.nv), 0.01
    stream = np.random.default_rng(0)
    here = [
        np.stack(a)
        for a in zip(*(definition.start(stream, initial, nv=nv, scale=scale) for _ in range(count)), strict=True)
    ]
    there = jax.jit(jax.vmap(lambda key: definition.start(KeyDraws(key), jnp.asarray(initial), nv=nv, scale=scale)))(
        jax.random.split(jax.random.key(0), count)
    )
    for one, other in zip(here, there, strict=True):
        spread = one.std(axis=0)
        np.testing.assert_allclose(other.mean(axis=0), one.mean(axis=0), atol=1e-6 + 0.15 * spread.max())
        np.testing.assert_allclose(other.std(axis=0), spread, rtol=0.1, atol=1e-6)
    if env_id in ("Reacher-v5", "Pusher-v5"):
        for qpos in (here[0], np.asarray(there[0])):
            place = qpos[:, -2:] if env_id == "Reacher-v5" else qpos[:, -4:-2]
            distance = np.linalg.norm(place, axis=1)
            assert (distance < 0.2).all() if env_id == "Reacher-v5" else (distance > 0.17).all()
