"""kill -9 at random moments, again and again: the final weights are those of an undisturbed run. And memory bounds."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs import REWARD_ENVIRONMENT_IDS
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import ChannelClosed
from dressage.sandbox.process import SandboxProcess
from dressage_trainer import checkpoints
from dressage_trainer.assignments.learner_process import exit_result
from dressage_trainer.messages import DoneMessage, MemberTask, TrainSpec, parse
from dressage_trainer.speed.threads import learner_environment

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

REWARD = '''
LATEX = "1"
TERMS = {"stock": "time", "late": "depends on the memory"}
MEMORY = {"steps": 0.0, "peak": 0.0}

def reward(state, action, next_state, memory, np):
    """Depends on the memory, so that a resume without it would differ."""
    memory.steps = memory.steps + 1.0
    size = np.square(action).sum(-1) if action.ndim == 2 else 1.0 * action
    gain = np.maximum(size - memory.peak, 0.0)
    memory.peak = np.maximum(memory.peak, size)
    return {"stock": next_state.time - 0.1 * size, "late": 0.01 * memory.steps + gain}
'''
SMALL = {"num_envs": 4, "num_steps": 32, "minibatch_size": 32, "epochs": 2, "hidden_sizes": [16, 16]}
MEMBERS = (MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "entropy_coef": 0.01, "discount": 0.9}, 2))


def start(scratch, *, memory_bytes=2 << 30):
    scratch.mkdir(exist_ok=True)
    return SandboxProcess.start(
        "dressage_trainer.learner:learn", limits=Limits(memory_bytes=memory_bytes, wall_seconds=400), scratch=scratch,
        threads=2, env=learner_environment(compilation_cache=scratch / "compiled"),
    )  # fmt: skip


def spec(environment, steps, **values):
    return TrainSpec(
        environment=environment, reward_source=REWARD, members=MEMBERS, steps_per_member=steps, threads=2, **values
    ).to_dict()


def train(scratch, request, *, kill_after=None):
    """The last message; None where it was killed ``kill_after`` seconds after its first checkpoint or progress."""
    with start(scratch) as process:
        process.channel.send(request)
        begun = None
        while True:
            try:
                message = parse(process.channel.recv(timeout=180))
            except ChannelClosed:
                return None
            if message.type in ("done", "failed"):
                assert isinstance(message, DoneMessage), message
                return message
            if kill_after is not None and message.type == "checkpoint":
                begun = begun or time.monotonic()
                if time.monotonic() - begun >= kill_after:
                    process.kill()
                    return None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("environment", REWARD_ENVIRONMENT_IDS)
def test_killed_at_random_moments_it_ends_with_the_same_weights(tmp_path, environment):
    steps = 40 * 128
    whole = train(tmp_path / "run", spec(environment, steps, checkpoint_seconds=1e9))
    folder, rng, kills, resume = tmp_path / "run/checkpoints", np.random.default_rng(5), 0, {}
    while True:
        last = train(
            tmp_path / "run",
            spec(environment, steps, checkpoint_seconds=0, **resume),
            kill_after=rng.uniform(0.0, 0.4) if kills < 4 else None,
        )
        if last is not None:
            break
        kills += 1
        files = sorted(folder.glob("*.safetensors"), key=lambda path: -int(path.stem))
        names = [f"checkpoints/{path.name}" for path in files]
        resume = {"resume": names[0], "resume_earlier": tuple(names[1:])}
    assert kills >= 2
    for a, b in zip(whole.policies, last.policies, strict=True):
        for name, value in a.weights.items():
            np.testing.assert_array_equal(value, b.weights[name], err_msg=f"{a.member} {name}")


GREEDY = '''
LATEX = "1"
TERMS = {"speed": "forward velocity"}

def reward(state, action, next_state, memory, np):
    """Takes 760 MiB in the 100th step, when three updates are done, and keeps them."""
    if float(np.max(next_state.time)) > 4.99:
        taken, turns = np.ones(100_000_000), 0.0
        while turns < 1e4:
            turns = turns + taken.sum() / 1e8
    return {"speed": next_state.x_velocity}
'''


@pytest.mark.timeout(200)
def test_a_learner_out_of_memory_leaves_whole_checkpoints_and_an_error(tmp_path):
    with start(tmp_path / "run", memory_bytes=700 << 20) as process:
        process.channel.send({**spec("HalfCheetah-v5", 10**6, checkpoint_seconds=0), "reward_source": GREEDY})
        ended = process.wait(150)
    failure = exit_result(ended).failure
    assert failure.cause == pb.AssignmentFailure.CAUSE_GENERATED_CODE
    assert failure.failure.reason == "LEARNER_OUT_OF_MEMORY" and "700 MiB" in failure.failure.message
    left = sorted((tmp_path / "run/checkpoints").iterdir())
    # No partial file, and a resume can read them.
    assert [path.name for path in left] == ["2.safetensors", "3.safetensors"]
    assert [checkpoints.read(path).update for path in left] == [2, 3]
