"""The supervisor's side of a training: what it takes from a learner, and in what order it stores."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.artifacts.store import Grant
from dressage.contracts import RewardError
from dressage.errors import ResourceExhausted
from dressage.sandbox.pipe import ChannelClosed, ProtocolError
from dressage.sandbox.process import Exit
from dressage_trainer import jobs
from dressage_trainer import training as module
from dressage_trainer.messages import (
    CheckpointMessage,
    DoneMessage,
    EvaluateMessage,
    MemberPolicy,
    MemberState,
    MemberStoppedMessage,
    Message,
    ProgressMessage,
    WarningMessage,
)
from dressage_trainer.training import Training, TrainingContext, _died


class Work:
    """The stream to the orchestrator: reports are kept, files go to a folder."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.reports: list[pb.Report] = []
        self.stopped = asyncio.Event()
        self.stop_reason = "cancelled"

    def report(self, report: pb.Report) -> None:
        self.reports.append(report)

    async def grants(self, *, put: Any = (), get: Any = ()) -> dict[str, Grant]:
        return {key: Grant(url=(self.store / key).as_uri()) for key in (*put, *get)}

    async def drain(self, seconds: float) -> bool:
        return True

    def stored(self) -> list[int]:
        """Updates of the checkpoints reported."""
        return [report.checkpoint.update for report in self.reports if report.HasField("checkpoint")]


class Learner:
    """A learner's end of the channel, with what it says."""

    def __init__(self, *said: Message) -> None:
        self._said = iter([message.to_dict() for message in said])
        self.channel = self
        self.asked: list[dict[str, Any]] = []
        self.killed = False

    def recv(self, *, timeout: float | None) -> dict[str, Any]:
        return next(self._said)

    def send(self, message: dict[str, Any]) -> None:
        self.asked.append(message)

    def kill(self) -> None:
        self.killed = True


class Endless(Learner):
    """Goes on until it is killed."""

    def recv(self, *, timeout: float | None) -> dict[str, Any]:
        try:
            return super().recv(timeout=timeout)
        except StopIteration:
            while not self.killed:
                time.sleep(0.01)
            raise ChannelClosed("gone") from None

    def wait(self, timeout: float) -> None:
        return None


def new_training(
    folder: Path, members: Mapping[str, session_pb2.Failure | None] | None = None, store: Path | None = None
) -> tuple[Training, Work, Path]:
    """:param members: why each was stopped in an earlier attempt, if it was."""
    task = pb.TrainAssignment()
    for member, failure in (members or {"a-s1": None}).items():
        task.members.add(id=member)
        if failure is not None:
            task.stopped[member].CopyFrom(failure)
    work = Work(store or folder / "store")
    context = TrainingContext(work=work, scratch=folder / "scratch", terminate=asyncio.Event())  # type: ignore[arg-type]
    sandbox = folder / "scratch" / "learner"
    (sandbox / "checkpoints").mkdir(parents=True)
    return Training(context, pb.Assignment(id=1, train=task)), work, sandbox


def checkpoint(sandbox: Path, update: int, *, requested: bool = False) -> CheckpointMessage:
    path = f"checkpoints/{update}.safetensors"
    (sandbox / path).write_bytes(b"%d" % update)
    return CheckpointMessage(path=path, update=update, env_step=64 * update, requested=requested)


def policy(member: str, step: int = 64) -> MemberPolicy:
    return MemberPolicy(member, step, {}, {"w": np.full(1, float(step))})


async def leave(training: Training, worker: asyncio.Future[Any]) -> None:
    """SIGTERM, once the learner's answer is there."""
    listener: asyncio.Future[Any] = asyncio.Future()
    assert await asyncio.wait_for(training._checkpoint(Learner(), worker, listener), 5)  # type: ignore[arg-type]


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
    training, work, _ = new_training(tmp_path)
    with pytest.raises(ProtocolError, match="no member of its run"):
        await training._listen(Learner(message), None)  # type: ignore[arg-type]
    assert not work.reports and training._jobs._queue.empty()


async def test_a_checkpoint_said_to_be_asked_for_waits_like_others_before_it_was_asked_for(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    for update in (1, 2, 3):
        await training._handle(checkpoint(sandbox, update, requested=True), None)  # type: ignore[arg-type]
    assert training._snapshot is None and len(list((tmp_path / "scratch/staging/staged").iterdir())) == 1
    training._context.terminate.set()
    for update in (4, 5, 6):
        await training._handle(checkpoint(sandbox, update, requested=True), None)  # type: ignore[arg-type]
    await leave(training, asyncio.ensure_future(asyncio.sleep(60)))
    assert work.stored() == [4] and len(list((tmp_path / "scratch/staging/staged").iterdir())) == 1


async def test_on_a_full_disk_whoever_is_told_to_leave_leaves_to_be_tried_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    training, work, sandbox = new_training(tmp_path)
    training._context.terminate.set()
    await training._handle(checkpoint(sandbox, 1, requested=True), None)  # type: ignore[arg-type]

    async def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training._delivery, "checkpoint", full)
    await leave(training, asyncio.ensure_future(asyncio.sleep(60)))
    assert not work.stored()


async def test_a_boundary_that_is_staged_twice_is_stored_once_and_whoever_waits_is_told(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    training._context.terminate.set()
    await training._handle(checkpoint(sandbox, 40), None)  # type: ignore[arg-type]
    # SIGTERM before update 41: the same boundary again, while the first still waits for its place.
    await training._handle(checkpoint(sandbox, 40, requested=True), None)  # type: ignore[arg-type]
    await leave(training, asyncio.ensure_future(asyncio.sleep(60)))
    assert work.stored() == [40]
    assert (work.store / "checkpoints/40.safetensors").read_bytes() == b"40"


async def test_told_to_leave_nothing_waits_for_evaluations_and_the_next_attempt_does_them_first(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path / "first")
    training._context.terminate.set()
    evaluations = [EvaluateMessage(policies=(policy("a-s1", step),)) for step in (64, 128, 192)]
    played: list[int] = []

    async def evaluate(_: Any, policies: tuple[MemberPolicy, ...], *, final: bool) -> None:
        if played:
            await asyncio.sleep(60)
        played.append(policies[0].env_step)

    training._evaluate = evaluate  # type: ignore[method-assign]
    worker = asyncio.ensure_future(training._jobs.work_off())
    messages = [*evaluations, checkpoint(sandbox, 4), checkpoint(sandbox, 5, requested=True)]
    for message in (*messages, EvaluateMessage(policies=(policy("a-s1", 384),))):  # the last comes after the checkpoint
        await training._handle(message, None)  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
    await leave(training, worker)
    assert played == [64] and work.stored() == [5]

    again, _, _ = new_training(tmp_path / "second", store=work.store)
    again._task.checkpoint = "checkpoints/5.safetensors"
    assert await again._fetch_checkpoints() == ["resume-0.safetensors"]
    done: list[tuple[int, bool]] = []

    async def evaluate_again(_: Any, policies: tuple[MemberPolicy, ...], *, final: bool) -> None:
        done.append((policies[0].env_step, final))

    again._evaluate = evaluate_again  # type: ignore[method-assign]
    learner = Learner(DoneMessage(512, (policy("a-s1", 512),)))
    assert (await asyncio.wait_for(again._serve(learner, None), 5)).done  # type: ignore[arg-type]
    assert done == [(128, False), (192, False), (512, True)]


async def test_a_checkpoint_that_is_being_stored_is_stored_before_the_last_one(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    training._context.terminate.set()
    go_on = asyncio.Event()
    grants = work.grants

    async def slow(**asked: Any) -> dict[str, Grant]:
        await go_on.wait()
        return await grants(**asked)

    work.grants = slow  # type: ignore[method-assign]
    worker = asyncio.ensure_future(training._jobs.work_off())
    await training._handle(checkpoint(sandbox, 1), None)  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    await training._handle(checkpoint(sandbox, 2, requested=True), None)  # type: ignore[arg-type]
    leaving = asyncio.ensure_future(leave(training, worker))
    await asyncio.sleep(0.05)
    assert not leaving.done()
    go_on.set()
    await leaving
    assert work.stored() == [1, 2]
    assert (
        work.store / "checkpoints/index.json"
    ).read_text() == '["checkpoints/2.safetensors", "checkpoints/1.safetensors"]'


async def test_a_checkpoint_named_like_its_records_or_without_a_place_is_a_warning_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    training, work, sandbox = new_training(tmp_path)
    (sandbox / "members/a-s1").mkdir(parents=True)
    (sandbox / "members/a-s1/metrics.jsonl").write_text("{}\n")
    (sandbox / "checkpoints/members").write_bytes(b"7")
    await training._handle(CheckpointMessage(path="checkpoints/members", update=7, env_step=7, requested=False), None)  # type: ignore[arg-type]
    assert not work.reports and training._jobs._places[-1].staged.path.read_bytes() == b"7"

    def full(*_: Any, **__: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dressage_trainer.delivery.copy_from_sandbox", full)
    await training._handle(checkpoint(sandbox, 8), None)  # type: ignore[arg-type]
    (report,) = work.reports
    assert report.warning.reason == "CHECKPOINT_FAILED" and "No space left" in report.warning.message
    assert len(list((tmp_path / "scratch/staging/staged").iterdir())) == 1


async def test_of_checkpoints_that_wait_two_are_stored_and_never_before_an_evaluation_before_them(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    done: list[str] = []

    async def evaluate(*_: Any, **__: Any) -> None:
        done.append(f"evaluation after {work.stored()}")

    training._evaluate = evaluate  # type: ignore[method-assign]
    for message in (
        checkpoint(sandbox, 1),
        checkpoint(sandbox, 2),
        EvaluateMessage(policies=(policy("a-s1"),)),
        checkpoint(sandbox, 3),
        checkpoint(sandbox, 4),
    ):
        await training._handle(message, None)  # type: ignore[arg-type]
    assert training._jobs._queue.qsize() == 3
    worker = asyncio.ensure_future(training._jobs.work_off())
    await asyncio.wait_for(training._jobs._queue.join(), 5)
    worker.cancel()
    assert work.stored() == [2, 4] and done == ["evaluation after [2]"]


async def test_checkpoints_are_stored_however_far_evaluations_lag(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    done: list[list[int]] = []
    one_more = asyncio.Semaphore(0)

    async def evaluate(*_: Any, **__: Any) -> None:
        await one_more.acquire()
        done.append(work.stored())

    training._evaluate = evaluate  # type: ignore[method-assign]
    worker = asyncio.ensure_future(training._jobs.work_off())
    for update in range(1, 13):  # two evaluations come while one is done
        for message in (EvaluateMessage(policies=(policy("a-s1"),)), checkpoint(sandbox, update)):
            await training._handle(message, None)  # type: ignore[arg-type]
        if update % 2 == 0:
            one_more.release()
            await asyncio.sleep(0.05)
    assert len(done) == 6 and len(work.stored()) >= 2, work.stored()
    assert training._jobs._queue.qsize() < 20 and len(list((tmp_path / "scratch/staging/staged").iterdir())) <= 2
    for _ in range(6):
        one_more.release()
    await asyncio.wait_for(training._jobs._queue.join(), 5)
    worker.cancel()
    assert work.stored() == sorted(work.stored()) and work.stored()[-1] == 12


async def test_a_full_queue_makes_the_learner_wait_but_not_whoever_has_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jobs, "_QUEUE", 2)
    training, _, sandbox = new_training(tmp_path)
    evaluation = EvaluateMessage(policies=(policy("a-s1"),))
    for _ in range(2):
        await training._handle(evaluation, None)  # type: ignore[arg-type]
    third = asyncio.ensure_future(training._handle(evaluation, None))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    assert not third.done() and training._jobs._queue.qsize() == 2
    training._context.terminate.set()
    await asyncio.wait_for(third, 5)
    await training._handle(checkpoint(sandbox, 1, requested=True), None)  # type: ignore[arg-type]
    assert training._jobs._queue.qsize() == 3 and training._snapshot is not None
    assert len(training._snapshot[1]) == 3


@pytest.mark.parametrize(("told", "code", "reason"), [("stop", 0, "STOPPED"), ("terminate", 75, "INTERRUPTED")])
async def test_the_last_evaluations_are_left_when_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, code: int, reason: str
):
    monkeypatch.setattr(module, "_LAST_JOBS_SECONDS", 0.1)
    training, work, _ = new_training(tmp_path)

    async def evaluate(*_: Any, **__: Any) -> None:
        await asyncio.sleep(60)

    training._evaluate = evaluate  # type: ignore[method-assign]
    learner = Learner(DoneMessage(env_steps_total=64, policies=(policy("a-s1"),)))
    serving = asyncio.ensure_future(training._serve(learner, None))  # type: ignore[arg-type]
    await asyncio.sleep(0.2)
    assert not serving.done()
    (work.stopped if told == "stop" else training._context.terminate).set()
    outcome = await asyncio.wait_for(serving, 5)
    assert (outcome.code, outcome.reason) == (code, reason)
    assert not any(report.HasField("done") for report in work.reports)


@pytest.mark.parametrize("last", ["evaluation", "learner"])
async def test_training_ends_once_nobody_is_left_of_whom_the_learner_does_not_know(tmp_path: Path, last: str):
    training, _, sandbox = new_training(tmp_path)
    training._members.append("a-s2")
    (sandbox / "members/a-s1").mkdir(parents=True)
    (sandbox / "members/a-s1/metrics.jsonl").write_text("{}\n")
    pool = Pool(**{"a-s1": RewardError("finite", "the term cost is not finite")})
    evaluation = EvaluateMessage(policies=(policy("a-s1"),))
    stopped = MemberStoppedMessage("a-s2", 64, "GRADIENT_NOT_FINITE", "broken")
    learner = Endless(*((stopped, evaluation) if last == "evaluation" else (evaluation, stopped)))
    outcome = await asyncio.wait_for(training._serve(learner, pool), 5)  # type: ignore[arg-type]
    assert outcome.reason == "ALL_MEMBERS_STOPPED" and outcome.code == 42
    assert learner.killed and (tmp_path / "store/members/a-s1/metrics.jsonl").is_file()


async def test_a_checkpoint_too_large_to_store_is_told_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_LEARNER_LIMITS", module.Limits(memory_bytes=1 << 30, file_bytes=1))
    training, work, sandbox = new_training(tmp_path)
    training._context.terminate.set()
    assert await training._handle(checkpoint(sandbox, 40, requested=True), None) is None  # type: ignore[arg-type]
    assert [report.warning.reason for report in work.reports] == ["CHECKPOINT_FAILED"]
    assert training._snapshot_answered.is_set() and training._snapshot is None, "whoever waits for it waits in vain"


async def test_leaving_does_not_wait_for_a_store_that_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training, work, sandbox = new_training(tmp_path)
    training._context.terminate.set()
    learner = Learner()
    await training._handle(checkpoint(sandbox, 1, requested=True), None)  # type: ignore[arg-type]

    async def broken() -> None:
        raise ProtocolError("no store")

    worker = asyncio.ensure_future(broken())
    listener: asyncio.Future[Any] = asyncio.Future()
    stored = training._checkpoint(learner, worker, listener)  # type: ignore[arg-type]
    assert await asyncio.wait_for(stored, 5) and learner.killed and not work.stored()


class Ended(Learner):
    """Has ended before anybody asked it for anything."""

    def send(self, message: dict[str, Any]) -> None:
        raise ChannelClosed("gone")


async def test_told_to_leave_it_hears_what_a_learner_said_before_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jobs, "_QUEUE", 2)
    training, work, sandbox = new_training(tmp_path)
    go_on = asyncio.Event()

    async def evaluate(*_: Any, **__: Any) -> None:
        await go_on.wait()

    training._evaluate = evaluate  # type: ignore[method-assign]
    evaluation = EvaluateMessage(policies=(policy("a-s1"),))
    learner = Ended(*[evaluation] * 5, checkpoint(sandbox, 1), DoneMessage(64, (policy("a-s1"),)))
    serving = asyncio.ensure_future(training._serve(learner, None))  # type: ignore[arg-type]
    await asyncio.sleep(0.3)
    assert training._jobs._queue.qsize() == 2  # the rest is still to be heard
    training._context.terminate.set()
    await asyncio.sleep(0.1)
    go_on.set()
    outcome = await asyncio.wait_for(serving, 5)
    assert outcome.done and work.stored() == [1]


async def test_an_outage_does_not_keep_whoever_is_told_to_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def away(*_: Any) -> Path:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(module, "get_file", away)
    monkeypatch.setattr(module, "_LAST_JOBS_SECONDS", 0.1)
    training, _, _ = new_training(tmp_path)
    training._task.checkpoint = "checkpoints/3.safetensors"
    running = asyncio.ensure_future(training.run())
    await asyncio.sleep(0.1)
    training._context.terminate.set()
    assert (await asyncio.wait_for(running, 5)).code == 75


def test_a_bound_is_the_codes_doing_and_a_crash_is_tried_again():
    bound = _died(Exit("killed", -signal.SIGKILL, "it filled its scratch folder", "", bound=True))
    assert bound.report and bound.reason == "SANDBOX_LIMIT"
    for number in (signal.SIGSEGV, signal.SIGKILL):
        assert not _died(Exit("killed", -number, "it was ended", "")).report


def test_out_of_memory_is_the_codes_doing_but_where_replay_buffers_are():
    ended = Exit("memory", -signal.SIGKILL, "it used more than 8 GiB", "", bound=True)
    assert _died(ended, "ppo").code == 42
    of_sac = _died(ended, "sac")
    assert of_sac.code == 1 and of_sac.report and "fewer members or steps" in of_sac.message


class Pool:
    """Evaluators that cannot score some members."""

    def __init__(self, **broken: Exception) -> None:
        self._broken = broken
        self.asked: list[str] = []

    async def foreground(self) -> None:
        pass

    async def evaluate(self, policy: MemberPolicy) -> list[Any]:
        self.asked.append(policy.member)
        raise self._broken[policy.member]


async def test_a_reward_that_fails_in_an_evaluation_stops_its_member_once(tmp_path: Path):
    training, work, _ = new_training(tmp_path)
    error = RewardError("finite", "the term cost is not finite", seen="-inf at step 17 of episode 3")
    pool = Pool(**{"a-s1": error})
    for final in (False, True):
        await training._evaluate(pool, (policy("a-s1"),), final=final)  # type: ignore[arg-type]
    assert pool.asked == ["a-s1"]
    (report,) = work.reports
    assert report.member.failure.reason == "REWARD_NOT_FINITE" and report.member.env_step == 64
    assert "the term cost" in report.member.failure.message and "episode 3" in report.member.failure.message
    assert training._none_left


BY_REWARD = session_pb2.Failure(reason="REWARD_NOT_FINITE", message="the term cost is not finite")
BY_GRADIENT = session_pb2.Failure(reason="GRADIENT_NOT_FINITE", message="the gradient is not finite")


async def test_a_member_that_an_earlier_attempt_stopped_stays_so_and_is_not_told_of_again(tmp_path: Path):
    training, work, _ = new_training(tmp_path, {"a-s1": BY_REWARD, "b-s1": None})
    pool = Pool(**{"b-s1": RewardError("finite", "nor is this")})
    await training._evaluate(pool, (policy("a-s1"), policy("b-s1")), final=False)  # type: ignore[arg-type]
    # From a checkpoint of before, the learner finds out again.
    await training._handle(MemberStoppedMessage(member="a-s1", env_step=64, reason="R", message="m"), None)  # type: ignore[arg-type]
    assert pool.asked == ["b-s1"]
    assert [report.member.member for report in work.reports if report.HasField("member")] == ["b-s1"]
    assert training._stopped["a-s1"] == BY_REWARD and training._nobody.is_set()


@pytest.mark.parametrize(("failure", "code"), [(BY_REWARD, 42), (BY_GRADIENT, 1)])
async def test_an_attempt_with_nobody_left_ends_at_once_and_blames_the_reward_only_where_it_was(
    tmp_path: Path, failure: session_pb2.Failure, code: int
):
    training, _, _ = new_training(tmp_path, {"a-s1": failure, "b-s1": BY_GRADIENT})
    outcome = await asyncio.wait_for(training.run(), 5)
    assert outcome.code == code and outcome.report and outcome.message == f"no member could go on: {failure.message}"


async def test_a_reward_that_failed_in_an_evaluation_is_not_forgotten_when_the_learner_breaks_too(tmp_path: Path):
    training, _, _ = new_training(tmp_path, {"b-s1": None, "a-s1": None})
    pool = Pool(**{"a-s1": RewardError("finite", "the term cost is not finite")})
    await training._evaluate(pool, (policy("a-s1"),), final=False)  # type: ignore[arg-type]
    for member in ("a-s1", "b-s1"):
        message = MemberStoppedMessage(member=member, env_step=64, reason=BY_GRADIENT.reason, message="m")
        await training._handle(message, None)  # type: ignore[arg-type]
    assert training._nobody.is_set()
    outcome = training._nobody_left()
    assert outcome.code == 42 and "the term cost" in outcome.message


async def test_a_learner_that_knows_of_all_who_were_stopped_has_the_last_word(tmp_path: Path):
    training, _, _ = new_training(tmp_path, {"a-s1": BY_GRADIENT, "b-s1": None})
    # The first it was told of by its checkpoint, the second breaks now.
    for member in ("a-s1", "b-s1"):
        message = MemberStoppedMessage(member=member, env_step=64, reason=BY_GRADIENT.reason, message="m")
        await training._handle(message, None)  # type: ignore[arg-type]
    assert not training._nobody.is_set()


async def test_an_episode_too_long_to_score_is_the_workers_end_and_named(tmp_path: Path):
    training, _, _ = new_training(tmp_path)
    pool = Pool(**{"a-s1": ResourceExhausted("lower max_episode_steps", reason="EPISODE_TOO_LONG")})
    with pytest.raises(ResourceExhausted, match="max_episode_steps"):
        await training._evaluate(pool, (policy("a-s1"),), final=False)  # type: ignore[arg-type]
