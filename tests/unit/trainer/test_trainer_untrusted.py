"""Whatever a learner's process sends or leaves in its folder: the training ends, and blames the code."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.sandbox.limits import GIB
from dressage.sandbox.pipe import Channel, ProtocolError, encode
from dressage_trainer.assignments.context import UntrustedInput, blame_sender
from dressage_trainer.messages import CheckpointMessage, DoneMessage, EvaluateMessage, WarningMessage, parse
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.trainer.supervised import STEPS, Endless, Learner, new_training, policy

HUGE = 2**70


class Raw(Endless):
    """Sends dicts as they are."""

    def __init__(self, *messages: Any) -> None:
        super().__init__()
        self._messages = iter(messages)


class Bytes(Endless):
    """Sends bytes over a real channel."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        read, self._write = os.pipe()
        other = os.open(os.devnull, os.O_WRONLY)
        os.write(self._write, data)
        self.channel = Channel(read, other)  # type: ignore[assignment]


async def result_of(tmp_path: Path, learner: Learner) -> tuple[pb.AssignmentResult, Any]:
    training, work, _ = new_training(tmp_path, learner)
    result = await asyncio.wait_for(training.run(), 20)
    assert result is not None
    return result, work


def assert_blamed(result: pb.AssignmentResult) -> None:
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_GENERATED_CODE, result
    assert result.failure.failure.reason == "SANDBOX_OUTPUT_REFUSED"
    assert len(result.failure.failure.message) < 2000
    result.SerializeToString()


STATE = {"member": "a-s1", "env_step": 1, "metrics": {}}
WEIGHTS = policy().weights


@pytest.mark.parametrize(
    "message",
    [
        {"type": "checkpoint", "path": "checkpoints/1", "update": HUGE, "env_step": 1},
        {"type": "checkpoint", "path": "checkpoints/1", "update": -1, "env_step": 1},
        {"type": "progress", "steps_per_second": 1e400, "members": []},
        {"type": "progress", "members": [{**STATE, "env_step": HUGE}]},
        {"type": "progress", "members": [{**STATE, "metrics": {f"m{i}": 1.0 for i in range(100_000)}}]},
        {"type": "progress", "members": [{**STATE, "metrics": [1, 2]}]},
        {"type": "progress", "members": [STATE] * 100_000},
        {"type": "progress", "members": 3},
        {"type": "evaluate", "policies": [{"member": "a-s1", "env_step": 1, "card": {}, "weights": WEIGHTS}]},
        {"type": "evaluate", "policies": [{"member": "a-s1", "env_step": 1, "card": [[1]], "weights": {}}]},
        {"type": "evaluate", "policies": [{**vars(policy()), "card": {**policy().card, "environment": "Ant-v5"}}]},
        {"type": "evaluate", "policies": [{**vars(policy()), "weights": {f"w{i}": 0 for i in range(10_000)}}]},
        {"type": ["progress"]},
        {},
        {
            "type": "failed",
            "reason": "X",
            "generated_code": True,
            "unknown": {"a": 1},
            "message": {"a": [1]},
            "x" * 99: 1,
        },
    ],
    ids=lambda message: str(message)[:40],
)
async def test_a_malformed_message_blames_the_code(tmp_path: Path, message: dict[str, Any]):
    result, work = await result_of(tmp_path, Raw(message))
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_GENERATED_CODE
    result.SerializeToString()
    assert not work.reports


def test_a_deep_message_or_half_a_character_is_no_message():
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    for data in (encode({"a": deep}), encode({"a": "\ud800"}), encode({"\udfff": 1})):
        read, write = os.pipe()
        os.write(write, data)
        channel = Channel(read, write)
        with pytest.raises(ProtocolError):
            channel.recv(timeout=1.0)
        channel.close()
    assert encode({"a": "\U0001f600"})


async def test_bytes_that_are_no_message_blame_the_code(tmp_path: Path):
    learner = Bytes(b"\xff" * 100)
    result, _ = await result_of(tmp_path, learner)
    assert_blamed(result)
    learner.channel.close()  # type: ignore[attr-defined]


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
names = st.sampled_from(["type", "members", "policies", "update", "path", "reason", "message", "env_step", "requested"])
kinds = st.sampled_from(["progress", "evaluate", "checkpoint", "warning", "member_stopped", "done", "failed"])


@given(kinds, st.dictionaries(names, json, max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_message_is_parsed_or_refused(kind: str, message: dict[str, Any]):
    with OnlyRefusals():
        parse({**message, "type": kind})


class OnlyRefusals:
    """Lets nothing but a refusal out."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        return isinstance(error, ProtocolError)


async def test_warnings_and_progress_are_bounded(tmp_path: Path):
    learner = Raw(
        *[{"type": "progress", "members": [STATE]}] * 5000,
        *[WarningMessage("X" * 5000, "y" * 9000).to_dict()] * 5000,
        DoneMessage(env_steps_total=STEPS, policies=(policy("a-s1", STEPS),)).to_dict(),
    )
    result, work = await result_of(tmp_path, learner)
    assert result.HasField("train")
    assert len(work.reports) < 300
    warnings = [report.warning for report in work.reports if report.HasField("warning")]
    assert len(warnings) == 200 and len(warnings[0].reason) == 100 and len(warnings[0].message) == 4000


async def test_hostile_files_beside_the_records_are_not_read(tmp_path: Path):
    learner = Raw(DoneMessage(env_steps_total=STEPS, policies=(policy("a-s1", STEPS),)).to_dict())
    training, work, sandbox = new_training(tmp_path, learner)
    board = sandbox / "members" / "a-s1" / "tb"
    board.mkdir(parents=True)
    (board.parent / "metrics.jsonl").write_text("{}\n")
    with open(os.fsencode(board) + b"/\xff\xfe.tfevents.1", "wb") as file:
        file.write(b"x")
    with open(board / "sparse.tfevents.2", "wb") as file:
        file.truncate(GIB)
    assert (await asyncio.wait_for(training.run(), 20)).HasField("train")
    stored = [path for path in work.store.rglob("*") if path.is_file() and "tb" in path.parts]
    assert not stored and (work.store / "members/a-s1/metrics.jsonl").is_file()


@pytest.mark.parametrize("damage", ["sparse", "link", "folder"])
async def test_records_that_are_no_files_of_their_size_blame_the_code(tmp_path: Path, damage: str):
    learner = Raw(DoneMessage(env_steps_total=STEPS, policies=(policy("a-s1", STEPS),)).to_dict())
    training, _, sandbox = new_training(tmp_path, learner)
    path = sandbox / "members" / "a-s1" / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    if damage == "sparse":
        path.touch()
        os.truncate(path, GIB)
    elif damage == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.mkdir()
    assert_blamed(await asyncio.wait_for(training.run(), 20))


async def test_a_full_disk_is_not_the_codes_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training, _, _ = new_training(tmp_path, Raw(EvaluateMessage(policies=(policy(),)).to_dict()))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training._delivery, "stage_policy", full)
    with pytest.raises(OSError, match="No space"):
        await asyncio.wait_for(training.run(), 20)


@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError(), OverflowError("x"), OSError(40, "loop"), MemoryError()]
)
def test_every_other_failure_is(error: Exception):
    with pytest.raises(UntrustedInput), blame_sender("the learner"):
        raise error


async def test_a_checkpoint_of_another_number_cannot_leave_the_folder(tmp_path: Path):
    result, work = await result_of(
        tmp_path, Raw(CheckpointMessage(path="../../etc", update=1, env_step=1).to_dict(), {})
    )
    assert_blamed(result)
    assert [report.warning.reason for report in work.reports] == ["CHECKPOINT_FAILED"]
