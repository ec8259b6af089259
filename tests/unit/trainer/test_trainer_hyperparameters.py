"""What the trainer does with members' hyperparameters: minibatches of one sample, and minibatches larger than the rollout."""

from __future__ import annotations

import pytest
from dressage.training.hyperparameters import Hyperparameters
from dressage_trainer.backends.group import minibatch_warnings
from dressage_trainer.messages import MemberTask, TrainSpec


def test_stable_baselines3_takes_minibatches_of_one_sample_as_our_ppo_does():
    pytest.importorskip("stable_baselines3")
    from dressage_trainer.backends.sb3 import models
    from stable_baselines3.common.env_util import make_vec_env

    h = Hyperparameters(num_envs=2, num_steps=1, minibatch_size=1, epochs=1, hidden_sizes=(4,), discount=0.0)
    model = models.make_model(h.validate(), make_vec_env("Pendulum-v1", 2), seed=1)
    before = [value.clone() for value in model.policy.parameters()]
    model.learn(8)
    after = list(model.policy.parameters())
    assert all(value.isfinite().all() for value in after)
    assert any((a != b).any() for a, b in zip(before, after, strict=True))


def test_a_member_is_warned_of_its_own_minibatch_only():
    tasks = MemberTask("a", {"minibatch_size": 9999}, 1), MemberTask("b", {"num_envs": 1, "num_steps": 8}, 1)
    (warning,) = minibatch_warnings(TrainSpec(environment="HalfCheetah-v5", members=tasks))
    assert warning.member == "a" and "9999" in warning.message and "2048" in warning.message
