"""Rewards as text, paths, functions and classes; checks; environments with a given reward."""

from __future__ import annotations

import warnings
from pathlib import Path

import dressage
import gymnasium
import numpy as np
import pytest
from dressage import errors
from dressage.envs.options import EnvOptions
from dressage.sdk.reward_source import reward_name, reward_source
from gymnasium.utils.env_checker import check_env

from tests.unit.python import example_rewards

ENV = "HalfCheetah-v5"
EXAMPLES = Path(__file__).parents[3] / "examples" / "rewards"


def source(terms: str, *, memory: str = "") -> str:
    """A vectorised reward of one term."""
    return f"""LATEX = "r"
TERMS = {{"value": "1"}}
{memory}

def reward(state, action, next_state, memory, np):
{terms}
"""


def test_a_function_is_taken_with_what_it_uses():
    text = reward_source(example_rewards.forward)
    assert "def reward(state" in text and "def squared(" in text and "WEIGHT = 0.1" in text and "import math" in text
    assert "SECRET" not in text and "class Forward" not in text and "MEMORY = {'steps': 0.0}" in text
    result = dressage.check(example_rewards.forward, env=ENV)
    assert result and result.ok and result.style == "vectorised" and result.source == text, result
    assert set(result.terms) == {"speed", "effort"}


def test_a_per_step_function_and_a_class_are_taken():
    for reward in (example_rewards.per_step, example_rewards.Forward):
        result = dressage.check(reward, env=f"environments/{ENV}")
        assert result.ok and result.style == "per_step", result


def test_text_and_paths_are_taken(tmp_path: Path):
    path = EXAMPLES / "run_forward.py"
    assert reward_source(path) == reward_source(str(path)) == reward_source(path.read_text()) == path.read_text()
    assert reward_name(path) == "run_forward.py" and reward_name(example_rewards.forward) == "forward"
    with pytest.raises(errors.InvalidArgument, match=r"reward: .*got '.*none"):
        dressage.check(tmp_path / "none.py", env=ENV)
    with pytest.raises(errors.InvalidArgument, match=r"reward: .*got 3"):
        dressage.check(3, env=ENV)  # type: ignore[arg-type]


def test_a_function_that_cannot_be_taken_is_refused():
    with pytest.raises(errors.InvalidArgument, match=r"enclosing function \(weight\)"):
        reward_source(example_rewards.enclosed(2.0))
    names: dict[str, object] = {}
    exec("def reward(state, action, next_state, memory, np): return {}", names)
    with pytest.raises(errors.InvalidArgument, match="give it as text or as a path"):
        reward_source(names["reward"])  # type: ignore[arg-type]


def test_what_a_function_may_not_use_is_a_problem_of_the_check():
    result = dressage.check(example_rewards.leaking, env=ENV)
    assert not result
    assert [problem.rule for problem in result.problems] == ["unknown-name"]
    assert "SECRET" in str(result) and "SECRET" in result._repr_html_()


def test_an_unknown_environment_is_refused():
    with pytest.raises(errors.NotFound, match="HalfCheetah-v5"):
        dressage.check(EXAMPLES / "run_forward.py", env="HalfCheeta-v5")
    with pytest.raises(errors.InvalidArgument, match=r"^env_options\.max_steps: .*got 3"):
        dressage.make_env(ENV, env_options={"max_steps": 3})
    with pytest.raises(errors.InvalidArgument, match=r"env: .*got ''"):
        dressage.make_env("")


@pytest.mark.parametrize("env_id", [ENV, "CartPole-v1"])
def test_an_environment_with_a_reward_passes_gymnasiums_checks(env_id: str):
    text = source('    return {"value": next_state.observation.sum(-1)}')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = dressage.make_env(env_id, reward=text)
        check_env(env)
    env.close()


def test_observations_are_stock_gymnasiums_and_rewards_the_given_ones():
    env = dressage.make_env(ENV, reward=example_rewards.forward, env_options={"max_episode_steps": 30})
    stock = gymnasium.make(ENV, max_episode_steps=30)
    first, _ = env.reset(seed=3)
    expected, _ = stock.reset(seed=3)
    np.testing.assert_array_equal(first, expected)
    rng = np.random.default_rng(0)
    for step in range(30):
        action = rng.uniform(-2.0, 2.0, 6).astype(np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        theirs, stock_reward, *ends, _ = stock.step(action)
        np.testing.assert_array_equal(observation, theirs)
        assert (terminated, truncated) == tuple(ends) == (False, step == 29)
        effort = -0.1 * np.square(np.clip(action.astype(np.float64), -1.0, 1.0)).sum()
        assert reward == pytest.approx(stock.unwrapped.data.qvel[0] + effort, rel=1e-12)
        assert info["stock_reward"] == stock_reward
        assert info["reward_terms"]["effort"] == pytest.approx(effort, rel=1e-12)
    env.close()


def test_rewards_are_those_of_training(tmp_path: Path):
    from dressage.contracts import score_in_sandbox
    from dressage.envs.cards import load_card
    from dressage.envs.reference import random_policy, rollout
    from dressage.sdk.environment import RewardEnv

    path = EXAMPLES / "per_step_forward.py"
    [episode] = rollout(random_policy("Hopper-v5", 5), "Hopper-v5", [11])
    env = dressage.make_env("Hopper-v5", reward=path)
    assert isinstance(env, RewardEnv) and env.terms
    env.reset(seed=11)
    rewards = [env.step(action.astype(np.float32))[1] for action in episode.action]
    env.close()
    [score] = score_in_sandbox(path.read_text(), load_card("Hopper-v5"), [episode], scratch=tmp_path)
    assert sum(rewards) == pytest.approx(score["return"], rel=1e-9)


def test_fields_that_follow_the_whole_episode_are_those_of_a_recording():
    from dressage.envs.reference import random_policy, rollout

    options = {"max_episode_steps": 25}
    [episode] = rollout(random_policy("Ant-v5", 5), "Ant-v5", [4], EnvOptions.from_dict(options))
    env = dressage.make_env("Ant-v5", reward=source('    return {"value": next_state.turned_yaw}'), env_options=options)
    for _ in range(2):
        env.reset(seed=4)
        rewards = [env.step(action.astype(np.float32))[1] for action in episode.action]
        np.testing.assert_allclose(rewards, episode.turned_yaw[1:], rtol=1e-9)
    env.close()


def test_the_memory_of_a_reward_starts_anew_with_each_episode():
    body = '    memory.count = memory.count + 1.0\n    return {"value": memory.count * 1.0}'
    env = dressage.make_env(ENV, reward=source(body, memory='MEMORY = {"count": 0.0}'))
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(env.action_space.sample())[1] for _ in range(3)] == [1.0, 2.0, 3.0]
    env.close()


def test_a_reward_that_breaks_its_contract_is_refused_with_its_rule():
    with pytest.raises(dressage.RewardError, match=r"\[import\] line 1"):
        dressage.make_env(ENV, reward="import os\n" + source('    return {"value": next_state.x_velocity}'))
    env = dressage.make_env(ENV, reward=source('    return {"value": np.log(next_state.x_velocity - 100.0)}'))
    env.reset(seed=0)
    with pytest.raises(dressage.RewardError, match=r"\[finite\] line 6"):
        env.step(env.action_space.sample())
    env.close()


def test_a_reward_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dressage.sdk.environment._STEP_SECONDS", 1.0)
    env = dressage.make_env(ENV, reward=source('    while True:\n        pass\n    return {"value": action.sum(-1)}'))
    env.reset(seed=0)
    with pytest.raises(dressage.RewardError, match="time_budget"):
        env.step(env.action_space.sample())
    with pytest.raises(dressage.RewardError, match="closed"):
        env.step(env.action_space.sample())
    env.close()


def test_a_closed_environment_leaves_no_process():
    env = dressage.make_env(ENV, reward=source('    return {"value": action.sum(-1)}'))
    process = env._process._process  # type: ignore[attr-defined]
    assert process.poll() is None
    env.close()
    assert process.wait(10) is not None
    assert not process.scratch.exists()


def test_no_reward_gives_the_environments_own():
    env = dressage.make_env("Hopper-v5", env_options={"max_episode_steps": 7}, render_mode="rgb_array")
    assert env.spec is not None and env.spec.max_episode_steps == 7 and env.render_mode == "rgb_array"
    env.close()


def test_a_small_environment_can_be_made_but_not_drawn():
    env = dressage.make_env("Nim-v0")
    assert env.reset(seed=1)[0] == 10 and env.step(0)[0] < 9
    env.close()
    with pytest.raises(dressage.errors.InvalidArgument, match=r"render_mode: .*expected None for Nim-v0"):
        dressage.make_env("Nim-v0", render_mode="rgb_array")
