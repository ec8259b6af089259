"""One place for trainers, and two sessions: who waits for a person holds no place, whoever has work gets it."""

from __future__ import annotations

import asyncio

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, author, watch
from tests.integration.orchestrator.stack import Stack


def spec(source: str, *, approve: bool) -> v1.SessionSpec:
    return reward_session(
        intent="run",
        environment="environments/HalfCheetah-v5",
        model="test/model",
        seeds=1,
        steps_per_member=1000,
        max_iterations=2,
        reward_source=source,
        judge_source=JUDGE,
        approve_before_evaluation=approve,
    )


async def waiting(stack: Stack, name: str, iteration: int) -> None:
    async with asyncio.timeout(120):
        while True:
            session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
            if session.awaiting_approval == iteration:
                return
            assert not session.HasField("end_time"), session.state_reason
            await asyncio.sleep(0.05)


async def test_a_session_that_waits_for_approval_releases_its_run(stack: Stack) -> None:
    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = author(task)
        if task.HasField("reviser"):
            result.revision.source = "# good # score=0.95\n"
        return result

    stack.neighbours.agent.answer = answer
    stack.options["max_parallel_runs"] = 1
    await stack.start()
    session_spec = pb.CreateSessionRequest(spec=spec("# weak\n", approve=True), session_id="patient")
    first = await stack.sessions.CreateSession(session_spec)
    await waiting(stack, first.name, 1)
    await stack.sessions.ApproveSession(pb.ApproveSessionRequest(name=first.name))
    await waiting(stack, first.name, 2)  # it has trained, and has a lease until now
    (run,) = (await stack.sessions.ListRuns(pb.ListRunsRequest(parent=first.name))).runs
    session_spec = pb.CreateSessionRequest(spec=spec("# good\n", approve=False), session_id="other")
    second = await stack.sessions.CreateSession(session_spec)
    await watch(stack.sessions, second.name, seconds=60.0)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=second.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    run = await stack.sessions.GetRun(pb.GetRunRequest(name=run.name))
    assert run.state == v1.RUN_STATE_SUCCEEDED, "the lease was not given back"
    await stack.sessions.ApproveSession(pb.ApproveSessionRequest(name=first.name))
    await watch(stack.sessions, first.name, seconds=60.0)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=first.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    runs = (await stack.sessions.ListRuns(pb.ListRunsRequest(parent=first.name))).runs
    assert [entry.name.rpartition("/")[2] for entry in runs] == ["r1", "r2"]
