"""A training that ends early: delivered and evaluated as a finished one, recorded with the steps that it saved."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio


async def play(stack: Stack, source: str, **more: Any) -> tuple[v1.Session, v1.Assignment, list[ev.Event]]:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2, "max_iterations": 1}
    spec = reward_session(
        **{**base, "steps_per_member": 1000, "evaluations": 4, "reward_source": source, "judge_source": JUDGE, **more}
    )
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    listing = pb.ListAssignmentsRequest(parent=f"{created.name}/iterations/1")
    return session, (await stack.sessions.ListAssignments(listing)).assignments[0], events


async def test_a_training_ends_early_once_every_seed_passes(stack: Stack) -> None:
    await stack.start()
    session, training, events = await play(stack, "# good # gradual # curve=0.85\n")
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.best_judgment.score == pytest.approx(0.9)
    stopped = training.early_stop
    assert (stopped.env_step, stopped.score, stopped.required_score) == (500, 0.85, pytest.approx(0.8))
    assert training.state == v1.ASSIGNMENT_STATE_SUCCEEDED
    (event,) = [e.training_stopped for e in events if e.HasField("training_stopped")]
    assert event.assignment == training.name and event.early_stop == stopped
    # What the trainer had done when the decision was made is not saved: half of the first member's steps at least.
    assert 0 < stopped.env_steps_saved == session.env_steps_saved <= 1500
    assert session.env_steps == sum(member.env_steps for member in training.members)
    for member in training.members:
        # The last checkpoint has as many episodes as that of a finished training, and later ones are gone.
        assert [(e.env_step, len(e.returns)) for e in member.evaluations] == [(250, 3), (500, 10)]
        assert member.policy and member.judgment.score == pytest.approx(0.9)
        assert all("_final_" in rollout.artifact for rollout in member.evaluations[-1].rollouts)
    assert session.best_policy and session.best_video.endswith("/500_median.mp4")


async def test_without_early_stop_it_trains_all_steps(stack: Stack) -> None:
    (stack.folder / "go").touch()
    await stack.start()
    for more in ({"early_stop": False}, {"config_variants": True, "seeds": 1}):
        session, training, events = await play(stack, "# good # gradual # curve=0.85\n", **more)
        assert session.state == v1.SESSION_STATE_SUCCEEDED and not training.HasField("early_stop")
        assert not session.env_steps_saved and not any(e.HasField("training_stopped") for e in events)
        assert {member.env_steps for member in training.members} == {1000}
