"""Whole sessions: real gRPC, real workflows, a trainer process; scripted llm-agent, judge and renderer."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from tests.integration.orchestrator.fakes import GOOD, JUDGE, WEAK, code, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio


def spec(**more: object) -> v1.SessionSpec:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2}
    return v1.SessionSpec(**{**base, "steps_per_member": 1000, **more})


def phases(events: list[ev.Event]) -> list[tuple[int, str]]:
    return [
        (event.iteration, v1.Phase.Name(event.phase_changed.phase).removeprefix("PHASE_"))
        for event in events
        if event.HasField("phase_changed")
    ]


async def test_repaired_judged_too_low_revised_and_confirmed(stack: Stack) -> None:
    await stack.start()
    request = pb.CreateSessionRequest(spec=spec(), session_id="story", request_id="r-1")
    created = await stack.sessions.CreateSession(request)
    assert created.spec.max_iterations == 5 and created.spec.pass_threshold == 0.7
    events = await watch(stack.sessions, created.name)

    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    one = [(1, p) for p in ("PROPOSE", "CHECK", "EVALUATE", "JUDGE", "DONE")]
    two = [(2, p) for p in ("PROPOSE", "CHECK", "EVALUATE", "JUDGE", "CONFIRM", "DONE")]
    assert phases(events) == one + two
    states = [event.state_changed.state for event in events if event.HasField("state_changed")]
    assert states == [v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING, v1.SESSION_STATE_SUCCEEDED]
    checks = [(e.check_finished.subject, e.check_finished.ok) for e in events if e.HasField("check_finished")]
    assert sorted(checks[:3]) == [("judge", True), ("reward", False), ("reward", True)] and checks[3:] == [("reward", True)]

    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert session.best_iteration == "sessions/story/iterations/2"
    assert session.best_judgment.score == pytest.approx(0.9) and session.best_judgment.passed
    assert list(session.best_judgment.samples) == pytest.approx([0.9, 0.9])
    assert session.confirmation.score == pytest.approx(0.85)
    assert session.env_steps == 2 * 2 * 1000
    assert session.cost.requests == 4 and session.cost.dollars == pytest.approx(0.04)
    assert session.returns.mean == pytest.approx(85) and session.returns.random_mean < 0
    assert session.best_policy.startswith("sessions/story/iterations/2/runs/train/members/default-s")
    assert stack.store.get(session.best_video) == b"mp4"

    neighbours = stack.neighbours
    keys = neighbours.agent.keys
    assert sorted(keys[:2]) == ["iterations/1/reward_author", "judge_author"]
    assert keys[2:] == ["iterations/1/fixer/1", "iterations/2/reviser"]
    scores, first, unknown = neighbours.agent.tool_results
    assert json.loads(scores.content)[0]["score"] == pytest.approx(0.3)
    assert json.loads(first.content)["source"] == WEAK
    assert unknown.is_error and "there is no iteration 9" in unknown.content

    iteration = await stack.sessions.GetIteration(pb.GetIterationRequest(name=session.best_iteration))
    assert iteration.parent == "sessions/story/iterations/1" and iteration.source == GOOD
    assert "-# weak reward" in iteration.diff and iteration.lesson == "speed needs weight"
    folder = "sessions/story/iterations/1"
    assert stack.store.get(f"{folder}/reward.py").decode() == WEAK
    assert stack.store.get(f"{folder}/judge.py").decode() == JUDGE
    assert json.loads(stack.store.get(f"{folder}/judgment.json"))["score"] == pytest.approx(0.3)
    assert json.loads(stack.store.get(f"{folder}/runs/train/spec.json"))["assignments"][0]["train"]["members"]

    runs = await stack.sessions.ListRuns(pb.ListRunsRequest(parent="sessions/story/iterations/-"))
    assert [run.name.rpartition("/")[2] for run in runs.runs] == ["train", "train", "confirm"]
    assert all(run.state == v1.RUN_STATE_SUCCEEDED and run.attempt == 1 for run in runs.runs)
    assert [len(member.evaluations) for member in runs.runs[0].members] == [1, 1]  # each was reported twice
    lineage = await stack.sessions.GetLineage(pb.GetLineageRequest(name=created.name))
    assert [(node.score, node.best) for node in lineage.nodes] == [(pytest.approx(0.3), False), (pytest.approx(0.9), True)]

    # The same request again is the same session; another request under its id is refused.
    again = await stack.sessions.CreateSession(request)
    assert again.name == created.name
    with pytest.raises(grpc.aio.AioRpcError) as reused:
        await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(seeds=1), request_id="r-1"))
    assert code(reused.value) == "ALREADY_EXISTS"
    # A watch goes on after its token.
    rest = await watch(stack.sessions, created.name, token=str(events[9].sequence))
    assert rest == events[10:]
    assert len(neighbours.agent.tasks) == 4
    await asyncio.sleep(0)
