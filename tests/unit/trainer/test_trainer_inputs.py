"""Trainings whose networks see the leading components of an observation, and learning rates that follow the updates."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

pytest.importorskip("jax")
pytest.importorskip("mujoco")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.policies import Policy, PolicyCard
from dressage.training.hyperparameters import Hyperparameters
from dressage_trainer.messages import MemberStart, MemberTask, TrainSpec
from dressage_trainer.ppo.inputs import LeadingObservations, narrow, widen
from dressage_trainer.ppo.members import AdaptiveRates, MemberSpec
from fake_environment import FakeBatch

from tests.unit.trainer.in_process import run

REWARD = """
LATEX = "1"
TERMS = {"up": "stay up"}

def reward(state, action, next_state, memory, np):
    return {"up": 1.0 - 0.1 * np.square(action).sum(-1)}
"""
PPO = {"num_envs": 4, "num_steps": 16, "minibatch_size": 32, "epochs": 2, "hidden_sizes": [8, 8]}
SAC = {"num_envs": 4, "minibatch_size": 16, "hidden_sizes": [8, 8], "warmup_steps": 16, "replay_size": 400}
WHOLE, SEEN = 4, 3


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dressage.training.sac.REPORT_STEPS", 40)


def trained(folder, algorithm, *, backend="jax", steps=256, start=None, **more):
    values = {"ppo": PPO, "sac": SAC}[algorithm]
    members = (
        MemberTask("narrow", {**values, "observation_inputs": SEEN, **more}, 1, start=start),
        MemberTask("whole", {**values, **more}, 1),
    )
    spec = TrainSpec(environment="InvertedPendulum-v5", reward_source=REWARD, members=members, algorithm=algorithm,
                     steps_per_member=steps, backend=backend, evaluations=1, checkpoint_seconds=0)  # fmt: skip
    messages = run(folder, spec)
    assert messages[-1].type == "done", messages[-1]
    return {policy.member: policy for policy in messages[-1].policies}


def actions_of(policy, observations):
    return Policy(weights=policy.weights, card=PolicyCard.from_dict(policy.card)).act(observations)


@pytest.mark.parametrize(("algorithm", "backend"), [("ppo", "jax"), ("sac", "jax"), ("ppo", "sb3"), ("sac", "sb3")])
def test_a_policy_depends_on_the_components_that_its_training_saw(tmp_path, algorithm, backend):
    if backend == "sb3":
        pytest.importorskip("stable_baselines3")
    policies = trained(tmp_path / "run", algorithm, backend=backend, steps={"ppo": 128, "sac": 80}[algorithm])
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 50, WHOLE))
    other[:, :SEEN] = one[:, :SEEN]
    assert policies["narrow"].card["observation_size"] == WHOLE
    np.testing.assert_array_equal(actions_of(policies["narrow"], one), actions_of(policies["narrow"], other))
    assert np.ptp(actions_of(policies["narrow"], one)) > 0
    assert not np.array_equal(actions_of(policies["whole"], one), actions_of(policies["whole"], other))


@pytest.mark.parametrize("keeps_value", [False, True])
def test_a_narrow_training_continues_from_its_own_policy(tmp_path, keeps_value):
    first = trained(tmp_path / "first", "ppo")["narrow"]
    statistics = first.card["normalization"]["statistics"]
    start = MemberStart(weights=first.weights, statistics=statistics, provenance={}, keeps_value=keeps_value)
    second = trained(tmp_path / "second", "ppo", steps=64, start=start, learning_rate=1e-12)["narrow"]
    for name in ("pi.0.weight", "pi.1.weight", "action.weight", *(["vf.0.weight"] if keeps_value else [])):
        np.testing.assert_allclose(second.weights[name], first.weights[name], atol=1e-6)
    assert second.card["normalization"]["statistics"]["obs_count"] > statistics["obs_count"]


class TestTensors:
    @given(st.integers(1, 6), st.integers(0, 6), st.data())
    def test_narrowing_undoes_widening(self, seen, hidden, data):
        values = arrays.arrays(np.float32, (3, seen), elements=st.floats(-1, 1, width=32))
        weights = {"pi.0.weight": data.draw(values), "pi.0.bias": np.ones(3), "obs_mean": np.ones(seen),
                   "obs_var": np.full(seen, 4.0)}  # fmt: skip
        wide = widen(weights, seen + hidden)
        assert wide["pi.0.weight"].shape == (3, seen + hidden) and not wide["pi.0.weight"][:, seen:].any()
        assert wide["obs_var"].tolist() == [4.0] * seen + [1.0] * hidden
        for name, value in narrow(wide, seen).items():
            np.testing.assert_array_equal(value, weights[name])

    def test_a_policy_of_other_components_is_refused(self):
        with pytest.raises(InvalidArgument, match=r"start pi.0.weight: .*first 2 components"):
            narrow({"pi.0.weight": np.ones((3, 4))}, 2)

    def test_more_components_than_there_are_is_refused(self):
        with pytest.raises(InvalidArgument, match=r"observation_inputs: .*at most 4, or 0 for all"):
            Hyperparameters(observation_inputs=5).inputs(4)

    def test_a_batch_returns_the_leading_components(self):
        whole, narrow = FakeBatch(1, 3), LeadingObservations(FakeBatch(1, 3), 2)
        np.testing.assert_array_equal(whole.reset([0, 1, 2])[:, :2], narrow.reset([0, 1, 2]))
        one, other = whole.step(np.ones((3, 2))), narrow.step(np.ones((3, 2)))
        np.testing.assert_array_equal(one.observation[:, :2], other.observation)
        np.testing.assert_array_equal(one.final_observation[:, :2], other.final_observation)
        assert (narrow.observation_size, narrow.num_envs) == (2, 3)


class TestAdaptiveRates:
    @staticmethod
    def rates(*desired):
        return AdaptiveRates([MemberSpec("m", Hyperparameters(desired_kl=kl), 0) for kl in desired])

    @given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
    def test_a_rate_follows_the_size_of_the_updates_within_its_bounds(self, divergences):
        rates = self.rates(0.01, 0.0, 0.01)
        for kl in divergences:
            before = rates.now
            rates.adapt(np.array([kl, kl, kl]), stopped=np.array([False, False, True]))
            assert rates.now[1:].tolist() == [3e-4, 3e-4]
            assert 3e-4 / 50 * 0.999 <= rates.now[0] <= 3e-3 * 1.001
            assert (rates.now[0] < before[0]) == (kl > 0.02 and before[0] > 3e-4 / 50 * 1.001)
            assert (rates.now[0] > before[0]) == (kl < 0.005 and before[0] < 3e-3 * 0.999)

    @pytest.mark.parametrize("backend", ["jax", "sb3"])
    def test_a_training_with_large_updates_lowers_its_rate(self, tmp_path, backend):
        if backend == "sb3":
            pytest.importorskip("stable_baselines3")
        trained(tmp_path / "run", "ppo", backend=backend, desired_kl=1e-7, learning_rate=0.01)
        lines = (tmp_path / "run/members/narrow/metrics.jsonl").read_text().splitlines()
        rates = [json.loads(line)["learning_rate"] for line in lines]
        np.testing.assert_allclose(rates, 0.01 / 1.5 ** np.arange(4), rtol=1e-5)
