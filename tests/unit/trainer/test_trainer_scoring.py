"""How a score assignment ends: with scores, without any, on SIGTERM or a too long episode; and what is not repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.contracts import RewardError
from dressage.errors import ResourceExhausted
from dressage_trainer.assignments import score as scoring
from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.messages import MemberPolicy

from tests.unit.trainer import supervised


class Pool(supervised.Pool):
    """Evaluators that raise for some members; the others wait for ``hold``."""

    raised: dict[str, Exception] = {}
    hold: asyncio.Event | None = None
    closed = False

    def __init__(self, **_: Any) -> None:
        super().__init__(self.hold, **self.raised)
        Pool.closed = False

    async def __aexit__(self, *_: object) -> None:
        Pool.closed = True

    async def evaluate(self, policy: MemberPolicy, seeds: Sequence[int]) -> Any:
        if policy.member in self.raised:
            raise self.raised[policy.member]
        return await super().evaluate(policy, seeds)


@pytest.fixture
def new_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def fetch(_: Any, reference: pb.PolicyRef) -> MemberPolicy:
        return MemberPolicy(reference.member, reference.env_step, {}, {"w": np.zeros(1)})

    monkeypatch.setattr(scoring, "EvaluatorPool", Pool)
    monkeypatch.setattr(scoring, "_fetch", fetch)

    def make(*members: str, finished: Sequence[str] = ()) -> AssignmentContext:
        task = pb.ScoreAssignment(environment="Hopper-v5", seed=2_000_000, episodes=2)
        for member in members:
            task.policies.add(member=member, env_step=64)
        return AssignmentContext(
            work=supervised.Work(tmp_path / "store"),  # type: ignore[arg-type]
            assignment=pb.Assignment(id=1, cores=2, score=task, finished_items=finished),
            scratch=tmp_path,
            terminate=asyncio.Event(),
            cancelled=asyncio.Event(),
            sandboxes=supervised.Sandboxes(None),  # type: ignore[arg-type]
        )

    return make


@pytest.mark.parametrize("ending", ["cancelled", "terminate"])
async def test_sigterm_or_cancellation_ends_it_at_once(new_context: Any, monkeypatch: pytest.MonkeyPatch, ending: str):
    monkeypatch.setattr(Pool, "hold", asyncio.Event())
    context = new_context("a", "b")
    running = asyncio.ensure_future(scoring.score(context))
    await asyncio.sleep(0.05)
    assert not running.done()
    getattr(context, ending).set()
    assert await asyncio.wait_for(running, 5) is None
    assert Pool.closed and not context.work.reports


async def test_scores_of_earlier_attempts_are_not_repeated(new_context: Any):
    context = new_context("a", "b", finished=["evaluation/a/64"])
    result = await asyncio.wait_for(scoring.score(context), 5)
    assert result.score.episodes == 2 and context.work.items == ["evaluation/b/64"]


async def test_an_episode_too_long_blames_the_assignment(new_context: Any, monkeypatch: pytest.MonkeyPatch):
    error = ResourceExhausted("lower max_episode_steps", reason="EPISODE_TOO_LONG")
    monkeypatch.setattr(Pool, "raised", {"b": error})
    result = await asyncio.wait_for(scoring.score(new_context("a", "b")), 5)
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_ASSIGNMENT
    assert result.failure.failure.reason == "EPISODE_TOO_LONG" and "max_episode_steps" in result.failure.failure.message


async def test_a_reward_that_fails_everywhere_blames_the_code(new_context: Any, monkeypatch: pytest.MonkeyPatch):
    error = RewardError("finite", "the term cost is not finite")
    monkeypatch.setattr(Pool, "raised", {"a": error, "b": error})
    context = new_context("a", "b")
    result = await asyncio.wait_for(scoring.score(context), 5)
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_GENERATED_CODE
    assert result.failure.failure.reason == "ALL_MEMBERS_STOPPED" and "cost" in result.failure.failure.message
    assert sorted(context.work.items) == ["member/a", "member/b"]


async def test_policies_are_delivered_once_on_request(new_context: Any, monkeypatch: pytest.MonkeyPatch):
    delivered: list[str] = []

    async def fetch_policy(_: Any, reference: pb.PolicyRef) -> None:
        pass

    async def deliver(_: Any, reference: pb.PolicyRef) -> None:
        delivered.append(reference.member)

    monkeypatch.setattr(scoring.Delivery, "fetch_policy", fetch_policy)
    monkeypatch.setattr(scoring.Delivery, "member", deliver)
    monkeypatch.setattr(Pool, "raised", {"broken": RewardError("exception", "it raised")})
    for requested, expected in ((True, ["a", "c"]), (False, [])):
        delivered.clear()
        # The scores of a are there; b is delivered already.
        context = new_context("a", "b", "c", "broken", finished=["evaluation/a/64", "evaluation/b/64", "member/b"])
        context.assignment.score.deliver = requested
        await asyncio.wait_for(scoring.score(context), 5)
        assert sorted(delivered) == expected
