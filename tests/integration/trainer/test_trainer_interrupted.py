"""A real trainer on SIGTERM: it stores the last boundary's snapshot at once, however long the update in progress."""

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


def assignment(*, steps, epochs=1, width=8, number=1, reward=REWARD, **more):
    task = pb.TrainAssignment(
        environment="InvertedPendulum-v5", reward_source=reward, steps_per_member=steps, evaluations=1,
        evaluation_episodes=2, evaluation_seed=7,
    )  # fmt: skip
    for name, value in more.items():
        setattr(task, name, value)
    member = task.members.add(id="a-s1", config="a", seed=1)
    values = dict(num_envs=4, num_steps=16, minibatch_size=8, epochs=epochs)
    for name, value in values.items():
        setattr(member.hyperparameters, name, value)
    member.hyperparameters.hidden_sizes.extend([width, width])
    return pb.Assignment(id=number, name=f"sessions/s1/iterations/1/assignments/{number}", cores=1, train=task)


def weights(folder):
    return (folder / "members/a-s1/policy/policy.safetensors").read_bytes()


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
        signalled = time.monotonic()
        trainer.send_signal(signal.SIGTERM)
        when, report = service.wait_for("checkpoint", timeout=60)
        # Long before the update in progress could have ended; a bound in seconds would test how busy the machine is.
        assert when - signalled < 0.6 * 64 / metrics["update_steps_per_second"]
        assert report.checkpoint.update == metrics["update"]
        assert trainer.wait(30) == 75
        assert not service.results()
    snapshot = checkpoints.read(tmp_path / "store" / report.checkpoint.key)
    assert snapshot.update == metrics["update"] and snapshot.facts["groups"][0]["members"][0]["name"] == "a-s1"
    assert report.checkpoint.key in (tmp_path / "store/checkpoints/index.json").read_text()


@pytest.mark.timeout(500)
def test_interrupted_with_pending_evaluations_it_ends_in_equal_ones(tmp_path):
    # Evaluations after every 2,500 steps, each longer than a signal takes to come.
    task = assignment(
        steps=10_000, checkpoint_seconds=0, evaluations=4, evaluation_episodes=150, checkpoint_episodes=10
    )

    def evaluations(service):
        return {
            item: report.evaluation for (_, item), report in service.accepted.items() if report.HasField("evaluation")
        }

    with FakeRunService(tmp_path / "whole", task) as service:
        assert service.start_trainer(tmp_path / "scratch").wait(300) == 0
        undisturbed = evaluations(service)
    store, pending = tmp_path / "store", []
    with FakeRunService(store, task) as service:
        for attempt, (number, code) in enumerate([(signal.SIGKILL, -9), (signal.SIGTERM, 75)], start=1):
            trainer = service.start_trainer(tmp_path / f"scratch-{attempt}", attempt=attempt)
            service.wait_for("policy", timeout=200)
            trainer.send_signal(number)
            assert trainer.wait(60) == code
            service.reports.queue.clear()
            pending.append(service.with_what_is_finished(task))
        assert service.start_trainer(tmp_path / "scratch-3", attempt=3).wait(300) == 0
        # On SIGTERM the last boundary is stored once more if it was stored just before.
        assert not [item for item in service.repeated if not item.startswith("checkpoint/")]
        resumed = evaluations(service)
    assert len(undisturbed) == 4 and all(one.pending_evaluations for one in pending) and pending[-1].checkpoint
    assert resumed == undisturbed
    assert weights(store) == weights(tmp_path / "whole")
    for item in undisturbed:
        for rollout in undisturbed[item].evaluation.rollouts:
            with np.load(store / rollout.artifact) as one, np.load(tmp_path / "whole" / rollout.artifact) as other:
                for name in one.files:
                    np.testing.assert_array_equal(one[name], other[name])


RAISING = REWARD.replace("1.0 + 0.01 * memory.steps", "np.ones(3)[int(memory.steps.max())] + memory.steps")


@pytest.mark.timeout(500)
def test_failed_code_is_a_result_and_the_lease_continues_unaffected(tmp_path):
    with FakeRunService(tmp_path / "alone", assignment(steps=512)) as service:
        assert service.start_trainer(tmp_path / "scratch-alone").wait(200) == 0
    store, tasks = tmp_path / "store", [
        assignment(steps=512, number=1), assignment(steps=512, number=2, reward=RAISING), assignment(steps=512, number=3),
    ]  # fmt: skip
    with FakeRunService(store, *tasks) as service:
        assert service.start_trainer(tmp_path / "scratch").wait(300) == 0
        results = service.results()
    assert results[2].failure.cause == pb.AssignmentFailure.CAUSE_GENERATED_CODE, results[2]
    assert [results[number].train.env_steps for number in (1, 3)] == [512, 512]
    # Bit for bit as in a lease of its own, whatever ran before.
    assert weights(store / "1") == weights(store / "3") == weights(tmp_path / "alone")
    assert not list((tmp_path / "scratch").glob("assignment-*"))
    assert not list((tmp_path / "scratch/sandboxes").iterdir())


@pytest.mark.slow  # the parts are tested apart: the deadline in a lease, and SIGTERM, which it equals
@pytest.mark.timeout(500)
def test_the_attempt_after_a_deadline_ends_with_the_same_weights(tmp_path):
    store = tmp_path / "store"
    with FakeRunService(store, assignment(steps=10**7, checkpoint_seconds=1e9)) as service:
        trainer = service.start_trainer(tmp_path / "first", "--deadline-seconds", "40")
        _, report = service.wait_for("checkpoint", timeout=120)
        assert trainer.wait(30) == 75
        assert report.checkpoint.update > 0
        # The steps only determine where training ends.
        task = assignment(steps=64 * (report.checkpoint.update + 5), checkpoint_seconds=1e9)
        service.assignments = [task]
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        assert trainer.wait(200) == 0
        assert service.results()[1].train.env_steps == 64 * 5
    with FakeRunService(tmp_path / "whole", task) as service:
        assert service.start_trainer(tmp_path / "scratch").wait(300) == 0
    assert weights(store) == weights(tmp_path / "whole")


@pytest.mark.timeout(400)
def test_a_cancelled_training_ends_and_the_next_assignment_is_done(tmp_path):
    tasks = [assignment(steps=10**8, number=1), assignment(steps=512, number=2)]
    with FakeRunService(tmp_path / "store", *tasks) as service:
        trainer = service.start_trainer(tmp_path / "scratch")
        while not service.wait_for("progress", timeout=200)[1].progress.members:
            pass
        service.cancel(1)
        assert trainer.wait(200) == 0
        assert service.results()[2].train.env_steps == 512
        late = [report for _, report in service.reports.queue if report.assignment == 1 and report.item]
    assert not late


@pytest.mark.timeout(300)
def test_a_damaged_checkpoint_in_the_store_gives_way_to_the_one_before(tmp_path):
    store = tmp_path / "store"
    with FakeRunService(store, assignment(steps=512, epochs=1, checkpoint_seconds=0)) as service:
        trainer = service.start_trainer(tmp_path / "first")
        service.wait_for("result")
        assert trainer.wait(120) == 0
    whole = weights(store)
    # Of those that waited for an upload the newest alone was stored.
    listed = json.loads((store / "checkpoints/index.json").read_text())
    newest, before = store / listed[0], int(Path(listed[1]).stem)
    assert newest.name == "8.safetensors"
    newest.write_bytes(newest.read_bytes()[:-9])
    task = assignment(steps=512, epochs=1, checkpoint_seconds=1e9)
    task.checkpoint = "checkpoints/8.safetensors"
    with FakeRunService(store, task) as service:
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        warnings = [service.wait_for("warning")[1].warning for _ in range(2)]
        _, report = service.wait_for("result")
        assert trainer.wait(120) == 0
    assert [warning.reason for warning in warnings] == ["CHECKPOINT_CORRUPT", "CHECKPOINT_FALLBACK"]
    assert f"update {before}" in warnings[1].message
    assert report.result.train.env_steps == 64 * (8 - before)
    assert weights(store) == whole
