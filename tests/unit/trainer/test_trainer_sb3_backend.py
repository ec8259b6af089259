"""The Stable-Baselines3 backend by the learner's protocol: PPO and SAC train, resume, and act from the bundle."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.errors import FailedPrecondition
from dressage.installation import install_command
from dressage.policies import PolicyCard
from dressage_trainer import learner
from dressage_trainer.messages import MemberTask, TrainSpec

from tests.unit.trainer.learner_line import REWARD, Line, acts_alike, trained_whole_and_in_halves

PPO = {"num_envs": 4, "num_steps": 16, "minibatch_size": 32, "epochs": 2, "hidden_sizes": [8, 8]}
CLIPPED = {**PPO, "observation_clip": 0.5, "reward_clip": 0.25}
SAC = {"num_envs": 4, "minibatch_size": 16, "hidden_sizes": [8, 8], "normalize_observation": True}


def run(folder, monkeypatch, *, algorithm, steps, members=None, reward=REWARD, **values):
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    # Listening ends at once here and would stop the training.
    monkeypatch.setattr(learner.Training, "_listen", lambda self: None)
    given = {"ppo": PPO, "sac": {**SAC, "replay_size": 400}}.get(algorithm, PPO)
    members = members or (MemberTask("a", given, 1), MemberTask("b", {**given, "learning_rate": 1e-3}, 2))
    spec = TrainSpec(environment="InvertedPendulum-v5", reward_source=reward, members=members, backend="sb3",
                     steps_per_member=steps, algorithm=algorithm, **values)  # fmt: skip
    line = Line(spec.to_dict())
    learner.learn(line)
    return line.sent


@pytest.mark.parametrize(("algorithm", "steps"), [("ppo", 256), ("sac", 160)])
def test_trains_resumes_to_the_same_bits_and_acts(tmp_path, monkeypatch, algorithm, steps):
    monkeypatch.setattr("dressage.training.sac.REPORT_STEPS", 40)
    known = dict(algorithm=algorithm, evaluations=2)
    whole = trained_whole_and_in_halves(functools.partial(run, monkeypatch=monkeypatch, **known), tmp_path, steps=steps)
    acts_alike(whole[-1].policies[0], tmp_path, algorithm)
    metrics = [m for m in whole if m.type == "progress"][-1].members[0].metrics
    assert {"policy_loss", "value_loss", "term/up", "steps_per_second"} <= metrics.keys()


def test_clips_are_those_of_vec_normalize_in_training_and_export(tmp_path, monkeypatch):
    from dressage_trainer.backends.sb3 import groups

    normalizers = []
    original = groups.StoppingNormalizer
    monkeypatch.setattr(
        groups, "StoppingNormalizer", lambda *a, **k: normalizers.append(original(*a, **k)) or normalizers[-1]
    )
    messages = run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=128, members=(MemberTask("a", CLIPPED, 1),))
    assert [(one.clip_obs, one.clip_reward) for one in normalizers] == [(0.5, 0.25)]
    (member,) = messages[-1].policies
    card = PolicyCard.from_dict(member.card)
    assert card.clip == 0.5 and card.statistics["reward_clip"] == 0.25
    assert card.provenance["hyperparameters"]["observation_clip"] == 0.5
    acts_alike(member, tmp_path, "ppo")


def test_a_broken_reward_stops_its_member(tmp_path, monkeypatch):
    broken = REWARD.replace("0.01 * memory.steps", "np.where(memory.steps > 4, np.nan, 0.0)")
    messages = run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=256, reward=broken)
    stopped = [m for m in messages if m.type == "member_stopped"]
    assert [m.member for m in stopped] == ["a", "b"]
    assert all("'late'" in m.message and m.env_step == 4 * 5 for m in stopped)
    assert messages[-1].type == "failed" and messages[-1].generated_code


@pytest.mark.parametrize(
    ("algorithm", "given", "words"),
    [("td3", {}, "ppo or sac"), ("sac", {"clip_range": 0.1}, "clip_range"), ("ppo", {"discount": 3}, "discount")],
)
def test_bad_requests_are_refused_by_name(tmp_path, monkeypatch, algorithm, given, words):
    members = (MemberTask("a", given, 1),)
    failed = run(tmp_path / "run", monkeypatch, algorithm=algorithm, steps=64, members=members)[-1]
    assert failed.type == "failed" and words in failed.message


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "dressage_trainer.backends.sb3.groups", raising=False)
    with pytest.raises(FailedPrecondition, match=re.escape(install_command("sb3"))):
        __import__("dressage_trainer.backends.sb3.groups")
