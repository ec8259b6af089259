"""The batch against stock Gymnasium v5, step by step: not one bit may differ, but for the two rewards below."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from dressage.envs import ENVIRONMENT_IDS, EnvOptions, Trajectory, load_card, make_batch, reference
from dressage.envs.layout import layout_of
from dressage.envs.tasks import task

# Stock computes these rewards on scalars by libm's pow and BLAS' dot, whose last bit an array operation need not share.
REWARD_TOLERANCE = {"InvertedDoublePendulum-v5": 1e-12, "Reacher-v5": 1e-12}


class StockVector:
    """Stock environments stepped one by one, restarted without a seed as a user of Gymnasium would."""

    def __init__(self, env_id: str, count: int, **options: Any) -> None:
        self.envs = [gymnasium.make(env_id, **options) for _ in range(count)]

    def reset(self, seeds: list[int]) -> np.ndarray:
        return np.stack([env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)])

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        rows: dict[str, list[Any]] = {}
        for env, action in zip(self.envs, actions, strict=True):
            final, reward, terminated, truncated, _ = env.step(action)
            data = env.unwrapped.data
            row = {"final": final, "reward": reward, "terminated": terminated, "truncated": truncated}
            row |= {name: np.array(getattr(data, name)) for name in ("qpos", "qvel", "xpos", "cvel")}
            row["observation"] = env.reset()[0] if terminated or truncated else final
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
        return {name: np.array(values) for name, values in rows.items()}


def _actions(env_id: str, rng: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    card = load_card(env_id)
    low, high = [part.low for part in card.action], [part.high for part in card.action]
    # A little beyond the bounds: the simulator clamps, the stock control cost does not.
    return (1.1 * rng.uniform(low, high, size=(count, card.action_size))).astype(dtype)


@pytest.mark.parametrize("env_id", ENVIRONMENT_IDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_equal_stock_gymnasium_over_full_episodes(env_id: str, dtype: str) -> None:
    card, count = load_card(env_id), 2
    # Past the time limit where nothing else ends an episode; many short episodes elsewhere.
    steps = 110 if dtype == "float64" else 300 if card.can_terminate else card.max_episode_steps + 30
    seeds = [7, 2**40 + 3]
    rng = np.random.default_rng(1)
    stock, batch = StockVector(env_id, count), make_batch(env_id, count, num_threads=2)
    assert np.array_equal(stock.reset(seeds), batch.reset(seeds))
    ends = 0
    for _ in range(steps):
        actions = _actions(env_id, rng, count, dtype)
        expected, got = stock.step(actions), batch.step(actions)
        assert np.array_equal(expected["final"], got.final_observation)
        assert np.array_equal(expected["observation"], got.observation)
        assert np.array_equal(expected["reward"], got.reward)
        assert np.array_equal(expected["terminated"], got.terminated)
        assert np.array_equal(expected["truncated"], got.truncated)
        assert np.array_equal(expected["final"], got.next_state.observation)
        body, index = next(iter(layout_of(stock.envs[0].unwrapped.model).bodies.items()))
        assert np.array_equal(expected["xpos"][:, index], got.next_state.fields[f"xpos_{body}"])
        ends += int((got.terminated | got.truncated).sum())
    assert ends >= (0 if dtype == "float64" else count)
    assert batch.divergences == 0


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("HalfCheetah-v5", {"max_episode_steps": 30, "reset_noise_scale": 0.3}),
        ("Hopper-v5", {"max_episode_steps": 60, "terminate_when_unhealthy": False, "reset_noise_scale": 0.02}),
        ("InvertedPendulum-v5", {"max_episode_steps": 3, "reset_noise_scale": 0.05}),
    ],
)
def test_options_mean_what_they_mean_in_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    stock = StockVector(env_id, 3, **options)
    batch = make_batch(env_id, 3, num_threads=1, options=EnvOptions(**options))
    assert np.array_equal(stock.reset([1, 2, 3]), batch.reset([1, 2, 3]))
    rng = np.random.default_rng(2)
    for _ in range(130):
        actions = _actions(env_id, rng, 3, "float32")
        expected, got = stock.step(actions), batch.step(actions)
        assert np.array_equal(expected["observation"], got.observation)
        assert np.array_equal(expected["reward"], got.reward)
        assert np.array_equal(expected["terminated"], got.terminated)
        assert np.array_equal(expected["truncated"], got.truncated)


@pytest.mark.parametrize("env_id", ENVIRONMENT_IDS)
def test_batch_fields_equal_those_of_recorded_stock_episodes(env_id: str) -> None:
    short = EnvOptions(max_episode_steps=80)
    episodes = reference.rollout(reference.untrained_policy(env_id, 3), env_id, [5, 6], short)
    for episode in episodes:
        _compare_with_batch(episode)


def _compare_with_batch(episode: Trajectory) -> None:
    batch = make_batch(episode.environment, 1, num_threads=1, options=EnvOptions(max_episode_steps=80))
    batch.reset([episode.seed])
    states = [batch.state()]
    total = 0.0
    for action in episode.action:
        step = batch.step(action[None].astype(np.float32))
        states.append(step.next_state)
        total += float(step.reward[0])
    assert total == pytest.approx(episode.stock_return, abs=1e-9)
    assert set(load_card(episode.environment).field_names) == set(episode.fields)
    for name, column in episode.fields.items():
        assert np.array_equal(np.concatenate([state.fields[name] for state in states]), column), name


@pytest.mark.parametrize("env_id", ENVIRONMENT_IDS)
def test_velocities_are_the_rates_of_positions(env_id: str) -> None:
    """`xvel_*` against MuJoCo's own object velocity; joint rates against finite differences of the angles."""
    import mujoco

    env = gymnasium.make(env_id)
    env.reset(seed=4)
    env.action_space.seed(4)
    bound = {entry.field.name: entry for entry in task(env_id).fields(layout_of(env.unwrapped.model))}
    model, data = env.unwrapped.model, env.unwrapped.data
    for _ in range(4):
        env.step(env.action_space.sample())
    raw = {name: np.array(getattr(data, name))[None] for entry in bound.values() for name in entry.sources}
    for index in range(1, model.nbody):
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, index, velocity, 0)
        name = f"xvel_{model.body(index).name}"
        if name in bound:
            np.testing.assert_allclose(bound[name].function(raw)[0], velocity[3:], atol=1e-12)
