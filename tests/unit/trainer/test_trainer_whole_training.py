"""Whole trainings equal Stable-Baselines3's: environments, collection, normalisers, updates and all in between.

Given the same first weights, noise and minibatch orders, both must have the same weights, optimiser, normalisers and
observations after every update, up to rounding. Trainings magnify rounding two- to tenfold an update.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")
pytest.importorskip("jax")
ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "benchmarks")]

from dressage.envs.options import EnvOptions  # noqa: E402
from dressage.training.hyperparameters import Hyperparameters  # noqa: E402
from sb3_twin import Twin, train_pair  # noqa: E402
from support.equal_settings import ENVIRONMENTS, hyperparameters  # noqa: E402
from support.ours import REWARDS, returns_of  # noqa: E402

REWARD = '''
LATEX = "v_x + 1"
TERMS = {"speed": "forward velocity, m/s", "alive": "1 for every step"}

def reward(state, action, next_state, memory, np):
    """Moves ahead."""
    return {"speed": next_state.x_velocity, "alive": np.ones_like(next_state.x_velocity)}
'''
UPDATES = 8
GIVEN = Hyperparameters(
    num_envs=8, num_steps=64, minibatch_size=64, epochs=4, hidden_sizes=(32, 32), learning_rate=1e-3,
    entropy_coef=0.01, initial_log_std=-1.0, gae_lambda=0.9, discount=0.98,
)  # fmt: skip
CASES = {
    # Some episodes are cut after 30 steps, others fall before.
    "cut and fallen": ("Walker2d-v5", EnvOptions(max_episode_steps=30), GIVEN),
    "stopped by KL": (
        "Swimmer-v5",
        EnvOptions(max_episode_steps=150),
        replace(GIVEN, target_kl=0.01, minibatch_size=60, value_coef=0.8, max_grad_norm=0.2),  # 60 does not divide 512
    ),
    "clipped early": (
        "Hopper-v5",
        EnvOptions(max_episode_steps=30),
        replace(GIVEN, observation_clip=0.7, reward_clip=0.02),
    ),
    "not normalised": (
        "Hopper-v5",
        EnvOptions(max_episode_steps=30),
        replace(GIVEN, normalize_observation=False, normalize_reward=False, entropy_coef=0.0),
    ),
}


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")  # a smaller last one is meant
@pytest.mark.parametrize("case", CASES)
def test_updates_in_a_row_equal_sb3(case, monkeypatch):
    environment, options, h = CASES[case]
    twin = Twin(environment, REWARD, h, options, 3, monkeypatch)
    differences, lengths = [], []
    for _ in range(UPDATES):
        twin.advance()
        differences.append(twin.difference())
        lengths.extend(twin.ours.env.episodes.arrays()["recent"][0, :, 2])
    assert np.max(differences) < 1e-8, differences
    # What a case is about must have happened, or it proves nothing.
    assert np.nanmax(lengths) == options.max_episode_steps
    assert np.nanmin(lengths) < options.max_episode_steps or environment == "Swimmer-v5"  # which cannot fall
    assert twin.model._n_updates < UPDATES * h.epochs or h.target_kl is None  # SB3 counts epochs


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_whole_training_equals_sb3(environment, monkeypatch):
    # As research/learning_comparison.py trains. But for the simulator's state nothing is synchronised.
    h = Hyperparameters.from_dict(hyperparameters(environment))
    twin = Twin(environment, REWARDS[environment], h, EnvOptions(), 0, monkeypatch, follow=True)
    differences: list[float] = []
    while twin.ours.env.steps < 300_000:
        twin.advance()
        differences.append(twin.difference())
        assert differences[-1] < 1e-8, f"update {twin.ours.updates}"
        assert twin.largest_action_difference < 1e-9
    print(f"{environment}: within {max(differences):.1g} after each of {len(differences)} updates")


def test_a_pair_in_single_precision_ends_alike():
    h = Hyperparameters.from_dict(hyperparameters("Hopper-v5"))
    policies, state, actions = train_pair("Hopper-v5", REWARDS["Hopper-v5"], h, 1, steps=8192)
    assert len(state) == 2
    assert max(state) < 1e-5
    assert max(actions) < 1e-5
    ours, theirs = (returns_of(policies[name], "Hopper-v5", 2) for name in ("jax", "sb3"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
