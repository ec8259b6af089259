"""Trainings with 16 worlds on MuJoCo Warp's CPU device, sandboxed: a session, a killed learner, a trainer on SIGTERM.

The kernels are compiled in the first test that needs them, which takes many minutes on two cores. They stay in the user's
folder of compiled code, where trainers read them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.policies import load as load_policy
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.sandbox.process import SandboxProcess
from dressage_trainer.lease.compiled import (
    WARP,
    CompiledCache,
    default_folder,
    place_warp_kernels,
    warp_kernels_of,
)
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.messages import CheckpointMessage, DoneMessage, MemberTask, TrainSpec, parse
from dressage_trainer.speed.threads import learner_environment

from tests.fakes.run_service import FakeRunService

ENV, WORLDS = "HalfCheetah-v5", 16
SHAPE = {"num_envs": WORLDS // 2, "num_steps": 8, "minibatch_size": 32, "epochs": 2, "hidden_sizes": [16]}
REWARD = (Path(__file__).parents[3] / "examples/rewards/run_forward.py").read_text()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="the extra `warp` is not installed"),
    pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp"),
]


def request(**values):
    members = (MemberTask("a", SHAPE, 1), MemberTask("b", SHAPE, 2))
    return TrainSpec(environment=ENV, reward_source=REWARD, members=members, on_device=True, threads=2, **values)


def start(scratch, kernels):
    scratch.mkdir(exist_ok=True)
    place_warp_kernels(kernels, scratch)
    environment = {**learner_environment(), "WARP_CACHE_PATH": WARP.folder}
    return SandboxProcess.start(
        "dressage_trainer.learner:learn", limits=LEARNER_LIMITS, scratch=scratch, threads=2, env=environment
    )


def messages(process):
    while True:
        message = parse(process.channel.recv(timeout=1800))
        yield message
        if message.type in ("done", "failed"):
            return


def train(scratch, kernels, **values):
    with start(scratch, kernels) as process:
        process.channel.send(request(**values).to_dict())
        last = list(messages(process))[-1]
    assert isinstance(last, DoneMessage), last
    return last


@pytest.fixture
def kernels(tmp_path):
    """The compiled kernels of the environment, in the user's folder."""
    cache = CompiledCache(default_folder(os.environ), Sandboxes(tmp_path / "compiling"))
    kernels = cache.prepare(warp_kernels_of(request()))
    assert kernels is not None
    return kernels


def test_a_killed_learner_on_a_device_resumes_to_the_same_weights(tmp_path, kernels):
    assert CompiledCache(default_folder(os.environ)).find(warp_kernels_of(request())) == kernels
    whole = train(tmp_path / "run", kernels, steps_per_member=512, checkpoint_seconds=1e9)
    with start(tmp_path / "run", kernels) as process:
        process.channel.send(request(steps_per_member=512, checkpoint_seconds=0).to_dict())
        checkpoint = next(m for m in messages(process) if isinstance(m, CheckpointMessage) and m.update >= 3)
        process.kill()
    resumed = train(
        tmp_path / "run", kernels, steps_per_member=512, checkpoint_seconds=1e9, resume=str(checkpoint.path)
    )
    for one, other in zip(whole.policies, resumed.policies, strict=True):
        for name, value in one.weights.items():
            np.testing.assert_array_equal(value, other.weights[name], err_msg=name)


def assignment(steps):
    task = pb.TrainAssignment(
        environment=ENV, reward_source=REWARD, steps_per_member=steps, evaluations=1, evaluation_episodes=1,
        evaluation_seed=7, checkpoint_seconds=1e9, on_device=True,
    )  # fmt: skip
    for seed in (1, 2):
        member = task.members.add(id=f"a-s{seed}", config="a", seed=seed)
        for name, value in SHAPE.items():
            if name == "hidden_sizes":
                member.hyperparameters.hidden_sizes.extend(value)
            else:
                setattr(member.hyperparameters, name, value)
    return pb.Assignment(id=1, name="sessions/s1/iterations/1/assignments/train", cores=2, train=task)


def test_sigterm_of_a_training_on_a_device_resumes_to_the_same_bits(tmp_path, kernels):
    placed = tmp_path / "compiled" / WARP.folder / kernels.name  # where the trainers below look
    shutil.copytree(kernels, placed)
    for folder in (placed, placed.parent, placed.parent.parent):
        folder.chmod(0o700)
    store, step = tmp_path / "store", SHAPE["num_envs"] * SHAPE["num_steps"]
    with FakeRunService(store, assignment(10**7)) as service:
        trainer = service.start_trainer(tmp_path / "first")
        while not service.wait_for("progress", timeout=1800)[1].progress.members:
            pass
        trainer.send_signal(signal.SIGTERM)
        _, report = service.wait_for("checkpoint", timeout=60)
        assert trainer.wait(60) == 75 and not service.results()
        update = report.checkpoint.update
        assert update > 0
        # The steps only determine where training ends.
        task = assignment(step * (update + 3))
        service.assignments = [task]
        assert service.start_trainer(tmp_path / "second", attempt=2).wait(1800) == 0
        assert service.results()[1].train.env_steps == 2 * step * 3
    with FakeRunService(tmp_path / "whole", task) as service:
        assert service.start_trainer(tmp_path / "scratch").wait(1800) == 0
    for seed in (1, 2):
        policy = f"members/a-s{seed}/policy/policy.safetensors"
        assert (store / policy).read_bytes() == (tmp_path / "whole" / policy).read_bytes()


def test_a_whole_session_of_16_worlds_ends_in_a_bundle_and_a_judgment(tmp_path):
    config = f"tiny:num_envs={WORLDS},num_steps=16,minibatch_size=64,epochs=2"
    command = [
        Path(sys.executable).with_name("dressage"), "run", "run forward fast", "--env", ENV, "--pool", "gpu",
        "--config", config, "--seeds", "1", "--steps", "512", "--iterations", "1", "--no-early-stop",
        "--data-dir", tmp_path / "data", "--yes", "--json",
    ]  # fmt: skip
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=5000, check=False)
    assert ended.returncode in (0, 3), ended.stdout[-3000:] + ended.stderr[-3000:]  # 3: trained, goal not reached
    artifacts = tmp_path / "data/artifacts/sessions"
    spec = json.loads(next(artifacts.glob("*/iterations/1/assignments/train/spec.json")).read_text())
    assert spec["train"]["on_device"] is True
    judgment = json.loads(next(artifacts.glob("*/iterations/1/judgment.json")).read_text())
    assert 0.0 <= judgment.get("score", 0.0) <= 1.0
    bundle = next(artifacts.glob("*/iterations/1/assignments/train/members/*/policy"))
    policy = load_policy(bundle)
    assert policy.act(np.zeros(17)).shape == (6,)
    card = json.loads((bundle / "card.json").read_text())
    assert card["provenance"]["simulation"]["simulator"].startswith("MuJoCo Warp")
