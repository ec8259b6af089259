"""A session that does not end by itself delivers the best judged policy there is, and states its origin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, WEAK, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
TRAINING = "sessions/{}/iterations/{}/assignments/train/members/default-s0"


async def create(stack: Stack, ident: str, **more: Any) -> str:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 1}
    spec = reward_session(**{**base, "steps_per_member": 1000, "evaluations": 4, "judge_source": JUDGE, **more})
    return (await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id=ident))).name


async def wait_for(stack: Stack, name: str, ready: Callable[[list[v1.Member]], bool]) -> None:
    """Wait until the members of the session's newest assignment are as required."""
    async with asyncio.timeout(30):
        while True:
            listing = pb.ListAssignmentsRequest(parent=f"{name}/iterations/-")
            listed = (await stack.sessions.ListAssignments(listing)).assignments
            if listed and ready(list(listed[-1].members)):
                return
            await asyncio.sleep(0.05)


def judged(score: float) -> Callable[[list[v1.Member]], bool]:
    def ready(members: list[v1.Member]) -> bool:
        rollouts = [r for member in members for e in member.evaluations for r in e.rollouts]
        return any(rollout.judgment.score == pytest.approx(score) for rollout in rollouts)

    return ready


async def cancel(stack: Stack, name: str) -> v1.Session:
    await stack.sessions.CancelSession(pb.CancelSessionRequest(name=name, reason="enough"))
    await watch(stack.sessions, name, seconds=20)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    assert (session.state, session.state_reason) == (v1.SESSION_STATE_CANCELLED, "enough")
    return session


async def test_a_cancelled_first_training_delivers_its_judged_checkpoint(stack: Stack) -> None:
    await stack.start()
    source = "# good # gradual # curve=0.6\n"
    name = await create(stack, "first", reward_source=source, max_iterations=1, early_stop=False)
    await wait_for(stack, name, judged(0.6))
    session = await cancel(stack, name)
    member = TRAINING.format("first", 1)
    origin = session.policy_origin
    assert session.best_policy == f"{member}/policies/{origin.env_step}" and origin.env_step in (250, 500, 750)
    assert (origin.iteration, origin.member) == ("sessions/first/iterations/1", member)
    assert origin.score == pytest.approx(0.6) and origin.interrupted and not session.best_iteration
    assert origin.rollout == f"{member}/rollouts/{origin.env_step}_median.npz"
    assert stack.store.exists(origin.rollout) and stack.store.exists(f"{session.best_policy}/policy.safetensors")


async def test_a_cancelled_session_delivers_the_best_of_all_iterations(stack: Stack) -> None:
    def answer(task: Any) -> Any:
        from tests.integration.orchestrator.fakes import author

        result = author(task)
        if task.HasField("reviser"):
            result.revision.source = f"# good # gradual # curve={curve}\n"
        return result

    stack.neighbours.agent.answer = answer
    await stack.start()
    for ident, curve in (("lower", 0.2), ("higher", 0.8)):
        name = await create(stack, ident, reward_source=WEAK, early_stop=False)
        await wait_for(stack, name, judged(curve))
        running = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
        assert running.best_policy == f"{TRAINING.format(ident, 1)}/policy"  # recorded with the finished iteration
        session = await cancel(stack, name)
        assert session.best_iteration == f"{name}/iterations/1" and session.best_score == pytest.approx(0.3)
        origin = session.policy_origin
        if ident == "lower":
            assert session.best_policy == running.best_policy and not origin.interrupted
            assert (origin.env_step, origin.score) == (1000, pytest.approx(0.3))
        else:
            assert session.best_policy == f"{TRAINING.format(ident, 2)}/policies/{origin.env_step}"
            assert origin.interrupted and origin.score == pytest.approx(0.8)


async def test_a_failed_and_an_exhausted_training_deliver_a_checkpoint(stack: Stack) -> None:
    await stack.start()
    budget = v1.Budget()
    budget.wall_time.seconds = 15
    source = "# good # gradual # curve=0.6\n"
    name = await create(stack, "late", reward_source=source, max_iterations=1, early_stop=False, budget=budget)
    await watch(stack.sessions, name)
    late = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    assert late.exhaustion_reason == v1.EXHAUSTION_REASON_WALL_TIME
    assert late.policy_origin.interrupted and late.policy_origin.score == pytest.approx(0.6) and late.best_video

    source = "# curve=0.6 # dies\n"
    name = await create(stack, "failed", reward_source=source, max_iterations=1, early_stop=False)
    await watch(stack.sessions, name)
    failed = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    assert failed.state == v1.SESSION_STATE_FAILED and failed.failure.reason == "DIVERGED"
    assert failed.best_policy.endswith("/policies/500") and failed.policy_origin.interrupted
