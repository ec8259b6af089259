"""Many seeded episodes at once, and one environment kept from episode to episode: both are stock Gymnasium's episodes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from dressage.envs import EnvOptions, reference
from dressage.envs.reference import Outcome, StockPlayer
from dressage.errors import InvalidArgument
from gymnasium import spaces

WEIGHTS = np.array([0.1, 0.0, 2.0, 0.0])


def lean(observation: np.ndarray) -> np.ndarray:
    return np.asarray(int(observation @ WEIGHTS > 0))


def stock_outcome(env_id: str, act, seed: int, **options) -> tuple[float, int]:
    """An episode by Gymnasium's own loop."""
    env = gymnasium.make(env_id, **options)
    observation, _ = env.reset(seed=seed)
    rewards, ended = [], False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        rewards.append(reward)
        ended = terminated or truncated
    env.close()
    return float(np.sum(rewards)), len(rewards)


@pytest.mark.parametrize(
    ("env_id", "act"), [("CartPole-v1", lean), ("Hopper-v5", lambda x: np.tanh(x[:3] - x[3:6]).astype(np.float32))]
)
def test_a_kept_environment_plays_what_a_fresh_one_does(env_id, act):
    seeds = (7, 3, 7, 2**40)
    with StockPlayer(env_id) as player:
        played = [player.play(act, seed) for seed in seeds]
        recorded = [player.record(act, seed) for seed in seeds]
    assert played == [outcome for _, outcome in recorded]
    assert [(one.stock_return, one.length) for one in played] == [stock_outcome(env_id, act, seed) for seed in seeds]
    np.testing.assert_array_equal(recorded[1][0].qpos, reference.rollout(act, env_id, [3])[0].qpos)
    assert len({one.length for one in played}) > 1 and played[0] == played[2]


def test_the_options_of_the_environment_count():
    with StockPlayer("CartPole-v1", EnvOptions(max_episode_steps=12)) as player:
        assert player.play(lean, 1) == Outcome(12.0, 12, None)


def test_an_action_that_is_none_is_refused():
    with StockPlayer("CartPole-v1") as player, pytest.raises(InvalidArgument, match="integer from 0 to 1 at step 0"):
        player.play(lambda observation: np.asarray(2), 1)


class Goal(gymnasium.Env):
    """Reaches its goal where the seed is even, and reports it in ``info``, as goal environments do."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.even, self.steps = seed % 2 == 0, 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 0.5, False, self.steps == 3, {"is_success": self.even and self.steps == 3}


def test_success_is_that_of_the_last_step_where_the_environment_says(tmp_path, monkeypatch):
    from dressage.envs import adding

    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", str(tmp_path))
    gymnasium.register("DressageGoal-v0", entry_point=Goal, max_episode_steps=10)
    env_id = adding.add_registered("gymnasium:DressageGoal-v0").id
    with StockPlayer(env_id) as player:
        outcomes = [player.play(lambda observation: np.zeros(1), seed) for seed in (1, 2, 4)]
        _, recorded = player.record(lambda observation: np.zeros(1), 2)
    assert outcomes == [Outcome(1.5, 3, False), Outcome(1.5, 3, True), Outcome(1.5, 3, True)]
    assert recorded == outcomes[1]
