"""The batch against stock Gymnasium, step by step: observation, reward, ends, info, auto-reset, final observation.

Not one bit may differ, but for what `TOLERANCE` names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from dressage.envs import (
    ENVIRONMENT_IDS,
    BatchEnv,
    BatchStep,
    EnvOptions,
    Trajectory,
    load_card,
    make_batch,
    reference,
)
from dressage.envs.fields import sources_of
from dressage.envs.layout import body_names, layout_of
from dressage.envs.tasks import task

from tests.unit.envs.trained import trained_policy

MUJOCO_IDS = [env_id for env_id in ENVIRONMENT_IDS if env_id != "CartPole-v1"]
# Stock computes these on scalars by libm's pow and BLAS' dot, and Humanoid's centre of mass by einsum where MuJoCo's own is
# taken here; an array operation need not share their last bits.
TOLERANCE = {
    "InvertedDoublePendulum-v5": 1e-12,
    "Reacher-v5": 1e-12,
    "Pusher-v5": 1e-12,
    "Humanoid-v5": 1e-11,
}


class StockVector:
    """Stock environments stepped one by one, restarted without a seed as a user of Gymnasium would."""

    def __init__(self, env_id: str, count: int, **options: Any) -> None:
        self.envs = [gymnasium.make(env_id, **options) for _ in range(count)]

    def reset(self, seeds: list[int]) -> np.ndarray:
        return np.stack([env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)])

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        rows: dict[str, list[Any]] = {}
        for env, action in zip(self.envs, actions, strict=True):
            final, reward, terminated, truncated, info = env.step(action)
            row = {"final": final, "reward": reward, "terminated": terminated, "truncated": truncated}
            row |= {f"info/{name}": value for name, value in info.items()}
            row |= {name: np.array(getattr(env.unwrapped.data, name)) for name in self._arrays(env)}
            row["observation"] = env.reset()[0] if terminated or truncated else final
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
        return {name: np.array(values) for name, values in rows.items()}

    def _arrays(self, env: Any) -> tuple[str, ...]:
        return ("xpos",) if hasattr(env.unwrapped, "data") else ()


def _actions(env_id: str, rng: np.random.Generator, count: int, dtype: str = "float32") -> np.ndarray:
    card = load_card(env_id)
    if card.action_kind == "discrete":
        return rng.integers(card.num_actions, size=count)
    low, high = [part.low for part in card.action], [part.high for part in card.action]
    # A little beyond the bounds: the simulator clamps, the stock control cost does not.
    return (1.1 * rng.uniform(low, high, size=(count, card.action_size))).astype(dtype)


def _compare(env_id: str, expected: dict[str, np.ndarray], got: BatchStep) -> None:
    assert np.array_equal(expected["final"], got.final_observation)
    assert np.array_equal(expected["observation"], got.observation)
    assert np.array_equal(expected["terminated"], got.terminated)
    assert np.array_equal(expected["truncated"], got.truncated)
    names = {name.removeprefix("info/") for name in expected if name.startswith("info/")}
    assert names == set(got.info)
    tolerance = TOLERANCE.get(env_id, 0.0)
    pairs = {"reward": got.reward} | {f"info/{name}": got.info[name] for name in names}
    for name, value in pairs.items():
        # Stock takes a norm by BLAS' dot.
        bound = 1e-12 if name == "info/distance_from_origin" else tolerance
        assert np.abs(np.asarray(expected[name], np.float64) - value).max() <= bound, name


def _same_episodes(
    env_id: str, act: Callable[[np.ndarray], np.ndarray], *, steps: int, seeds: list[int], **options: Any
) -> tuple[int, BatchEnv]:
    """Steps stock environments and a batch alike; the number of episodes that ended."""
    count = len(seeds)
    stock = StockVector(env_id, count, **options)
    batch = make_batch(env_id, count, num_threads=2, options=EnvOptions(**options))
    observation = batch.reset(seeds)
    assert np.array_equal(stock.reset(seeds), observation)
    ends = 0
    for _ in range(steps):
        actions = act(observation)
        expected, got = stock.step(actions), batch.step(actions)
        _compare(env_id, expected, got)
        assert np.array_equal(expected["final"], got.next_state.observation)
        if "xpos" in expected:
            body = body_names(stock.envs[0].unwrapped.model)[1]
            assert np.array_equal(expected["xpos"][:, 1], got.next_state.fields[f"xpos_{body}"])
        ends += int((got.terminated | got.truncated).sum())
        observation = got.observation
    assert batch.divergences == 0
    return ends, batch


@pytest.mark.parametrize("env_id", ENVIRONMENT_IDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_equal_stock_gymnasium_over_full_episodes(env_id: str, dtype: str) -> None:
    # Past the time limit where nothing else ends an episode; many short episodes elsewhere.
    card = load_card(env_id)
    options: dict[str, Any] = {}
    steps = 110 if dtype == "float64" else 300 if card.can_terminate else card.max_episode_steps + 30
    if env_id == "HumanoidStandup-v5":  # the slowest: its full episodes are the slow test's
        steps, options = min(steps, 120), {"max_episode_steps": 90}
    if env_id in ("Ant-v5", "Humanoid-v5"):
        steps = min(steps, 150)
    rng = np.random.default_rng(1)
    ends, _ = _same_episodes(
        env_id, lambda _: _actions(env_id, rng, 2, dtype), steps=steps, seeds=[7, 2**40 + 3], **options
    )
    assert ends >= (0 if dtype == "float64" else 2)


STREAMS = ("random", "untrained", "trained", "swinging")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("env_id", ENVIRONMENT_IDS)
def test_twenty_full_episodes_equal_stock_gymnasium(env_id: str, stream: str) -> None:
    """20 full episodes for each kind of action, at the stock time limit."""
    card, count = load_card(env_id), 5
    rng = np.random.default_rng(3)
    ends = 0
    for part in range(20):
        act = _stream(env_id, stream, rng, count, part)
        # Who is trained may not fall at all, and then only the time limit ends the episode.
        steps = 250 if card.can_terminate and stream != "trained" else card.max_episode_steps
        ends += _same_episodes(env_id, act, steps=steps, seeds=[100 * part + row for row in range(count)])[0]
        if ends >= 20:
            break
    assert ends >= 20


def _stream(
    env_id: str, stream: str, rng: np.random.Generator, count: int, seed: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Noise, a network's answer to the observation, trained or not, or slow swings of all joints that keep it moving."""
    card = load_card(env_id)
    if stream == "untrained":
        return reference.untrained_policy(env_id, seed)
    if stream == "trained":
        return trained_policy(env_id)
    if stream == "random" or card.action_kind == "discrete":
        return lambda _: _actions(env_id, rng, count)
    high = np.array([part.high for part in card.action])
    phase, clock = rng.uniform(0, 2 * np.pi, size=(count, card.action_size)), iter(range(10**6))
    rate = rng.uniform(1, 12, size=(count, 1))
    return lambda _: (0.8 * high * np.sin(phase + rate * next(clock) * card.time_step)).astype(np.float32)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("HalfCheetah-v5", {"max_episode_steps": 30, "reset_noise_scale": 0.3}),
        ("Hopper-v5", {"max_episode_steps": 60, "terminate_when_unhealthy": False, "reset_noise_scale": 0.02}),
        ("InvertedPendulum-v5", {"max_episode_steps": 3, "reset_noise_scale": 0.05}),
        ("Ant-v5", {"max_episode_steps": 40, "terminate_when_unhealthy": False, "reset_noise_scale": 0.3}),
        ("Humanoid-v5", {"max_episode_steps": 40, "terminate_when_unhealthy": False, "reset_noise_scale": 0.05}),
        ("CartPole-v1", {"max_episode_steps": 7}),
    ],
)
def test_options_mean_what_they_mean_in_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    steps = 60 if env_id in ("Ant-v5", "Humanoid-v5") else 130
    ends, _ = _same_episodes(env_id, lambda _: _actions(env_id, rng, 3), steps=steps, seeds=[1, 2, 3], **options)
    assert ends >= 3


@pytest.mark.parametrize("env_id", ENVIRONMENT_IDS)
def test_batch_fields_equal_those_of_recorded_stock_episodes(env_id: str) -> None:
    short = EnvOptions(max_episode_steps=_LENGTH)
    episodes = reference.rollout(reference.untrained_policy(env_id, 3), env_id, [5, 6], short)
    for episode in episodes:
        _compare_with_batch(episode)


_LENGTH = 60


def _compare_with_batch(episode: Trajectory) -> None:
    batch = make_batch(episode.environment, 1, num_threads=1, options=EnvOptions(max_episode_steps=_LENGTH))
    batch.reset([episode.seed])
    states = [batch.state()]
    total = 0.0
    for action in episode.action:
        step = batch.step(action[None].astype(np.int64 if batch.num_actions else np.float32))
        states.append(step.next_state)
        total += float(step.reward[0])
    assert total == pytest.approx(episode.stock_return, abs=1e-9)
    assert set(load_card(episode.environment).field_names) == set(episode.fields)
    for name, column in episode.fields.items():
        assert np.array_equal(np.concatenate([state.fields[name] for state in states]), column), name


@pytest.mark.parametrize("env_id", MUJOCO_IDS)
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
    raw = {name: np.array(getattr(data, name))[None] for name in sources_of(list(bound.values()))}
    names = body_names(model)
    for index in range(1, model.nbody):
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, index, velocity, 0)
        name = f"xvel_{names[index]}"
        if name in bound:
            np.testing.assert_allclose(bound[name].function(raw)[0], velocity[3:], atol=1e-12)
