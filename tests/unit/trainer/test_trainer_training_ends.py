"""The supervisor's side of a training that ends by SIGTERM or is cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.artifacts.store import Grant
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import ChannelClosed, ProtocolError
from dressage_trainer.assignments import learner_process
from dressage_trainer.assignments import train as module
from dressage_trainer.messages import (
    EvaluateMessage,
    MemberState,
    Message,
    ProgressMessage,
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
    until,
)


async def terminate(training: Any, work: Any, learner: Learner) -> Any:
    """Send SIGTERM once training runs."""
    running = asyncio.ensure_future(training.run())
    await until(lambda: training._learner is not None)
    training._context.terminate.set()
    return await finish(running)


async def test_sigterm_with_a_full_disk_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    learner = Endless()
    training, work, sandbox = new_training(tmp_path, learner)
    learner._answer = [checkpoint(sandbox, 1, requested=True).to_dict()]

    async def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training._outbox, "_store", full)
    assert await terminate(training, work, learner) is None
    assert not work.stored() and learner.killed


async def test_sigterm_does_not_wait_for_a_store_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    learner = Endless()
    training, work, sandbox = new_training(tmp_path, learner)
    learner._answer = [checkpoint(sandbox, 1, requested=True).to_dict()]

    async def broken(*_: Any) -> None:
        raise ProtocolError("no store")

    monkeypatch.setattr(training._outbox, "_store", broken)
    assert await terminate(training, work, learner) is None
    assert not work.stored() and learner.killed


async def test_sigterm_does_not_wait_for_a_store_that_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_SNAPSHOT_SECONDS", 0.3)
    learner = Endless()
    training, work, sandbox = new_training(tmp_path, learner)
    learner._answer = [checkpoint(sandbox, 1, requested=True).to_dict()]

    async def unavailable(*_: Any, **__: Any) -> dict[str, Grant]:
        await asyncio.sleep(60)
        raise AssertionError

    work.grants = unavailable  # type: ignore[method-assign]
    assert await terminate(training, work, learner) is None


async def test_a_boundary_that_is_staged_twice_is_stored_once_sigterm_comes(tmp_path: Path):
    learner = Endless()
    training, work, sandbox = new_training(tmp_path, learner)
    # SIGTERM before update 41: the same boundary again.
    learner._answer = [checkpoint(sandbox, 40).to_dict(), checkpoint(sandbox, 40, requested=True).to_dict()]
    assert await terminate(training, work, learner) is None
    assert set(work.stored()) == {40}
    assert (work.store / "checkpoints/40.safetensors").read_bytes() == b"40"
    assert (work.store / "checkpoints/index.json").read_text() == '["checkpoints/40.safetensors"]'


async def test_a_checkpoint_that_is_being_stored_is_stored_before_the_last_one(tmp_path: Path):
    learner = Endless()
    training, work, sandbox = new_training(tmp_path, learner)
    store_answers = asyncio.Event()
    grants = work.grants

    async def slow(*keys: Any, **more: Any) -> dict[str, Grant]:
        await store_answers.wait()
        return await grants(*keys, **more)

    work.grants = slow  # type: ignore[method-assign]
    learner._messages = iter([checkpoint(sandbox, 1).to_dict()])
    running = asyncio.ensure_future(training.run())
    await until(lambda: not training._outbox._waiting and (tmp_path / "scratch/staging/checkpoints").exists())
    learner._answer = [checkpoint(sandbox, 2, requested=True).to_dict()]
    training._context.terminate.set()
    await asyncio.sleep(0.2)
    assert not running.done()
    store_answers.set()
    assert await finish(running) is None
    assert work.stored() == [1, 2]


async def test_a_checkpoint_too_large_to_store_is_a_warning_and_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LEARNER_LIMITS", Limits(memory_bytes=1 << 30, file_bytes=1))
    learner = Endless()
    training, work, sandbox = new_training(tmp_path, learner)
    learner._answer = [checkpoint(sandbox, 40, requested=True).to_dict()]
    assert await terminate(training, work, learner) is None
    assert [report.warning.reason for report in work.reports] == ["CHECKPOINT_FAILED"]


class Ended(Learner):
    """Has ended before the first request."""

    def __init__(self, *messages: Message) -> None:
        super().__init__(*messages)
        self._sent = False

    def send(self, message: dict[str, Any]) -> None:
        if self._sent:
            raise ChannelClosed("gone")
        self._sent = True


async def test_sigterm_after_the_learner_ended_keeps_its_messages(tmp_path: Path):
    training, work, sandbox = new_training(tmp_path)
    evaluations = [EvaluateMessage(policies=(policy(step=step),)) for step in (64, 128)]
    learner = Ended(*evaluations, checkpoint(sandbox, 1), DONE)
    learner.scratch = sandbox
    training._context.sandboxes.learner = learner  # type: ignore[attr-defined]
    result = await terminate(training, work, learner)
    assert result is not None and result.HasField("train") and work.stored() == [1]


@pytest.mark.parametrize("ending", ["cancelled", "terminate"])
async def test_the_last_evaluations_are_left_to_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
):
    monkeypatch.setattr(module, "_LAST_SECONDS", 0.1)
    training, work, _ = new_training(tmp_path, Learner(DONE), Pool(asyncio.Event()))
    running = asyncio.ensure_future(training.run())
    await until(lambda: f"policy/a-s1/{STEPS}" in work.items)
    assert not running.done()
    (training._context.cancelled if ending == "cancelled" else training._context.terminate).set()
    assert await finish(running) is None
    assert "member/a-s1" not in work.items


async def test_cancelled_it_ends_the_learner_and_reports_nothing_more(tmp_path: Path):
    learner = Endless(ProgressMessage(members=(MemberState("a-s1", 1, {}),)))
    training, work, _ = new_training(tmp_path, learner)
    running = asyncio.ensure_future(training.run())
    await until(lambda: work.reports)
    training._context.cancelled.set()
    assert await finish(running) is None and learner.killed
    count = len(work.reports)
    training._context.report("warning/1", warning=pb.WarningReport(reason="X"))
    assert len(work.reports) == count == 1


async def test_sigterm_during_an_outage_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def unavailable(*_: Any) -> Path:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(learner_process, "get_file", unavailable)
    assignment = new_assignment({"a-s1": None})
    assignment.checkpoint = "checkpoints/3.safetensors"
    training, _, _ = new_training(tmp_path, assignment=assignment)
    running = asyncio.ensure_future(training.run())
    await asyncio.sleep(0.1)
    training._context.terminate.set()
    assert await asyncio.wait_for(running, 5) is None
