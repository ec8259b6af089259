"""The Stable-Baselines3 backend by the learner's protocol: PPO and SAC train, resume, and act from the bundle."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.errors import FailedPrecondition  # noqa: E402
from dressage.installation import install_command  # noqa: E402
from dressage.policies import Policy, PolicyCard, load, save_bundle, to_onnx, to_sb3  # noqa: E402
from dressage_trainer import learner  # noqa: E402
from dressage_trainer.messages import MemberTask, TrainSpec, parse  # noqa: E402

REWARD = '''
LATEX = "1"
TERMS = {"up": "stay up", "late": "grows with the episode"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    """Depends on the memory."""
    memory.steps = memory.steps + 1.0
    return {"up": 1.0 - 0.1 * np.square(action).sum(-1), "late": 0.01 * memory.steps}
'''
PPO = {"num_envs": 4, "num_steps": 16, "minibatch_size": 32, "epochs": 2, "hidden_sizes": [8, 8]}
CLIPPED = {**PPO, "observation_clip": 0.5, "reward_clip": 0.25}
SAC = {"num_envs": 4, "minibatch_size": 16, "hidden_sizes": [8, 8], "normalize_observation": True}


class Line:
    """A channel whose other end is a list."""

    def __init__(self, request):
        self.request, self.sent = request, []

    def recv(self, timeout):
        if self.request is None:
            raise learner.ChannelClosed("no more")
        request, self.request = self.request, None
        return request

    def send(self, message):
        self.sent.append(parse(message))


def run(folder, monkeypatch, *, algorithm, steps, members=None, reward=REWARD, **values):
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    # Listening ends at once here and would stop the training.
    monkeypatch.setattr(learner.Training, "_listen", lambda self: None)
    given = {"ppo": PPO, "sac": SAC}.get(algorithm, PPO)
    members = members or (MemberTask("a", given, 1), MemberTask("b", {**given, "learning_rate": 1e-3}, 2))
    spec = TrainSpec(environment="InvertedPendulum-v5", reward_source=reward, members=members, backend="sb3",
                     steps_per_member=steps, algorithm=algorithm, **values)  # fmt: skip
    line = Line(spec.to_dict())
    learner.learn(line)
    return line.sent


@pytest.mark.parametrize(("algorithm", "steps"), [("ppo", 256), ("sac", 160)])
def test_trains_resumes_to_the_same_bits_and_acts(tmp_path, monkeypatch, algorithm, steps):
    # The replay buffer's size and SAC's reports, made small.
    monkeypatch.setattr("dressage.training.sac.REPLAY_SIZE", 400)
    monkeypatch.setattr("dressage_trainer.backends.sb3.models.SAC_STEPS", 40)
    known = dict(algorithm=algorithm, evaluations=2)
    whole = run(tmp_path / "whole", monkeypatch, steps=steps, checkpoint_seconds=1e9, **known)
    assert {m.type for m in whole} >= {"progress", "evaluate", "done"}, whole[-1]
    part = run(tmp_path / "part", monkeypatch, steps=steps // 2, checkpoint_seconds=0, **known)
    resume = [m.path for m in part if m.type == "checkpoint"][-1]
    rest = run(tmp_path / "part", monkeypatch, steps=steps, checkpoint_seconds=1e9, resume=resume, **known)
    assert rest[-1].env_steps_total == whole[-1].env_steps_total // 2
    for first, second in zip(whole[-1].policies, rest[-1].policies, strict=True):
        for name, value in first.weights.items():
            np.testing.assert_array_equal(value, second.weights[name], err_msg=name)
    a, b = (p.weights["pi.0.weight"] for p in whole[-1].policies)
    assert not np.array_equal(a, b)
    acts_alike(whole[-1].policies[0], tmp_path, algorithm)
    metrics = [m for m in whole if m.type == "progress"][-1].members[0].metrics
    assert {"policy_loss", "value_loss", "term/up", "steps_per_second"} <= metrics.keys()


def acts_alike(member, tmp_path, algorithm):
    """numpy, ONNX and SB3 agree on the deterministic action."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    policy = Policy(weights=member.weights, card=PolicyCard.from_dict(member.card))
    policy = load(save_bundle(tmp_path / "bundle", weights=policy.weights, card=policy.description))
    assert policy.description.squash == (algorithm == "sac")
    rows = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32).astype(np.float64)
    model_file, normalizer_file = to_sb3(policy, tmp_path / "sb3")
    model = getattr(sb3, algorithm.upper()).load(model_file, device="cpu")

    class Spaces(__import__("gymnasium").Env):
        observation_space, action_space = model.observation_space, model.action_space

    normalizer = VecNormalize.load(str(normalizer_file), DummyVecEnv([Spaces]))
    expected, _ = model.predict(normalizer.normalize_obs(rows), deterministic=True)
    np.testing.assert_allclose(policy.act(rows), expected, atol=1e-4)
    assert np.ptp(policy.act(rows)) > 0
    runtime = pytest.importorskip("onnxruntime")
    file = str(to_onnx(policy, tmp_path / "p.onnx"))
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(
        session.run(["action"], {"observation": rows.astype(np.float32)})[0], expected, atol=1e-4
    )


def test_clips_are_those_of_vec_normalize_in_training_and_export(tmp_path, monkeypatch):
    from dressage_trainer.backends.sb3 import groups

    made = []
    original = groups.StoppingNormalizer
    monkeypatch.setattr(groups, "StoppingNormalizer", lambda *a, **k: made.append(original(*a, **k)) or made[-1])
    messages = run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=128, members=(MemberTask("a", CLIPPED, 1),))
    assert [(one.clip_obs, one.clip_reward) for one in made] == [(0.5, 0.25)]
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
