"""The supervisor's side of a training: which messages it accepts, in which order it stores, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.artifacts.store import Grant
from dressage.contracts import RewardError
from dressage.errors import ResourceExhausted
from dressage.sandbox.process import Exit
from dressage_trainer.assignments.delivery import StagedCheckpoint
from dressage_trainer.assignments.learner_process import exit_result
from dressage_trainer.evaluation.evaluator_pool import EVALUATOR
from dressage_trainer.messages import (
    CheckpointMessage,
    DoneMessage,
    EvaluateMessage,
    FailedMessage,
    MemberState,
    MemberStoppedMessage,
    Message,
    ProgressMessage,
    WarningMessage,
)

from tests.unit.trainer.supervised import (
    DONE,
    STEPS,
    Endless,
    Learner,
    Pool,
    checkpoint,
    finish,
    new_assignment,
    new_training,
    policy,
    resumed,
    until,
)

Failure = pb.AssignmentFailure


def assert_blamed(result: Any, part: str) -> None:
    """The result blames generated code, for this."""
    assert result.failure.cause == Failure.CAUSE_GENERATED_CODE and part in result.failure.failure.message, result
    assert result.failure.failure.reason == "SANDBOX_OUTPUT_REFUSED"


# -- what a learner may send


@pytest.mark.parametrize(
    "message",
    [
        EvaluateMessage(policies=(policy("a-s1"), policy("../../victim"))),
        DoneMessage(policies=(policy("../../victim"),)),
        ProgressMessage(members=(MemberState("b", 1, {}),)),
        WarningMessage(reason="X", member="b"),
        MemberStoppedMessage(member="/etc"),
    ],
    ids=lambda message: message.type,
)
async def test_a_learner_may_not_name_members_that_are_not_its_own(tmp_path: Path, message: Message):
    training, work, _ = new_training(tmp_path, Endless(message))
    assert_blamed(await finish(training.run()), "no member of its run")
    assert not work.reports and training._context.sandboxes.learner.killed  # type: ignore[attr-defined]


async def test_a_learner_may_not_send_unlimited_policies(tmp_path: Path):
    learner = Endless(*[EvaluateMessage(policies=(policy(step=step),)) for step in range(1, 30)])
    training, work, _ = new_training(tmp_path, learner)
    assert_blamed(await finish(training.run()), "more policies than there are evaluations")
    assert len([item for item in work.items if item.startswith("policy/")]) <= 17


async def test_a_checkpoint_named_like_its_records_is_staged(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    (sandbox / "members/a-s1").mkdir(parents=True)
    (sandbox / "members/a-s1/metrics.jsonl").write_text("{}\n")
    (sandbox / "checkpoints/members").write_bytes(b"7")
    message = CheckpointMessage(path="checkpoints/members", update=7, env_step=7, requested=False)
    await training._handle(message, sandbox)
    (staged,) = training._outbox._waiting
    assert not work.reports and isinstance(staged, StagedCheckpoint) and staged.path.read_bytes() == b"7"


async def test_a_checkpoint_that_does_not_fit_on_the_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dressage_trainer.assignments.delivery.copy_from_sandbox", full)
    training, work, sandbox = new_training(tmp_path)
    await training._handle(checkpoint(sandbox, 8), sandbox)
    (report,) = work.reports
    assert report.warning.reason == "CHECKPOINT_FAILED" and "No space left" in report.warning.message
    assert report.item == "warning/1"
    assert not list((tmp_path / "scratch/staging/staged").glob("*"))


async def test_numbers_of_warnings_continue_those_of_earlier_attempts(tmp_path: Path):
    assignment = new_assignment({"a-s1": None})
    assignment.finished_items.extend(["warning/1", "warning/2"])
    training, work, _ = new_training(tmp_path, Learner(WarningMessage("R", "m"), DONE), assignment=assignment)
    assert (await finish(training.run())).HasField("train")
    assert "warning/3" in work.items


async def test_spare_processes_are_those_that_the_same_training_starts(tmp_path: Path):
    training, _, _ = new_training(tmp_path, Learner(DONE))
    assert (await finish(training.run())).HasField("train")
    sandboxes: Any = training._context.sandboxes
    spares = sandboxes.spares["train"]()
    assert [spec for spec in spares if spec in sandboxes.started] == sandboxes.started and len(sandboxes.started) == 1
    assert spares == {sandboxes.started[0]: 1, EVALUATOR: 1}


# -- the order of what is stored


async def test_a_training_stores_evaluates_and_delivers_each_item_once(tmp_path: Path):
    learner = Learner(
        EvaluateMessage(policies=(policy(step=64),)),
        EvaluateMessage(policies=(policy(step=64),)),
        EvaluateMessage(policies=(policy(step=STEPS),)),  # the last update passes a mark, too
        DONE,
    )
    pool = Pool()
    training, work, _ = new_training(tmp_path, learner, pool)
    result = await finish(training.run())
    assert result.train.env_steps == STEPS
    items = [f"{kind}/a-s1/{step}" for step in (64, STEPS) for kind in ("policy", "evaluation")]
    assert sorted(work.items) == sorted([*items, "member/a-s1"])
    assert pool.requests == [("a-s1", 64, (100, 101)), ("a-s1", STEPS, (100, 101, 102, 103))]
    for report in work.reports:
        if report.HasField("policy"):
            assert (work.store / report.policy.policy.bundle / "policy.safetensors").is_file()
    last = work.reports[-1].member
    assert {path.name for path in (work.store / last.policy).iterdir()} == {
        "policy.safetensors", "card.json", "policy.onnx",
    }  # fmt: skip
    assert not (tmp_path / "scratch/staging/members/a-s1/policies/64").exists()


async def test_policies_are_stored_before_a_later_checkpoint(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    for message in (
        checkpoint(sandbox, 1),
        EvaluateMessage(policies=(policy(step=64),)),
        checkpoint(sandbox, 2),
        EvaluateMessage(policies=(policy(step=128),)),
    ):
        await training._handle(message, sandbox)
    uploads = asyncio.ensure_future(training._outbox.run())
    await finish(training._outbox.flush())
    uploads.cancel()
    assert work.stored() == [2]
    assert work.items.index("policy/a-s1/64") < work.items.index("checkpoint/checkpoints/2.safetensors")
    assert not list((tmp_path / "scratch/staging/staged").iterdir())


async def test_checkpoints_are_stored_however_far_evaluations_lag(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path, pool=Pool(asyncio.Event()))
    tasks = [asyncio.ensure_future(task) for task in (training._outbox.run(), training._evaluations.run())]
    for update in range(1, 13):
        for message in (EvaluateMessage(policies=(policy(step=64 * update),)), checkpoint(sandbox, update)):
            await training._handle(message, sandbox)
        await finish(training._outbox.flush())
    for task in tasks:
        task.cancel()
    assert work.stored() == list(range(1, 13))
    assert not any(item.startswith("evaluation/") for item in work.items)


async def test_checkpoints_that_wait_for_the_store_do_not_fill_the_disk(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    store_is_back = asyncio.Event()
    grants = work.grants

    async def unavailable(*keys: Any, **more: Any) -> dict[str, Grant]:
        await store_is_back.wait()
        return await grants(*keys, **more)

    work.grants = unavailable  # type: ignore[method-assign]
    uploads = asyncio.ensure_future(training._outbox.run())
    for update in range(1, 9):
        await training._handle(checkpoint(sandbox, update), sandbox)
        await asyncio.sleep(0.01)
    assert len(list((tmp_path / "scratch/staging/staged").iterdir())) == 2
    store_is_back.set()
    await finish(training._outbox.flush())
    uploads.cancel()
    assert work.stored() == [1, 8]
    listed = (work.store / "checkpoints/index.json").read_text()
    assert listed == '["checkpoints/8.safetensors", "checkpoints/1.safetensors"]'


# -- SIGTERM


async def test_sigterm_leaves_pending_evaluations_to_the_next_attempt(tmp_path: Path):
    whole, _, _ = new_training(
        tmp_path / "whole", Learner(*[EvaluateMessage(policies=(policy(step=s),)) for s in (64, 128)], DONE)
    )
    await finish(whole.run())

    held = Pool(asyncio.Event())
    learner = Endless(*[EvaluateMessage(policies=(policy(step=step),)) for step in (64, 128)])
    first, work, sandbox = new_training(tmp_path / "first", learner, held)
    learner._answer = [checkpoint(sandbox, 5, requested=True).to_dict()]
    running = asyncio.ensure_future(first.run())
    await until(lambda: "policy/a-s1/128" in work.items)
    first._context.terminate.set()
    assert await finish(running) is None and learner.killed
    assert work.stored() == [5] and not any(item.startswith("evaluation/") for item in work.items)

    assignment = resumed(first._context.assignment, work.reports)
    assert len(assignment.pending_evaluations) == 2
    pool, again = Pool(), Learner(DONE)
    second, more, _ = new_training(tmp_path / "second", again, pool, store=work.store, assignment=assignment)
    assert (await finish(second.run())).HasField("train")
    assert again.received[0]["resume"] == "resume-0.safetensors" and again.received[0]["resume_earlier"] == []
    assert sorted(pool.steps) == [64, 128, STEPS]

    def evaluations(reports: list[pb.Report]) -> dict[str, pb.EvaluationReport]:
        return {report.item: report.evaluation for report in reports if report.HasField("evaluation")}

    undisturbed = evaluations(whole._context.work.reports)  # type: ignore[attr-defined]
    assert evaluations(more.reports) == undisturbed and len(undisturbed) == 3


async def test_a_policy_that_the_store_lost_is_a_warning(tmp_path: Path):
    assignment = new_assignment({"a-s1": None})
    assignment.pending_evaluations.add(member="a-s1", env_step=64, bundle="members/a-s1/policies/64")
    training, work, _ = new_training(tmp_path, Learner(DONE), assignment=assignment)
    assert (await finish(training.run())).HasField("train")
    assert [r.warning.reason for r in work.reports if r.HasField("warning")] == ["POLICY_MISSING"]


@pytest.mark.parametrize("evaluated", [False, True])
async def test_with_all_last_policies_in_the_store_no_learner_is_started(tmp_path: Path, evaluated: bool):
    first, work, _ = new_training(tmp_path / "first", Learner(DONE), Pool(asyncio.Event()))
    running = asyncio.ensure_future(first.run())
    await until(lambda: f"policy/a-s1/{STEPS}" in work.items)
    first._context.terminate.set()
    assert await finish(running) is None
    assignment = resumed(first._context.assignment, work.reports)
    if evaluated:
        assignment.finished_items.append(f"evaluation/a-s1/{STEPS}")
        assignment.ClearField("pending_evaluations")
    pool = Pool()
    second, more, _ = new_training(tmp_path / "second", None, pool, store=work.store, assignment=assignment)
    assert (await finish(second.run())).train.env_steps == 0
    assert pool.steps == ([] if evaluated else [STEPS])
    assert more.items == ([] if evaluated else [f"evaluation/a-s1/{STEPS}"]) + ["member/a-s1"]


async def test_a_member_that_was_delivered_is_not_delivered_again(tmp_path: Path):
    assignment = new_assignment({"a-s1": None, "b-s1": None})
    assignment.finished_items.extend([f"policy/a-s1/{STEPS}", f"evaluation/a-s1/{STEPS}", "member/a-s1"])
    pool = Pool()
    done = DoneMessage(STEPS, (policy("a-s1", STEPS), policy("b-s1", STEPS)))
    training, work, _ = new_training(tmp_path, Learner(done), pool, assignment=assignment)
    assert (await finish(training.run())).HasField("train")
    assert [member for member, _, _ in pool.requests] == ["b-s1"]
    assert not any("a-s1" in item for item in work.items)


async def test_a_checkpoint_cannot_answer_a_request_before_it_is_made(tmp_path: Path):
    training, _, sandbox = new_training(tmp_path)
    for update in (1, 2, 3):
        await training._handle(checkpoint(sandbox, update, requested=True), sandbox)
    assert not training._snapshot_answered.is_set()
    assert len(list((tmp_path / "scratch/staging/staged").iterdir())) == 1
    training._snapshot_requested = True
    await training._handle(checkpoint(sandbox, 4, requested=True), sandbox)
    assert training._snapshot_answered.is_set()


# -- results


def test_a_sandbox_limit_blames_the_code_and_a_crash_the_machine():
    bound = exit_result(Exit("killed", -signal.SIGKILL, "it filled its scratch folder", "", bound=True))
    assert bound.failure.cause == Failure.CAUSE_GENERATED_CODE and bound.failure.failure.reason == "SANDBOX_LIMIT"
    for number in (signal.SIGSEGV, signal.SIGKILL):
        crashed = exit_result(Exit("killed", -number, "it was ended", ""))
        assert crashed.failure.cause == Failure.CAUSE_INFRASTRUCTURE
    killed = exit_result(Exit("killed", -signal.SIGKILL, "it was ended by SIGKILL", "")).failure
    assert (killed.failure.reason, killed.cause) == ("OOM_KILLED", Failure.CAUSE_INFRASTRUCTURE)
    assert "resources.limits.memory" in killed.failure.remedy
    assert exit_result(None).failure.cause == Failure.CAUSE_INFRASTRUCTURE


def test_out_of_memory_blames_the_code_except_with_replay_buffers():
    ended = Exit("memory", -signal.SIGKILL, "it used more than 8 GiB", "", bound=True)
    assert exit_result(ended, "ppo").failure.cause == Failure.CAUSE_GENERATED_CODE
    of_sac = exit_result(ended, "sac").failure
    assert of_sac.cause == Failure.CAUSE_ASSIGNMENT and "fewer members or steps" in of_sac.failure.message


@pytest.mark.parametrize(
    ("reason", "generated_code", "cause"),
    [
        ("REWARD_ERROR", True, Failure.CAUSE_GENERATED_CODE),
        ("OUT_OF_DISK", False, Failure.CAUSE_INFRASTRUCTURE),
        ("CHECKPOINT_MISMATCH", False, Failure.CAUSE_ASSIGNMENT),
    ],
)
async def test_a_failed_learner_names_the_cause(tmp_path: Path, reason: str, generated_code: bool, cause: Any):
    training, _, _ = new_training(tmp_path, Learner(FailedMessage(reason, "m", generated_code=generated_code)))
    result = await finish(training.run())
    assert (result.failure.cause, result.failure.failure.reason) == (cause, reason)


BY_REWARD = session_pb2.Failure(reason="REWARD_NOT_FINITE", message="the term cost is not finite")
BY_GRADIENT = session_pb2.Failure(reason="GRADIENT_NOT_FINITE", message="the gradient is not finite")


@pytest.mark.parametrize("last", ["evaluation", "learner"])
async def test_training_ends_once_all_members_are_stopped(tmp_path: Path, last: str):
    evaluation = EvaluateMessage(policies=(policy("a-s1"),))
    stopped = MemberStoppedMessage("a-s2", 64, "GRADIENT_NOT_FINITE", "broken")
    learner = Endless(*((stopped, evaluation) if last == "evaluation" else (evaluation, stopped)))
    pool = Pool(**{"a-s1": RewardError("finite", "the term cost is not finite")})
    training, work, sandbox = new_training(tmp_path, learner, pool, members={"a-s1": None, "a-s2": None})
    (sandbox / "members/a-s1").mkdir(parents=True)
    (sandbox / "members/a-s1/metrics.jsonl").write_text("{}\n")
    result = await finish(training.run())
    assert result.failure.failure.reason == "ALL_MEMBERS_STOPPED"
    # The reward's failure in an evaluation still counts after the learner stops the other member.
    assert result.failure.cause == Failure.CAUSE_GENERATED_CODE and "the term cost" in result.failure.failure.message
    assert learner.killed and (work.store / "members/a-s1/metrics.jsonl").is_file()


async def test_a_reward_that_fails_in_an_evaluation_stops_its_member_once(tmp_path: Path):
    error = RewardError("finite", "the term cost is not finite", seen="-inf at step 17 of episode 3")
    pool = Pool(**{"a-s1": error})
    messages = [EvaluateMessage(policies=(policy("a-s1", step), policy("b-s1", step))) for step in (64, 128)]
    done = DoneMessage(STEPS, (policy("a-s1", STEPS), policy("b-s1", STEPS)))
    training, work, _ = new_training(
        tmp_path, Learner(*messages, done), pool, members={"a-s1": None, "b-s1": None}
    )  # fmt: skip
    assert (await finish(training.run())).HasField("train")
    assert [member for member, _, _ in pool.requests].count("a-s1") == 1
    (report,) = [report for report in work.reports if report.item == "member/a-s1"]
    assert report.member.failure.reason == "REWARD_NOT_FINITE" and report.member.env_step == 64
    assert "the term cost" in report.member.failure.message and "episode 3" in report.member.failure.message


async def test_a_reward_that_fails_in_the_last_evaluation_delivers_nothing(tmp_path: Path):
    training, work, _ = new_training(tmp_path, Learner(DONE), Pool(**{"a-s1": RewardError("finite", "no")}))
    result = await finish(training.run())
    assert result.failure.cause == Failure.CAUSE_GENERATED_CODE
    (report,) = [report for report in work.reports if report.HasField("member")]
    assert not report.member.policy and report.member.failure.reason == "REWARD_NOT_FINITE"


async def test_a_member_that_an_earlier_attempt_stopped_stays_so(tmp_path: Path):
    pool = Pool()
    # The learner resumes from an earlier checkpoint, and the member fails again.
    again = MemberStoppedMessage(member="a-s1", env_step=64, reason="R", message="m")
    evaluation = EvaluateMessage(policies=(policy("a-s1"), policy("b-s1")))
    done = DoneMessage(STEPS, (policy("b-s1", STEPS),))
    learner = Learner(again, evaluation, done)
    training, work, _ = new_training(tmp_path, learner, pool, members={"a-s1": BY_REWARD, "b-s1": None})
    assert (await finish(training.run())).HasField("train")
    assert {member for member, _, _ in pool.requests} == {"b-s1"}
    assert not any("a-s1" in item for item in work.items)
    assert training._stopped["a-s1"] == BY_REWARD


@pytest.mark.parametrize(
    ("failure", "cause"), [(BY_REWARD, Failure.CAUSE_GENERATED_CODE), (BY_GRADIENT, Failure.CAUSE_ASSIGNMENT)]
)
async def test_an_attempt_with_no_member_left_ends_at_once(tmp_path: Path, failure: session_pb2.Failure, cause: Any):
    training, _, _ = new_training(tmp_path, None, members={"a-s1": failure, "b-s1": BY_GRADIENT})
    result = await asyncio.wait_for(training.run(), 5)
    assert result is not None and result.failure.cause == cause
    assert result.failure.failure.message == f"no member could continue: {failure.message}"


async def test_an_episode_too_long_to_score_blames_the_assignment(tmp_path: Path):
    pool = Pool(**{"a-s1": ResourceExhausted("lower max_episode_steps", reason="EPISODE_TOO_LONG")})
    training, _, _ = new_training(tmp_path, Endless(EvaluateMessage(policies=(policy(),))), pool)
    result = await finish(training.run())
    assert result.failure.cause == Failure.CAUSE_ASSIGNMENT
    assert (result.failure.failure.reason, result.failure.failure.message) == (
        "EPISODE_TOO_LONG",
        "lower max_episode_steps",
    )
