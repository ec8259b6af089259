"""A reward that stops returning after hundreds of steps: the training ends, and its result names the reward."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.sandbox.pipe import ChannelClosed
from dressage.sandbox.process import SandboxProcess
from dressage_trainer.assignments.learner_process import LEARNER, exit_result
from dressage_trainer.messages import MemberTask, ProgressMessage, TrainSpec, parse
from dressage_trainer.speed.threads import learner_environment

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

REWARD = """
LATEX = "1"
TERMS = {"up": "stay up"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    memory.steps = memory.steps + 1.0
    late = float(np.max(memory.steps)) > 5
    n = sum(range(10**15)) if late else 0
    return {"up": 0.0 * next_state.time + 1.0 + n}
"""
MEMBER = MemberTask("a", {"num_envs": 4, "num_steps": 64, "minibatch_size": 64, "epochs": 1, "hidden_sizes": [8]}, 1)


def test_a_reward_that_holds_the_lock_is_blamed(tmp_path):
    limits = replace(LEARNER_LIMITS, call_seconds=2.0)  # the same rule with a lower ceiling, so that the test is short
    spec = TrainSpec(
        environment="InvertedPendulum-v5", reward_source=REWARD, members=(MEMBER,), steps_per_member=256 * 8, threads=1
    )
    environment = learner_environment(compilation_cache=None)
    with SandboxProcess.start(LEARNER, limits=limits, scratch=tmp_path, threads=1, env=environment) as process:
        process.channel.send(spec.to_dict())
        with contextlib.suppress(ChannelClosed):
            while True:
                assert isinstance(parse(process.channel.recv(timeout=120)), ProgressMessage)
        result = exit_result(process.wait(10.0))
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_GENERATED_CODE
    assert result.failure.failure.reason == "REWARD_STALLED"
    assert "line 9" in result.failure.failure.message, result
