"""Stable-Baselines3 trains in an environment with a given reward, and its model is evaluated as a policy of ours is."""

from __future__ import annotations

import dressage
import numpy as np
import pytest

REWARD = """LATEX = "2"
TERMS = {"alive": "2 for each step"}


def reward(state, action, next_state, memory, np):
    return {"alive": next_state.observation[:, 1] * 0.0 + 2.0}
"""


def test_stable_baselines3_trains_on_a_given_reward():
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    env = dressage.make_env("InvertedPendulum-v5", reward=REWARD)
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu", seed=0)
    model.learn(128)
    returns = [entry["r"] / entry["l"] for entry in model.ep_info_buffer]
    assert returns and np.allclose(returns, 2.0)
    evaluation = dressage.evaluate(model, env="InvertedPendulum-v5", episodes=2, random_baseline=False)
    assert len(evaluation.returns) == 2 and evaluation.random is None
    env.close()
