"""The batch against stock Gymnasium, step by step, with options and other actions; and the fields against the simulator.

Full episodes are compared in test_envs_full_episodes.py and, where observations hold contact forces, in
test_envs_full_episodes_contacts.py.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from dressage.envs import REWARD_ENVIRONMENT_IDS, EnvOptions, Trajectory, load_card, make_batch, reference
from dressage.envs.fields import sources_of
from dressage.envs.layout import body_names, layout_of
from dressage.envs.tasks import task

from tests.unit.envs.stock_twin import random_actions, run_alike

MUJOCO_IDS = [env_id for env_id in REWARD_ENVIRONMENT_IDS if env_id != "CartPole-v1"]


@pytest.mark.parametrize("env_id", REWARD_ENVIRONMENT_IDS)
def test_actions_in_double_precision_mean_the_same(env_id: str) -> None:
    rng = np.random.default_rng(1)
    ends = run_alike(
        env_id,
        lambda _: random_actions(env_id, rng, 2, "float64"),
        seeds=[7, 2**40 + 3],
        steps=90,
        max_episode_steps=40,
    )
    assert (ends.of_rows >= 2).all()


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
    ends = run_alike(env_id, lambda _: random_actions(env_id, rng, 3), seeds=[1, 2, 3], steps=steps, **options)
    assert ends.of_rows.all()


@pytest.mark.parametrize("env_id", REWARD_ENVIRONMENT_IDS)
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
