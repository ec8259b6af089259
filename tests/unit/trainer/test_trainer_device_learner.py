"""The learner with its environments on a device, on MuJoCo Warp's CPU device, in this process.

The first use of a kernel compiles it, which takes minutes.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.limits import REWARD_NOT_TRACEABLE
from dressage_trainer.messages import (
    CheckpointMessage,
    DoneMessage,
    FailedMessage,
    MemberTask,
    TrainSpec,
    WarningMessage,
)
from in_process import run

pytestmark = [
    pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="the extra `warp` is not installed"),
    pytest.mark.timeout(1800),
]

REWARD = '''
LATEX = "v_x"
TERMS = {"speed": "forward velocity", "best": "new best of the episode"}
MEMORY = {"best": 0.0}

def reward(state, action, next_state, memory, np):
    """Depends on the memory."""
    gain = np.maximum(next_state.x_velocity - memory.best, 0.0)
    memory.best = np.maximum(memory.best, next_state.x_velocity)
    return {"speed": next_state.x_velocity, "best": gain}
'''
PER_STEP = """
class Forward(RewardFunction):
    latex, terms = "v", {"speed": "m/s"}

    def compute(self, obs, action, next_obs, info):
        return info["x_velocity"], {"speed": info["x_velocity"]}
"""
BRANCHING = REWARD.replace("    gain =", "    if next_state.x_velocity.max() > 1e9: memory.best *= 0.0\n    gain =")
SHAPE = {"num_envs": 2, "num_steps": 8, "minibatch_size": 8, "epochs": 2, "hidden_sizes": [8]}


def request(**values):
    members = (MemberTask("a", SHAPE, 1), MemberTask("b", {**SHAPE, "learning_rate": 1e-2}, 2))
    fixed = {"environment": "Hopper-v5", "options": {"max_episode_steps": 6}, "reward_source": REWARD}
    return TrainSpec(**{**fixed, "members": members, "on_device": True, "evaluations": 1, **values})


def test_training_on_a_device_resumes_to_the_same_bits(tmp_path):
    messages = run(tmp_path, request(steps_per_member=64, checkpoint_seconds=0))
    whole = messages[-1]
    assert isinstance(whole, DoneMessage), whole
    assert whole.env_steps_total == 2 * 64 and [policy.member for policy in whole.policies] == ["a", "b"]
    card = whole.policies[0].card["provenance"]
    assert card["simulation"]["simulator"].startswith("MuJoCo Warp") and "mujoco-warp" in card["versions"]
    first = next(m for m in messages if isinstance(m, CheckpointMessage) and m.update == 2)
    resumed = run(tmp_path, request(steps_per_member=64, checkpoint_seconds=1e9, resume=first.path))[-1]
    assert isinstance(resumed, DoneMessage), resumed
    for one, other in zip(whole.policies, resumed.policies, strict=True):
        for name, value in one.weights.items():
            np.testing.assert_array_equal(value, other.weights[name], err_msg=name)
    rows = (tmp_path / "members/a/metrics.jsonl").read_text().splitlines()
    assert len(rows) == 4 and '"term/best"' in rows[-1]


def test_a_checkpoint_of_the_other_pool_is_refused(tmp_path):
    on_cpu = run(tmp_path, request(steps_per_member=16, checkpoint_seconds=0, on_device=False))
    path = next(m.path for m in on_cpu if isinstance(m, CheckpointMessage))
    refused = run(tmp_path, request(steps_per_member=32, resume=path))[-1]
    assert isinstance(refused, FailedMessage) and refused.reason == "CHECKPOINT_MISMATCH", refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward_source": PER_STEP}, "per-step reward"),
        ({"reward_source": BRANCHING}, "line 8: the reward cannot be compiled for a device"),
        ({"algorithm": "sac", "members": (MemberTask("a", {"num_envs": 2}, 1),)}, "expected ppo"),
    ],
)
def test_what_cannot_run_on_a_device_is_refused(tmp_path, change, words):
    last = run(tmp_path, request(steps_per_member=16, **change))[-1]
    assert isinstance(last, FailedMessage) and words in last.message
    assert (last.reason == REWARD_NOT_TRACEABLE) == last.generated_code == ("reward_source" in change)


def test_steps_without_space_for_contacts_are_reported(tmp_path, monkeypatch):
    from dressage.envs import on_device
    from dressage.envs.options import EnvOptions
    from dressage.envs.warp_env import WarpEnv
    from dressage_trainer.backends import device

    assert device.make_device_env is on_device.make_device_env
    monkeypatch.setattr(
        device,
        "make_device_env",
        lambda name, rows, *, options, fields: WarpEnv(
            name, rows, options=options or EnvOptions(), fields=fields, constraints=1
        ),
    )
    options = {"max_episode_steps": 100}
    messages = run(tmp_path, request(steps_per_member=64, options=options, members=(MemberTask("a", SHAPE, 1),)))
    warnings = [m for m in messages if isinstance(m, WarningMessage)]
    assert any(w.reason == "SIMULATION_OVERFLOWED" and "contacts or constraints" in w.message for w in warnings)
    assert isinstance(messages[-1], DoneMessage)
