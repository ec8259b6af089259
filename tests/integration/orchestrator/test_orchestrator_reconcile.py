"""Sessions whose workflow ended before they did are resumed, and closed when that does not help."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator import wiring
from dressage_orchestrator.database.store import SessionStore
from dressage_orchestrator.lifecycle import checkpoint_judging

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_RECONCILE_SECONDS", 0.3)


def spec() -> v1.SessionSpec:
    return reward_session(
        intent="run",
        environment="environments/HalfCheetah-v5",
        model="template/v1",
        seeds=1,
        steps_per_member=1000,
        max_iterations=2,
        reward_source="# good\n",
        judge_source=JUDGE,
    )


class Breaking:
    """`SessionStore.end` with a fault of ours, the first times that it is called."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.calls = 0
        self.end = SessionStore.end

    def __call__(self, store: SessionStore, ending: Any) -> v1.Session:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise RuntimeError("a fault of ours")
        return self.end(store, ending)


async def ended(stack: Stack, name: str) -> v1.Session:
    async with asyncio.timeout(90):
        while True:
            session: v1.Session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
            if session.HasField("end_time") and session.state != v1.SESSION_STATE_PENDING:
                return session
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("faults", [1, 2])
async def test_a_session_whose_last_step_failed_gets_its_state(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, faults: int
) -> None:
    breaking = Breaking(faults)
    monkeypatch.setattr(SessionStore, "end", lambda store, ending: breaking(store, ending))
    await stack.start()
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(), session_id="broken"))
    session = await ended(stack, created.name)
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert session.epoch == faults and breaking.calls == faults + 1
    iterations = (await stack.sessions.ListIterations(pb.ListIterationsRequest(parent=created.name))).iterations
    assert len(iterations) == 1, "what had passed is not done again"
    events = await watch(stack.sessions, created.name)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_a_session_that_cannot_be_ended_is_closed_as_failed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking = Breaking(1000)
    monkeypatch.setattr(SessionStore, "end", lambda store, ending: breaking(store, ending))
    await stack.start()
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(), session_id="hopeless"))
    session = await ended(stack, created.name)
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason == "WORKFLOW_ENDED"
    assert breaking.calls == 4 and session.best_policy


async def test_a_child_that_ended_without_a_result_is_not_waited_for(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("dressage_orchestrator.lifecycle.workflows.judge_batch", broken)
    judged: list[str] = []
    advance = checkpoint_judging.CheckpointJudging.advance

    def record(self: checkpoint_judging.CheckpointJudging, state: Any) -> bool:
        judged.extend(str(entry) for entry in state["new"])
        return advance(self, state)

    monkeypatch.setattr(checkpoint_judging.CheckpointJudging, "advance", record)
    await stack.start()
    session_spec = spec()
    session_spec.reward.reward_source = "# good # curve=0.2\n"
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec, session_id="child"))
    session = await ended(stack, created.name)
    assert judged, "no child was started"
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
