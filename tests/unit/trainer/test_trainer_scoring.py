"""How a scoring ends: with scores, without any, told to leave, with an episode that is too long."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.contracts import RewardError
from dressage.errors import ResourceExhausted
from dressage_trainer import scoring, supervisor
from dressage_trainer.messages import MemberPolicy
from dressage_trainer.training import TrainingContext


class Work:
    """The stream to the orchestrator."""

    def __init__(self) -> None:
        self.reports: list[pb.Report] = []
        self.stopped = asyncio.Event()
        self.stop_reason = "cancelled"

    def report(self, report: pb.Report) -> None:
        self.reports.append(report)


class Pool:
    """Evaluators that raise for some members, and for others never come back."""

    raised: dict[str, Exception] = {}
    left = False

    def __init__(self, **_: Any) -> None:
        Pool.left = False

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *_: object) -> None:
        Pool.left = True

    async def evaluate(self, policy: MemberPolicy) -> list[Any]:
        if policy.member in self.raised:
            raise self.raised[policy.member]
        await asyncio.sleep(60)
        return []


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingContext:
    async def fetch(_: Any, reference: pb.PolicyRef) -> MemberPolicy:
        return MemberPolicy(reference.member, reference.env_step, {}, {"w": np.zeros(1)})

    monkeypatch.setattr(scoring, "EvaluatorPool", Pool)
    monkeypatch.setattr(scoring, "_fetch", fetch)
    return TrainingContext(work=Work(), scratch=tmp_path, terminate=asyncio.Event())  # type: ignore[arg-type]


def assignment(*members: str) -> pb.Assignment:
    task = pb.ScoreAssignment(environment="Hopper-v5", seed=2_000_000, episodes=2, cores=2)
    for member in members:
        task.policies.add(member=member, env_step=64)
    return pb.Assignment(id=1, score=task)


async def test_a_full_disk_is_said_in_so_many_words(context: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Pool, "raised", {"a": OSError(errno.ENOSPC, "No space left on device", "p10.npz")})
    outcome = await asyncio.wait_for(supervisor._perform(context, assignment("a")), 5)
    assert (outcome.code, outcome.reason, outcome.report) == (1, "OUT_OF_DISK", True)
    assert "No space left on device" in outcome.message and "p10.npz" in outcome.message
    monkeypatch.setattr(Pool, "raised", {"a": OSError(errno.EIO, "Input/output error")})
    with pytest.raises(OSError, match="Input"):
        await asyncio.wait_for(supervisor._perform(context, assignment("a")), 5)


@pytest.mark.parametrize(("told", "code", "reason"), [("stop", 0, "STOPPED"), ("terminate", 75, "INTERRUPTED")])
async def test_whoever_is_told_to_leave_does_so_at_once(context: Any, told: str, code: int, reason: str):
    ending = asyncio.ensure_future(scoring.score(context, assignment("a", "b")))
    await asyncio.sleep(0.05)
    assert not ending.done()
    (context.work.stopped if told == "stop" else context.terminate).set()
    outcome = await asyncio.wait_for(ending, 5)
    assert (outcome.code, outcome.reason, outcome.done) == (code, reason, False)
    assert Pool.left and not context.work.reports


async def test_an_episode_too_long_is_told_and_not_tried_again(context: Any, monkeypatch: pytest.MonkeyPatch):
    error = ResourceExhausted("lower max_episode_steps", reason="EPISODE_TOO_LONG")
    monkeypatch.setattr(Pool, "raised", {"b": error})
    outcome = await asyncio.wait_for(scoring.score(context, assignment("a", "b")), 5)
    assert outcome.report and outcome.reason == "EPISODE_TOO_LONG" and "max_episode_steps" in outcome.message


async def test_a_reward_that_fails_everywhere_leaves_nobody(context: Any, monkeypatch: pytest.MonkeyPatch):
    error = RewardError("finite", "the term cost is not finite")
    monkeypatch.setattr(Pool, "raised", {"a": error, "b": error})
    outcome = await asyncio.wait_for(scoring.score(context, assignment("a", "b")), 5)
    assert outcome.reason == "ALL_MEMBERS_STOPPED" and "cost" in outcome.message
    assert len(context.work.reports) == 2
