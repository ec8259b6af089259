"""A learner whose channel is a list, a reward with a memory, and what a trained policy must do wherever it is loaded."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.policies import Policy, PolicyCard, load, save_bundle, to_onnx, to_sb3
from dressage_trainer import learner
from dressage_trainer.messages import parse

REWARD = '''
LATEX = "1"
TERMS = {"up": "stay up", "late": "grows with the episode"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    """Depends on the memory."""
    memory.steps = memory.steps + 1.0
    return {"up": 1.0 - 0.1 * np.square(action).sum(-1), "late": 0.01 * memory.steps}
'''


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


def acts_alike(member, tmp_path, algorithm):
    """numpy, ONNX and SB3 agree on the deterministic action."""
    sb3 = pytest.importorskip("stable_baselines3")
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


def trained_whole_and_in_halves(run, tmp_path, *, steps):
    """Train once as a whole and once from the checkpoint of half of the steps; both have the same bits.

    :param run: trains in a folder.
    :returns: the messages of the whole training.
    """
    whole = run(tmp_path / "whole", steps=steps, checkpoint_seconds=1e9)
    assert {m.type for m in whole} >= {"progress", "evaluate", "done"}, whole[-1]
    part = run(tmp_path / "part", steps=steps // 2, checkpoint_seconds=0)
    resume = [m.path for m in part if m.type == "checkpoint"][-1]
    rest = run(tmp_path / "part", steps=steps, checkpoint_seconds=1e9, resume=resume)
    assert rest[-1].env_steps_total == whole[-1].env_steps_total // 2
    for first, second in zip(whole[-1].policies, rest[-1].policies, strict=True):
        for name, value in first.weights.items():
            np.testing.assert_array_equal(value, second.weights[name], err_msg=name)
    a, b = (p.weights["pi.0.weight"] for p in whole[-1].policies)
    assert not np.array_equal(a, b)
    return whole
