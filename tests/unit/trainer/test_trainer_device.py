"""Collection on a device: on an environment of plain JAX, its updates equal those of the stacked PPO, faults included."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from device_twin import JaxEnv, JaxReward
from dressage.training.hyperparameters import Hyperparameters
from dressage_trainer.ppo import snapshot
from dressage_trainer.ppo.device_collection import DeviceCollector, DeviceRows, RewardMemory
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.ppo.ppo import PPO
from fake_environment import A, FakeBatch, FakeReward

N, T = 3, 20  # episodes end within a rollout, by their limit of 13 steps or by a fall
BASE = dict(num_envs=N, num_steps=T, minibatch_size=25, epochs=2, hidden_sizes=(8,), initial_log_std=0.3)
OTHER = [{}, {"discount": 0.9, "learning_rate": 1e-2, "clip_range": 0.1}, {"entropy_coef": 0.01, "epochs": 3}]


def members(count, **values):
    return [MemberSpec(f"m{i}", Hyperparameters(**{**BASE, **OTHER[i], **values}), 7 + i) for i in range(count)]


def host_noise(generators, shape):
    """The numbers that the stacked PPO draws, in the order of the scan."""
    return np.stack([g.standard_normal((*shape, A), dtype=np.float64) for g in generators]).swapaxes(0, 1)


def on_cpu(specs, *, spoil=None, corrupt=None):
    batch = FakeBatch(len(specs), N)
    batch.corrupt = corrupt
    return PPO(specs, environment=batch, reward=FakeReward(spoil), dtype=np.float64)


def on_device(specs, *, spoil=None, corrupt=None, noise=host_noise, dtype=np.float64):
    def collector(*arguments, **options):
        return DeviceCollector(*arguments, noise=noise, **options)

    with jax.enable_x64(dtype == np.float64):
        rows = DeviceRows(JaxEnv(len(specs), N, dtype=dtype, spoil=corrupt), len(specs))
        reward = RewardMemory(JaxReward(len(specs) * N, spoil), dtype)
        return PPO(specs, environment=rows, reward=reward, collector=collector, dtype=dtype)


def iterate(ppo, times, dtype=np.float64):
    with jax.enable_x64(dtype == np.float64):
        return [ppo.iterate() for _ in range(times)]


def close(one, other, tolerance=1e-9):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=tolerance, atol=tolerance, err_msg=name)


def same_log(one, other):
    for first, second in zip(one, other, strict=True):
        for a, b in zip(first, second, strict=True):
            figures = [name for name in a if not name.endswith("per_second")]
            close({n: np.nan if a[n] is None else a[n] for n in figures},
                  {n: np.nan if b[n] is None else b[n] for n in figures}, 1e-7)  # fmt: skip


@pytest.mark.parametrize("normalised", [True, False])
def test_updates_on_a_device_equal_those_of_the_stacked_ppo(normalised):
    specs = members(3, normalize_observation=normalised, normalize_reward=normalised)
    cpu, device = on_cpu(specs), on_device(specs)
    same_log(iterate(cpu, 4), iterate(device, 4))
    close(cpu.weights, device.weights)
    for index in range(3):
        close(snapshot.policy_arrays(cpu, index), snapshot.policy_arrays(device, index))
        close(snapshot.return_statistics(cpu, index), snapshot.return_statistics(device, index))
    close(cpu.collector.returns.arrays(), device.collector.returns.arrays())
    assert cpu.env.episodes.arrays()["count"].min() > 15  # episodes have ended, by their limit too


def same_stops(cpu, device):
    iterate(cpu, 3), iterate(device, 3)
    assert cpu.env.faults.stops == device.env.faults.stops
    assert list(cpu.env.faults.stops) == [1]
    close({n: np.delete(v, 1, 0) for n, v in cpu.weights.items()},
          {n: np.delete(v, 1, 0) for n, v in device.weights.items()})  # fmt: skip
    close(snapshot.policy_arrays(cpu, 0), snapshot.policy_arrays(device, 0))
    return cpu.env.faults.stops[1]


def test_a_reward_that_is_not_finite_stops_its_member_alone():
    def numpy_spoil(calls, terms):
        if calls == 5:
            terms["effort"][N] = np.nan

    def spoil(steps, terms):
        # The fifth step of all, as no episode has ended yet; later ones have no effect on a stopped member.
        return terms.at[1, N].set(jnp.where(steps[N] == 5, jnp.nan, terms[1, N]))

    specs = members(3)
    stop = same_stops(on_cpu(specs, spoil=numpy_spoil), on_device(specs, spoil=spoil))
    assert stop.term == "effort" and stop.step == 5 * N


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("value", [np.inf, 1e200])
def test_observations_that_cannot_be_used_stop_their_member(value):
    """Infinity itself, and a finite number whose square overflows the statistics."""

    def numpy_corrupt(count, observation):
        if count == 30:
            observation[N + 1, 2] = value

    def corrupt(count, observation):
        return observation.at[N + 1, 2].set(jnp.where(count == 30, value, observation[N + 1, 2]))

    specs = members(3)
    stop = same_stops(on_cpu(specs, corrupt=numpy_corrupt), on_device(specs, corrupt=corrupt))
    assert stop.cause == "observation" and stop.step == 30 * N


def test_a_snapshot_continues_to_the_same_bits():
    specs = members(2)
    whole, half = (on_device(specs, noise=None, dtype=np.float32) for _ in range(2))
    iterate(whole, 4, np.float32), iterate(half, 2, np.float32)
    taken = {name: np.array(value) for name, value in snapshot.take(half).items()}
    iterate(half, 1, np.float32)  # what was taken is no view of what goes on
    resumed = on_device(specs, noise=None, dtype=np.float32)
    snapshot.restore(resumed, taken)
    iterate(resumed, 2, np.float32)
    one, other = snapshot.take(whole), snapshot.take(resumed)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_a_member_learns_the_same_alone_and_in_company():
    company = on_device(members(3), noise=None, dtype=np.float32)
    alone = on_device(members(1), noise=None, dtype=np.float32)
    iterate(company, 3, np.float32), iterate(alone, 3, np.float32)
    close({n: v[:1] for n, v in company.weights.items()}, alone.weights, 1e-5)
    np.testing.assert_array_equal(company.env.episodes.arrays()["count"][0], alone.env.episodes.arrays()["count"][0])


def test_a_rollout_equals_steps_one_by_one():
    specs = members(2, normalize_observation=False, normalize_reward=False)
    ppo = on_device(specs, noise=None, dtype=np.float32)
    rollout = ppo.collector.collect_rollouts(ppo.weights)
    env = JaxEnv(2, N, dtype=np.float32)
    carry, step = env.init(None), jax.jit(env.step)
    for t in range(T):
        np.testing.assert_array_equal(rollout.observations[:, t].reshape(2 * N, -1), env.observation(carry))
        carry, outcome = step(carry, jnp.clip(rollout.actions[:, t].reshape(2 * N, A), -1, 1))
        done = np.asarray(outcome.terminated | outcome.truncated)
        np.testing.assert_array_equal(rollout.dones[:, t].ravel(), done)
        going = ~np.asarray(outcome.truncated & ~outcome.terminated)  # the others include the final value
        np.testing.assert_allclose(rollout.rewards[:, t].ravel()[going], outcome.reward[going], atol=1e-6)
    np.testing.assert_array_equal(rollout.last_observation.reshape(2 * N, -1), env.observation(carry))


def test_noise_drawn_on_the_device_has_the_distribution_asked_for():
    from dressage_trainer.ppo.distributions import ActionSpace, draw_noise

    generators = [np.random.default_rng(seed) for seed in (1, 2)]
    normal = np.asarray(draw_noise(generators, (200, 20), ActionSpace(2), np.float32))
    assert normal.shape == (200, 2, 20, 2)
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    uniform = np.asarray(draw_noise(generators, (200, 20), ActionSpace(1, 3), np.float32))
    assert uniform.shape == (200, 2, 20, 1) and uniform.min() >= 0 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(uniform[:, 0].ravel(), uniform[:, 1].ravel())[0, 1]) < 0.05


def test_only_a_learner_on_a_device_gets_the_gpu(monkeypatch):
    from dressage.sandbox.gpu import GpuAccess
    from dressage_trainer.assignments import learner_process

    access = GpuAccess((Path("/dev/nvidia0"),), (Path("/proc/devices"),), (("CUDA_CACHE_PATH", ".cuda"),))
    monkeypatch.setattr(learner_process, "gpu_access", lambda: access)
    usual, device = (
        learner_process.learner_sandbox(backend="jax", cores=2, compiled=None, on_device=on_device)
        for on_device in (False, True)
    )
    assert not usual.devices and not usual.read_only and dict(usual.env)["JAX_PLATFORMS"] == "cpu"
    assert device.devices == access.devices and device.read_only == access.read_only
    variables = dict(device.env)
    assert "JAX_PLATFORMS" not in variables and variables["CUDA_CACHE_PATH"] == ".cuda" and variables["WARP_CACHE_PATH"]
    monkeypatch.setattr(learner_process, "gpu_access", lambda: None)
    without = learner_process.learner_sandbox(backend="jax", cores=2, compiled=None, on_device=True)
    assert not without.devices and dict(without.env)["JAX_PLATFORMS"] == "cpu"
