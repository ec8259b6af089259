"""A real trainer whose training is ended early: the learner stops, and the chosen policy is evaluated and delivered."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")
sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))
sys.path.insert(0, str(Path(__file__).parent))

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.policies import load
from dressage.sandbox.capabilities import capabilities
from run_service import FakeRunService
from test_trainer_interrupted import assignment

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")
STEPS, MARKS = 2_000_000, 400


def ended_early(task: pb.Assignment, step: int) -> pb.Assignment:
    again = pb.Assignment()
    again.CopyFrom(task)
    again.train.final_steps["a-s1"] = step
    return again


def result(service: FakeRunService, step: int) -> pb.Report:
    """What was delivered: the final evaluation of the policy at this step."""
    items = [item for _, item in service.accepted]
    assert not [item for item in service.repeated if not item.startswith("checkpoint/")]
    assert f"final/a-s1/{step}" in items and service.accepted[1, "result"].result.HasField("train")
    member = service.accepted[1, "member/a-s1"].member
    assert member.env_step == step and not member.HasField("failure")
    policy = load(service.store / member.policy)
    assert policy.card["provenance"]["env_steps"] == step
    assert (service.store / member.policy / "policy.onnx").exists()
    evaluated = service.accepted[1, f"final/a-s1/{step}"]
    assert all((service.store / r.artifact).exists() for r in evaluated.evaluation.evaluation.rollouts)
    return evaluated


@pytest.mark.timeout(500)
def test_the_policy_of_an_earlier_mark_is_delivered_also_after_a_kill(tmp_path: Path) -> None:
    task = assignment(
        steps=STEPS, checkpoint_seconds=1e9, evaluations=MARKS, evaluation_episodes=9, checkpoint_episodes=2
    )
    with FakeRunService(tmp_path / "store", task) as service:
        trainer = service.start_trainer(tmp_path / "scratch")
        _, report = service.wait_for("evaluation", timeout=250)
        step = report.evaluation.evaluation.env_step
        service.wait_for("evaluation", timeout=100)  # the learner is further on when the decision arrives
        service.send(pb.WorkResponse(assignment=ended_early(task, step)))
        assert trainer.wait(120) == 0
        whole = result(service, step)
        assert len(whole.evaluation.evaluation.returns) == 9
        assert (service.store / "members/a-s1/metrics.jsonl").exists()
        reached = [r.progress.members[0].env_step for _, r in list(service.reports.queue) if r.progress.members]
        assert all(done < STEPS for done in reached)

    # Killed at once; the next attempt is given the decision with the assignment.
    with FakeRunService(tmp_path / "again", task) as service:
        trainer = service.start_trainer(tmp_path / "scratch-1")
        service.wait_for("evaluation", timeout=250)
        service.wait_for("evaluation", timeout=100)
        service.send(pb.WorkResponse(assignment=ended_early(task, step)))
        trainer.send_signal(signal.SIGKILL)
        trainer.wait(30)
        service.assignments = [ended_early(task, step)]
        assert service.start_trainer(tmp_path / "scratch-2", attempt=2).wait(200) == 0
        killed = result(service, step)
    assert list(killed.evaluation.evaluation.returns) == list(whole.evaluation.evaluation.returns)


@pytest.mark.timeout(300)
def test_a_decision_after_the_end_is_carried_out_as_well(tmp_path: Path) -> None:
    task = assignment(steps=4_000, checkpoint_seconds=1e9, evaluations=4, evaluation_episodes=3, checkpoint_episodes=2)
    with FakeRunService(tmp_path / "store", task, keep=True) as service:
        trainer = service.start_trainer(tmp_path / "scratch")
        _, report = service.wait_for("evaluation", timeout=200)
        step = report.evaluation.evaluation.env_step
        service.wait_for("result", timeout=100)
        # As the orchestrator does it: what came too late is not accepted.
        for item in ("result", "member/a-s1"):
            del service.accepted[1, item]
        service.send(pb.WorkResponse(assignment=ended_early(task, step)))
        service.wait_for("result", timeout=100)
        result(service, step)
        trainer.kill()


@pytest.mark.timeout(400)
def test_a_training_waits_and_continues_also_after_a_kill(tmp_path: Path) -> None:
    """What it delivers has the bits of a training that never waited, and of one whose trainer was killed while it waited."""
    update, expected, most = 64, 640, 1280
    values = {"checkpoint_seconds": 1e9, "evaluations": 2, "evaluation_episodes": 2, "checkpoint_episodes": 1}
    task = assignment(steps=expected, max_steps_per_member=most, **values)
    waits = pb.Assignment()
    waits.CopyFrom(task)
    waits.train.granted_steps = expected
    more = pb.Assignment()
    more.CopyFrom(task)
    more.train.granted_steps = most

    def delivered(service: FakeRunService) -> bytes:
        _, report = service.wait_for("result", timeout=200)
        assert report.result.HasField("train") and service.accepted[1, "member/a-s1"].member.env_step == most
        marks = [int(item.rpartition("/")[2]) for _, item in service.accepted if item.startswith("evaluation/")]
        assert sorted(marks) == [320, 640, 960, 1280] and all(mark % update == 0 for mark in marks)
        assert (service.store / "members/a-s1/metrics.jsonl").read_text().count("\n") == most // update
        return (service.store / "members/a-s1/policy/policy.safetensors").read_bytes()

    with FakeRunService(tmp_path / "straight", task) as service:
        service.start_trainer(tmp_path / "scratch-1")
        straight = delivered(service)
    with FakeRunService(tmp_path / "waits", waits) as service:
        trainer = service.start_trainer(tmp_path / "scratch-2")
        _, report = service.wait_for("checkpoint", timeout=250)  # what it stores before it waits
        assert report.checkpoint.env_step == expected and not service.results()
        service.send(pb.WorkResponse(assignment=more))
        assert delivered(service) == straight and trainer.wait(60) == 0
    with FakeRunService(tmp_path / "killed", waits) as service:
        trainer = service.start_trainer(tmp_path / "scratch-3")
        _, report = service.wait_for("checkpoint", timeout=250)
        service.send(pb.WorkResponse(assignment=more))
        trainer.send_signal(signal.SIGKILL)
        trainer.wait(30)
        again = pb.Assignment()
        again.CopyFrom(more)
        again.checkpoint = report.checkpoint.key
        again.finished_items.extend(item for _, item in service.accepted)
        service.assignments = [again]
        service.start_trainer(tmp_path / "scratch-4", attempt=2)
        assert delivered(service) == straight
