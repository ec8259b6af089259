"""A training continues while it improves: from decisions at its checkpoints, recorded with their reasons."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.sdk.texts import course_text

from tests.fakes import killing
from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.killed_sessions import ended_session
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import place

pytestmark = pytest.mark.asyncio
STEPS, MOST = 80_000, 240_000
RISING = ",".join(f"{0.05 * mark:.2f}" for mark in range(1, 9))


async def play(stack: Stack, source: str, **more: Any) -> tuple[v1.Session, v1.Assignment, list[ev.Event]]:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2, "max_iterations": 1}
    lengths = {"steps_per_member": STEPS, "max_steps_per_member": MOST}
    spec = reward_session(**{**base, **lengths, "reward_source": source, "judge_source": JUDGE, **more})
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    listing = pb.ListAssignmentsRequest(parent=f"{created.name}/iterations/1")
    return session, (await stack.sessions.ListAssignments(listing)).assignments[0], events


async def course_of(stack: Stack, session: v1.Session) -> v1.TrainingCourse:
    tree = await stack.sessions.GetLineage(pb.GetLineageRequest(name=session.name))
    return tree.nodes[0].course


async def test_it_goes_on_while_it_rises_and_ends_where_it_passes(stack: Stack) -> None:
    await stack.start()
    session, training, events = await play(stack, f"# good\n# open={RISING},0.50,0.85 \n")
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.failure
    stopped = training.early_stop
    assert (stopped.reason, stopped.env_step, stopped.env_steps_saved) == (v1.STOP_REASON_PASSES, 100_000, 0)
    assert stopped.score == pytest.approx(0.85) and stopped.required_score == pytest.approx(0.7)
    granted = [extension.env_steps for extension in training.extensions]
    assert granted == sorted(set(granted)) and granted[0] > STEPS and granted[-1] >= 100_000
    assert all(extension.rise.score_rises and extension.rise.return_rises for extension in training.extensions)
    assert [e.training_extended.extension for e in events if e.HasField("training_extended")] == list(
        training.extensions
    )
    for member in training.members:
        assert [e.env_step for e in member.evaluations] == [10_000 * mark for mark in range(1, 11)]
        assert member.policy and member.target_env_steps == granted[-1]
    course = await course_of(stack, session)
    assert (course.expected_steps, course.env_steps, course.max_steps) == (STEPS, 100_000, MOST)
    assert course.early_stop == stopped and list(course.extensions) == list(training.extensions)
    assert course_text(course).startswith(
        "trained 100,000 steps (80,000 expected, at most 240,000): the seeds scored 0.85"
    )


async def test_it_ends_at_its_expected_steps_where_nothing_rises(stack: Stack) -> None:
    await stack.start()
    session, training, events = await play(stack, "# open=0.20 score=0.2 \n")
    assert session.state == v1.SESSION_STATE_EXHAUSTED and session.best_policy
    assert (training.early_stop.reason, training.early_stop.env_step) == (v1.STOP_REASON_LEVEL, STEPS)
    assert not training.extensions and not any(e.HasField("training_extended") for e in events)
    assert training.early_stop.rise.checkpoints == 5


async def test_it_trains_at_most_its_largest_number_of_steps(stack: Stack) -> None:
    await stack.start()
    most = 110_000
    scores = ",".join(f"{0.02 * mark:.2f}" for mark in range(1, 12))
    session, training, _ = await play(stack, f"# open={scores} \n", max_steps_per_member=most)
    assert not training.HasField("early_stop") and training.extensions[-1].env_steps == most
    assert {member.env_steps for member in training.members} == {most}
    course = await course_of(stack, session)
    assert course.env_steps == most and "still rising at the end" in course_text(course)


async def test_the_budget_of_steps_bounds_it(stack: Stack) -> None:
    await stack.start()
    scores = ",".join(f"{0.02 * mark:.2f}" for mark in range(1, 12))
    session, training, _ = await play(stack, f"# open={scores} \n", budget=v1.Budget(env_steps=190_000))
    assert {member.env_steps for member in training.members} == {95_000} and session.env_steps == 190_000


async def test_a_judge_that_fails_leaves_no_training_waiting(stack: Stack) -> None:
    await stack.start()
    session, training, _ = await play(stack, "# open=0.20 \n", judge_source="# a judge # crashes\n")
    assert (training.early_stop.reason, training.early_stop.env_step) == (v1.STOP_REASON_NOT_JUDGED, STEPS)
    assert training.state == v1.ASSIGNMENT_STATE_SUCCEEDED and session.state == v1.SESSION_STATE_FAILED
    assert session.best_policy  # delivered all the same


async def killed(stack: Stack, step: int) -> tuple[Any, ...]:
    """Play a session whose server dies after the work of its n-th step, before that is recorded; 0: without a kill."""
    source = f"# good\n# open={RISING},0.50,0.85 \n"
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 1, "max_iterations": 1}
    lengths = {"steps_per_member": STEPS, "max_steps_per_member": MOST}
    spec = reward_session(**base, **lengths, reward_source=source, judge_source=JUDGE)
    async with ended_session(stack, spec, step) as (stub, name, events):
        session = await stub.GetSession(pb.GetSessionRequest(name=name))
        tree = await stub.GetLineage(pb.GetLineageRequest(name=name))
    extended = [e.training_extended.extension.env_steps for e in events if e.HasField("training_extended")]
    stopped = [e.training_stopped.early_stop for e in events if e.HasField("training_stopped")]
    course = tree.nodes[0].course
    assert [extension.env_steps for extension in course.extensions] == extended == sorted(set(extended))
    return session.state, stopped, course.early_stop, course.env_steps, session.best_judgment.score


@pytest.mark.timeout(900)
async def test_a_kill_after_a_decision_leads_to_the_same_end(stack: Stack) -> None:
    calm = await killed(stack, 0)
    assert calm[0] == v1.SESSION_STATE_SUCCEEDED and calm[3] == 100_000
    steps = killing.steps(stack.folder / "killed-0")
    for name in ("extend:1", "early-stop:1"):
        assert await killed(stack, place(steps, name)) == calm, name
