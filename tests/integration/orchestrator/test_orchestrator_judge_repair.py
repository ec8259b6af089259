"""A judge that fails on trained rollouts: its author repairs it, the rollouts are judged again, a policy is delivered."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import FailedPrecondition

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import author, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
REWARD = "# good # curve=0.6\n"
SOUND = "# a sound judge\n"


def judges(*sources: str, controls: tuple[str, ...] = ("random", "time_reversed")) -> Any:
    """An author that writes these judges, one for each repair; after the last one it can repair no more."""
    left = list(sources)

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = author(task)
        if task.HasField("judge_author"):
            if not left:
                raise FailedPrecondition("no more", reason="TEMPLATE_CANNOT_FIX")
            proposal = agent_pb.JudgeProposal(source=left.pop(0), null_controls=controls, reasoning="guarded")
            result.judge.CopyFrom(proposal)
        return result

    return answer


async def play(stack: Stack, **more: Any) -> tuple[v1.Session, list[ev.Event]]:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2, "max_iterations": 1}
    spec = reward_session(**{**base, "steps_per_member": 1000, "reward_source": REWARD, **more})
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="judged"))
    events = await watch(stack.sessions, created.name)
    return await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name)), events


def warnings(events: list[ev.Event]) -> list[str]:
    return [event.warning.reason for event in events if event.HasField("warning")]


async def test_a_judge_that_crashes_is_repaired_by_its_author(stack: Stack) -> None:
    stack.neighbours.agent.answer = judges("# crashes\n", SOUND)
    await stack.start()
    session, events = await play(stack)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.best_judgment.score == pytest.approx(0.9)
    assert session.best_policy and session.best_video and "JUDGE_REPAIRED" in warnings(events)
    task = stack.neighbours.agent.tasks[-1]
    assert task.key == "iterations/1/judge_author/repair/1" and task.judge_author.pass_threshold == pytest.approx(0.7)
    repair = task.judge_author.repair
    assert repair.source == "# crashes\n" and list(repair.null_controls) == ["random", "time_reversed"]
    (failure,) = repair.failures
    assert (failure.rule, failure.line) == ("exception", 7)
    assert failure.message == "on a rollout of a trained policy: the judge failed"
    assert failure.seen == "IndexError; the rollout: it rests"
    # The repaired judge is checked on the rollouts that the one before failed on.
    check = next(c for c in stack.neighbours.judge.checks if c.judge_source == SOUND)
    assert check.rollouts and all(rollout.endswith(".npz") for rollout in check.rollouts)
    # Checkpoints, too, have the judgments of one judge.
    assert {e.judged.env_step for e in events if e.HasField("judged")} == {0}
    iteration = await stack.sessions.GetIteration(pb.GetIterationRequest(name="sessions/judged/iterations/1"))
    assert [(p.env_step, round(p.score, 2)) for p in iteration.reward.curve] == [(500, 0.6), (1000, 0.9)]
    assert stack.store.get("sessions/judged/iterations/1/judge.py").decode() == SOUND


async def test_a_judge_that_cannot_be_repaired_still_leaves_a_policy(stack: Stack) -> None:
    stack.neighbours.agent.answer = judges("# crashes\n")
    await stack.start()
    session, _ = await play(stack)
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason == "JUDGE_REJECTED"
    assert "on a rollout of a trained policy" in session.failure.message
    assert session.best_policy and session.best_video and not session.HasField("best_judgment")
    # Resumed with a judge that works, it judges the same training.
    stack.neighbours.agent.answer = judges(SOUND)
    await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=session.name))
    await watch(stack.sessions, session.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=session.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.env_steps == 2000


async def test_a_persons_judge_that_crashes_still_leaves_a_policy(stack: Stack) -> None:
    await stack.start()
    session, _ = await play(stack, judge_source="# crashes\n")
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason == "JUDGE_REJECTED"
    assert session.best_policy and session.best_video and not stack.neighbours.agent.tasks


async def test_a_judge_that_passes_rollouts_both_ways_is_repaired(stack: Stack) -> None:
    stack.neighbours.agent.answer = judges("# either way\n", SOUND)
    await stack.start()
    session, _ = await play(stack)
    assert session.state == v1.SESSION_STATE_SUCCEEDED
    repair = stack.neighbours.agent.tasks[-1].judge_author.repair
    assert [failure.message for failure in repair.failures] == ["it passes backwards"]
    assert stack.store.get("sessions/judged/iterations/1/judge.py").decode() == SOUND


async def test_a_judge_that_stays_unsound_backwards_is_a_warning(stack: Stack) -> None:
    stack.neighbours.agent.answer = judges("# either way\n", "# either way, again\n")
    await stack.start()
    session, events = await play(stack)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and "JUDGE_UNSOUND" in warnings(events)
    assert stack.store.get("sessions/judged/iterations/1/judge.py").decode() == "# either way\n"
