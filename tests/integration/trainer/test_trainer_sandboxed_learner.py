"""The learner in its real sandbox: killed at any moment and resumed, it ends with the same weights."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import Limits
from dressage.sandbox.process import SandboxProcess
from dressage_trainer.messages import CheckpointMessage, DoneMessage, EvaluateRequest, MemberTask, TrainSpec, parse
from dressage_trainer.speed.threads import learner_environment

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
SMALL = {"num_envs": 4, "num_steps": 64, "minibatch_size": 64, "epochs": 2, "hidden_sizes": [16, 16]}
LIMITS = Limits(memory_bytes=2 << 30, wall_seconds=150)

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")


def start(target, scratch):
    scratch.mkdir(exist_ok=True)
    # In the scratch folder, where the first of the learners may write it for the others.
    environment = learner_environment(compilation_cache=scratch / "compiled")
    return SandboxProcess.start(
        f"dressage_trainer.{target}", limits=LIMITS, scratch=scratch, threads=2, env=environment
    )


def request(*, steps, **values):
    members = (MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "entropy_coef": 0.01}, 2))
    return TrainSpec(
        environment="HalfCheetah-v5", reward_source=REWARD, members=members, steps_per_member=steps, threads=2, **values
    )


def messages(process):
    while True:
        message = parse(process.channel.recv(timeout=120))
        yield message
        if message.type in ("done", "failed"):
            return


def train(scratch, **values):
    with start("learner:learn", scratch) as process:
        process.channel.send(request(**values).to_dict())
        last = list(messages(process))[-1]
    assert isinstance(last, DoneMessage), last
    return last


@pytest.mark.timeout(240)
def test_a_killed_learner_resumes_to_the_same_weights(tmp_path):
    steps = 16 * 256
    whole = train(tmp_path / "run", steps=steps, checkpoint_seconds=1e9)
    with start("learner:learn", tmp_path / "run") as process:
        process.channel.send(request(steps=steps, checkpoint_seconds=0).to_dict())
        seen = (m for m in messages(process) if isinstance(m, CheckpointMessage))
        checkpoint = next(m for m in seen if m.update >= 3)
        process.kill()
    files = sorted((tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    assert files
    resumed = train(tmp_path / "run", steps=steps, checkpoint_seconds=1e9, resume=str(checkpoint.path))
    assert resumed.env_steps_total < whole.env_steps_total
    for a, b in zip(whole.policies, resumed.policies, strict=True):
        for name, value in a.weights.items():
            np.testing.assert_array_equal(value, b.weights[name], err_msg=f"{a.member} {name}")

    policy = whole.policies[0]
    with start("evaluation.evaluator:evaluate", tmp_path / "evaluator") as process:
        task = EvaluateRequest(
            environment="HalfCheetah-v5", card=policy.card, weights=policy.weights, seeds=(7, 8), folder="out",
            options={"max_episode_steps": 50},
        )  # fmt: skip
        process.channel.send(task.to_dict())
        reply = process.channel.recv(timeout=60)
    assert len(reply["paths"]) == 2

    from dressage.envs.trajectory import Trajectory

    assert Trajectory.load(tmp_path / "evaluator" / reply["paths"][0]).num_steps == 50
