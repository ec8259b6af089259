"""Whole sessions: real gRPC, real workflows, a trainer process; scripted llm-agent, judge and renderer."""

from __future__ import annotations

import asyncio
import json
import time

import grpc
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import FailedPrecondition

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import GOOD, JUDGE, WEAK, author, code, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio


def spec(**more: object) -> v1.SessionSpec:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2}
    return reward_session(**{**base, "steps_per_member": 1000, **more})


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
    assert created.method == "reward" and created.spec.max_iterations == 5 and created.spec.pass_threshold == 0.7
    events = await watch(stack.sessions, created.name)

    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    one = [(1, p) for p in ("PROPOSE", "CHECK", "EVALUATE", "JUDGE", "DONE")]
    two = [(2, p) for p in ("PROPOSE", "CHECK", "EVALUATE", "JUDGE", "CONFIRM", "DONE")]
    assert phases(events) == one + two
    states = [event.state_changed.state for event in events if event.HasField("state_changed")]
    assert states == [v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING, v1.SESSION_STATE_SUCCEEDED]
    scored = [(e.iteration, e.scored.score, e.scored.confirmed) for e in events if e.HasField("scored")]
    approximate = [(1, pytest.approx(0.3), False), (2, pytest.approx(0.9), False), (2, pytest.approx(0.85), True)]
    assert scored == approximate and created.goal == "0.7"
    checks = [(e.check_finished.subject, e.check_finished.ok) for e in events if e.HasField("check_finished")]
    assert sorted(checks[:3]) == [("judge", True), ("reward", False), ("reward", True)] and checks[3:] == [
        ("reward", True)
    ]

    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert session.best_iteration == "sessions/story/iterations/2"
    assert session.best_judgment.score == pytest.approx(0.9) and session.best_judgment.passed
    assert list(session.best_judgment.samples) == pytest.approx([0.9, 0.9])
    assert session.best_score == session.best_judgment.score
    assert session.confirmation.score == pytest.approx(0.85)
    assert session.env_steps == 2 * 2 * 1000
    assert session.cost.requests == 4 and session.cost.dollars == pytest.approx(0.04)
    assert session.returns.mean == pytest.approx(85) and session.returns.random_mean < 0
    assert session.best_policy.startswith("sessions/story/iterations/2/assignments/train/members/default-s")
    assert stack.store.get(session.best_video) == b"mp4"

    neighbours = stack.neighbours
    keys = neighbours.agent.keys
    assert sorted(keys[:2]) == ["iterations/1/reward_author", "judge_author"]
    assert keys[2:] == ["iterations/1/reward_author/repair/1", "iterations/2/reviser"]
    scores, first, unknown = neighbours.agent.tool_results
    assert json.loads(scores.content)[0]["score"] == pytest.approx(0.3)
    assert json.loads(first.content)["source"] == WEAK
    assert unknown.is_error and "there is no iteration 9" in unknown.content

    iteration = await stack.sessions.GetIteration(pb.GetIterationRequest(name=session.best_iteration))
    assert iteration.parent == "sessions/story/iterations/1" and iteration.reward.source == GOOD
    assert iteration.score == iteration.judgment.score and iteration.confirmed_score == iteration.confirmation.score
    assert "-# weak reward" in iteration.diff and iteration.lesson == "speed needs weight"
    folder = "sessions/story/iterations/1"
    assert stack.store.get(f"{folder}/reward.py").decode() == WEAK
    assert stack.store.get(f"{folder}/judge.py").decode() == JUDGE
    assert json.loads(stack.store.get(f"{folder}/judgment.json"))["score"] == pytest.approx(0.3)
    assert json.loads(stack.store.get(f"{folder}/assignments/train/spec.json"))["train"]["members"]

    listing = pb.ListAssignmentsRequest(parent="sessions/story/iterations/-")
    listed = (await stack.sessions.ListAssignments(listing)).assignments
    assert [entry.name.rpartition("/")[2] for entry in listed] == ["train", "train", "confirm"]
    assert all(entry.state == v1.ASSIGNMENT_STATE_SUCCEEDED and not entry.failures for entry in listed)
    assert [len(member.evaluations) for member in listed[0].members] == [1, 1]  # each was reported twice
    runs = (await stack.sessions.ListRuns(pb.ListRunsRequest(parent="sessions/story"))).runs
    assert all(run.state == v1.RUN_STATE_SUCCEEDED and run.attempt == 1 for run in runs)
    lineage = await stack.sessions.GetLineage(pb.GetLineageRequest(name=created.name))
    assert [(node.score, node.best) for node in lineage.nodes] == [
        (pytest.approx(0.3), False),
        (pytest.approx(0.9), True),
    ]

    # The same request again is the same session; another request under its id is refused.
    again = await stack.sessions.CreateSession(request)
    assert again.name == created.name
    with pytest.raises(grpc.aio.AioRpcError) as reused:
        await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(seeds=1), request_id="r-1"))
    assert code(reused.value) == "ALREADY_EXISTS"
    # A watch resumes after its token.
    rest = await watch(stack.sessions, created.name, token=str(events[9].sequence))
    assert rest == events[10:]
    assert len(neighbours.agent.tasks) == 4
    await asyncio.sleep(0)


async def run_with(stack: Stack, source: str, **more: object) -> v1.Session:
    """A session on given sources, to its end."""
    session_spec = spec(reward_source=source, judge_source=JUDGE, max_iterations=1, **more)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec))
    await watch(stack.sessions, created.name)
    return await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))


async def last_run(stack: Stack, session: v1.Session) -> v1.Run:
    return (await stack.sessions.ListRuns(pb.ListRunsRequest(parent=session.name))).runs[-1]


async def last_assignment(stack: Stack, session: v1.Session) -> v1.Assignment:
    listing = pb.ListAssignmentsRequest(parent=f"{session.name}/iterations/-")
    return (await stack.sessions.ListAssignments(listing)).assignments[-1]


async def test_ends_that_are_not_success(stack: Stack) -> None:
    stack.options = {"max_run_failures": 1, "max_parallel_runs": 4}
    stack.neighbours.renderer.broken = True
    await stack.start()
    rejected, faulty, crashing, wild, once, lucky, train_only = await asyncio.gather(
        run_with(stack, "# bad\n"),
        run_with(stack, "# good # crash-code\n", seeds=1),
        run_with(stack, "# good # crash\n", seeds=1),
        run_with(stack, "# good # wild\n", seeds=1),
        run_with(stack, "# good # crash-once\n", seeds=1),
        run_with(stack, "# lucky\n", seeds=1),
        run_with(stack, "# weak\n", seeds=1, train_only=True),
    )
    # A user's own code is not repaired behind the user's back.
    assert stack.neighbours.agent.tasks == []
    assert rejected.state == v1.SESSION_STATE_FAILED and rejected.failure.reason == "REWARD_REJECTED"
    assert "undeclared-term (line 3): term 'x' is not declared; seen: x" in rejected.failure.message

    # Generated code that broke in training is not tried again as it is.
    assert faulty.failure.reason == "REWARD_REJECTED" and "ZeroDivisionError in term speed" in faulty.failure.message
    fault = await last_assignment(stack, faulty)
    assert (fault.state, fault.failures, fault.generated_code_fault) == (v1.ASSIGNMENT_STATE_FAILED, 0, True)
    assert (await last_run(stack, faulty)).attempt == 1

    assert crashing.failure.reason == "TRAINER_FAILED" and "out of luck" in crashing.failure.message
    assert (await last_run(stack, crashing)).attempt == 2  # one repetition was allowed
    assert wild.failure.reason == "DIVERGED" and wild.failure.remedy == "remedy for DIVERGED"
    assert (await last_run(stack, wild)).attempt == 1

    assert once.state == v1.SESSION_STATE_SUCCEEDED
    assert once.best_policy and not once.best_video  # rendering failed, which fails nothing else
    runs = await stack.sessions.ListRuns(pb.ListRunsRequest(parent=once.name))
    assert runs.runs[0].attempt == 2 and runs.runs[0].conditions[0].type == "TRAINER_FAILED"

    assert lucky.state == v1.SESSION_STATE_EXHAUSTED and lucky.best_judgment.passed
    assert lucky.confirmation.score == pytest.approx(0.4) and not lucky.confirmation.passed
    assert train_only.state == v1.SESSION_STATE_SUCCEEDED and not train_only.HasField("best_judgment")
    assert train_only.returns.mean == pytest.approx(30) and train_only.best_policy


async def test_a_budget_ends_the_session_and_the_best_is_delivered(stack: Stack) -> None:
    await stack.start()
    session_spec = spec(budget=v1.Budget(env_steps=2000), judge_source=JUDGE, reward_source=WEAK)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec))
    await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_EXHAUSTED and "2000 of 2000 environment steps" in session.state_reason
    assert session.env_steps == 2000 and session.best_policy and session.best_video

    priced = spec(budget=v1.Budget(dollars=0.015))
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=priced))
    await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    # Both authors wrote at once; a repair was no longer affordable.
    assert session.state == v1.SESSION_STATE_EXHAUSTED and "0.0200 of 0.0150" in session.state_reason
    assert not session.best_policy


async def test_cancel_resume_steer_delete(stack: Stack) -> None:
    await stack.start()
    session_spec = spec(reward_source="# good # slow\n", judge_source=JUDGE, seeds=1, max_iterations=1)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec, session_id="slow"))
    await wait_for(stack, "slow", lambda entry: entry.members[0].env_steps > 0)
    with pytest.raises(grpc.aio.AioRpcError) as early:
        await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=created.name))
    assert code(early.value) == "FAILED_PRECONDITION" and "cancel it first" in early.value.details()
    await stack.sessions.SteerSession(pb.SteerSessionRequest(name=created.name, note="keep the back level"))
    await stack.sessions.CancelSession(pb.CancelSessionRequest(name=created.name, reason="enough"))
    await watch(stack.sessions, created.name, seconds=20)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert (session.state, session.state_reason) == (v1.SESSION_STATE_CANCELLED, "enough")
    run = await last_run(stack, session)
    assert run.state == v1.RUN_STATE_CANCELLED
    assert (await last_assignment(stack, session)).state == v1.ASSIGNMENT_STATE_CANCELLED

    (stack.folder / "go").touch()
    resumed = await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=created.name))
    ended = session.end_time.ToMicroseconds() / 1e6
    assert resumed.epoch == 1 and 0 < resumed.idle_seconds < time.time() - ended
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    listing = pb.ListAssignmentsRequest(parent=f"{created.name}/iterations/1")
    listed = (await stack.sessions.ListAssignments(listing)).assignments
    # The same assignment, in the next run, from its checkpoint.
    assert len(listed) == 2 and all(entry.run == "sessions/slow/runs/r2" for entry in listed)
    log = (stack.folder / "logs" / "sessions_slow_runs_r2.log").read_text()
    assert "begins at checkpoint 'checkpoints/5.safetensors'" in log
    assert any(event.note_added.note == "keep the back level" for event in events)
    assert len(stack.neighbours.judge.checks) == 3  # the reward, checked once, was not checked again

    with pytest.raises(grpc.aio.AioRpcError) as stale:
        await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=created.name, etag="0"))
    assert code(stale.value) == "ABORTED"
    gone = await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=created.name, etag=session.etag))
    assert gone.HasField("delete_time")
    assert not (await stack.sessions.ListSessions(pb.ListSessionsRequest())).sessions
    assert (await stack.sessions.ListSessions(pb.ListSessionsRequest(show_deleted=True))).sessions
    back = await stack.sessions.UndeleteSession(pb.UndeleteSessionRequest(name=created.name))
    assert not back.HasField("delete_time")


async def wait_for(stack: Stack, session: str, ready: object, *, seconds: float = 30.0) -> None:
    """Waits until the session's last assignment is as wanted."""
    async with asyncio.timeout(seconds):
        while True:
            listing = pb.ListAssignmentsRequest(parent=f"sessions/{session}/iterations/-")
            listed = (await stack.sessions.ListAssignments(listing)).assignments
            if listed and ready(listed[-1]):  # type: ignore[operator]
                return
            await asyncio.sleep(0.1)


async def test_a_session_without_further_proposals_delivers_its_best_policy(stack: Stack) -> None:
    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        if task.HasField("reviser"):
            raise FailedPrecondition("nothing is left to try", reason="TEMPLATE_NO_REVISION")
        return author(task)

    stack.neighbours.agent.answer = answer
    await stack.start()
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(seeds=1)))
    await stack.sessions.SteerSession(pb.SteerSessionRequest(name=created.name, note="faster"))
    await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_EXHAUSTED and "nothing is left to try" in session.state_reason
    assert session.exhaustion_reason == v1.EXHAUSTION_REASON_NO_PROPOSAL
    assert session.best_video and session.best_judgment.score == pytest.approx(0.3)
    reviser = stack.neighbours.agent.tasks[-1].reviser
    assert list(reviser.notes) == ["faster"] and "config default seed 0" in reviser.dynamics

    # The same folder again, by a server that only reads.
    await stack.stop()
    stack.options = {"recover": False}
    await stack.start()
    again = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert again == session
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec()))
    assert code(refused.value) == "FAILED_PRECONDITION" and "read-only" in refused.value.details()
