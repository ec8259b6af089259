"""A real trainer told to leave: the last boundary's snapshot is stored at once, however long the update under way."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")
sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.sandbox.capabilities import capabilities
from dressage_trainer import checkpoints
from run_service import FakeRunService

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

REWARD = '''
LATEX = "1"
TERMS = {"up": "stay up"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    """Grows with the episode."""
    memory.steps = memory.steps + 1.0
    return {"up": 1.0 + 0.01 * memory.steps}
'''


def assignment(*, steps, epochs, width=8, checkpoint="", **more):
    task = pb.TrainAssignment(
        environment="InvertedPendulum-v5", reward_source=REWARD, steps_per_member=steps, evaluations=1,
        evaluation_episodes=2, evaluation_seed=7, cores=1, checkpoint=checkpoint, **more,
    )  # fmt: skip
    member = task.members.add(id="a-s1", config="a", seed=1)
    values = dict(num_envs=4, num_steps=16, minibatch_size=8, epochs=epochs)
    for name, value in values.items():
        setattr(member.hyperparameters, name, value)
    member.hyperparameters.hidden_sizes.extend([width, width])
    return pb.Assignment(id=1, train=task)


@pytest.mark.timeout(400)
def test_sigterm_in_a_long_update_stores_the_boundary_before_it(tmp_path):
    # 320 gradient steps of 768 x 768 for an update: several seconds on any processor.
    task = assignment(steps=10**6, epochs=40, width=768, checkpoint_seconds=1e9)
    with FakeRunService(tmp_path / "store", task) as service:
        trainer = service.start_trainer(tmp_path / "scratch")
        while True:
            _, report = service.wait_for("progress", timeout=200)
            if report.progress.members:
                break
        metrics = report.progress.members[0].metrics
        time.sleep(0.2)  # into the next update
        told = time.monotonic()
        trainer.send_signal(signal.SIGTERM)
        when, report = service.wait_for("checkpoint", timeout=60)
        # Long before the update under way could have ended; a bound in seconds would test how busy the machine is.
        assert when - told < 0.6 * 64 / metrics["update_steps_per_second"]
        assert report.checkpoint.update == metrics["update"]
        assert trainer.wait(30) == 75
    snapshot = checkpoints.read(tmp_path / "store" / report.checkpoint.key)
    assert snapshot.update == metrics["update"] and snapshot.facts["groups"][0]["members"][0]["name"] == "a-s1"
    assert report.checkpoint.key in (tmp_path / "store/checkpoints/index.json").read_text()


@pytest.mark.timeout(400)
def test_sigterm_in_an_evaluation_stores_the_boundary_and_the_next_attempt_evaluates_first(tmp_path):
    def task(checkpoint=""):
        made = assignment(steps=10**6, epochs=1, checkpoint_seconds=1e9, checkpoint=checkpoint)
        # After every 10,000 steps; starting an evaluator alone takes longer than SIGTERM to come.
        made.train.evaluations, made.train.evaluation_episodes = 100, 20
        return made

    store = tmp_path / "store"
    with FakeRunService(store, task()) as service:
        trainer = service.start_trainer(tmp_path / "first")
        while True:
            _, report = service.wait_for("progress", timeout=200)
            if report.progress.members and report.progress.members[0].env_step >= 10_048:
                break
        trainer.send_signal(signal.SIGTERM)
        _, report = service.wait_for("checkpoint", timeout=60)
        assert trainer.wait(30) == 75 and "evaluation" not in [r.WhichOneof("body") for _, r in service.reports.queue]
        key = report.checkpoint.key
    assert (store / key).with_suffix(".evaluations").is_file()
    with FakeRunService(store, task(checkpoint=key)) as service:
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        _, first = service.wait_for("evaluation", timeout=300)
        trainer.kill()
    assert first.evaluation.evaluation.env_step == 10_048 < report.checkpoint.env_step


@pytest.mark.timeout(300)
def test_a_damaged_checkpoint_in_the_store_gives_way_to_the_one_before(tmp_path):
    store = tmp_path / "store"
    with FakeRunService(store, assignment(steps=512, epochs=1, checkpoint_seconds=0)) as service:
        trainer = service.start_trainer(tmp_path / "first")
        service.wait_for("done")
        assert trainer.wait(120) == 0
    weights = (store / "members/a-s1/policy/policy.safetensors").read_bytes()
    # Of those that waited for an upload the newest alone was stored.
    listed = json.loads((store / "checkpoints/index.json").read_text())
    newest, before = store / listed[0], int(Path(listed[1]).stem)
    assert newest.name == "8.safetensors"
    newest.write_bytes(newest.read_bytes()[:-9])
    task = assignment(steps=512, epochs=1, checkpoint="checkpoints/8.safetensors", checkpoint_seconds=1e9)
    with FakeRunService(store, task) as service:
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        warnings = [service.wait_for("warning")[1].warning for _ in range(2)]
        _, done = service.wait_for("done")
        assert trainer.wait(120) == 0
    assert [warning.reason for warning in warnings] == ["CHECKPOINT_CORRUPT", "CHECKPOINT_FALLBACK"]
    assert f"update {before}" in warnings[1].message
    assert done.done.env_steps == 64 * (8 - before)
    np.testing.assert_equal((store / "members/a-s1/policy/policy.safetensors").read_bytes(), weights)
