"""A server that holds the sessions of earlier servers: they stay interrupted until a request concerns them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import author, watch
from tests.integration.orchestrator.stack import Stack


def spec() -> v1.SessionSpec:
    return reward_session(intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000)


def slow(task: agent_pb.Task) -> agent_pb.TaskResult:
    result = author(task)
    if task.HasField("reward_author"):
        result.reward.source = "# good # slow\n"
    return result


async def _create(stack: Stack, name: str) -> None:
    await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(), session_id=name))


async def _get(stack: Stack, name: str) -> v1.Session:
    session: v1.Session = await stack.sessions.GetSession(pb.GetSessionRequest(name=f"sessions/{name}"))
    return session


async def _trained(stack: Stack, name: str) -> None:
    async with asyncio.timeout(60):
        while True:
            request = pb.ListAssignmentsRequest(parent=f"sessions/{name}/iterations/-")
            listed: Any = (await stack.sessions.ListAssignments(request)).assignments
            if listed and listed[0].members[0].env_steps > 0:
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("released_by", ["watch", "cancel"])
async def test_an_interrupted_session_waits_for_a_request(stack: Stack, released_by: str) -> None:
    stack.neighbours.agent.answer = slow
    await stack.start()
    await _create(stack, "earlier")
    await _trained(stack, "earlier")
    await stack.stop()
    stack.neighbours.agent.answer = author
    stack.options = {"hold": True}
    await stack.start()
    await _create(stack, "own")
    await asyncio.wait_for(watch(stack.sessions, "sessions/own"), 60)
    assert (await _get(stack, "own")).state == v1.SESSION_STATE_SUCCEEDED
    earlier = await _get(stack, "earlier")
    assert earlier.state == v1.SESSION_STATE_RUNNING and earlier.epoch == 0
    Path(os.environ["DRESSAGE_TRAINER_GO"]).touch()
    if released_by == "cancel":
        await stack.sessions.CancelSession(pb.CancelSessionRequest(name="sessions/earlier"))
    await asyncio.wait_for(watch(stack.sessions, "sessions/earlier"), 60)
    final = (await _get(stack, "earlier")).state
    assert final == (v1.SESSION_STATE_CANCELLED if released_by == "cancel" else v1.SESSION_STATE_SUCCEEDED)
