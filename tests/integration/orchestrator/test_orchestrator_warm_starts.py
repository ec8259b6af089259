"""Iterations that continue from their parent's policies: who decided, what continues, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.sdk.texts import warm_start_text
from google.protobuf.json_format import ParseDict
from grpc.aio import AioRpcError

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import GOOD, JUDGE, WEAK, author, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
BASE = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2, "max_iterations": 2}


async def play(stack: Stack, revision: agent_pb.Revision | None = None, **more: Any) -> tuple[v1.Session, v1.WarmStart]:
    """A session whose first reward is weak; the start of its second training, which the reviser wrote."""

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = author(task)
        if task.WhichOneof("role") == "reviser" and revision is not None:
            result.revision.MergeFrom(revision)
        return result

    stack.neighbours.agent.answer = answer
    given = {**BASE, "steps_per_member": 1000, "reward_source": WEAK, "judge_source": JUDGE, **more}
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=reward_session(**given)))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    tree = await stack.sessions.GetLineage(pb.GetLineageRequest(name=created.name))
    assert len(tree.nodes) == 2 and not tree.nodes[0].HasField("warm_start")
    start = tree.nodes[1].warm_start
    reported = [e.warm_started.warm_start for e in events if e.HasField("warm_started")]
    assert reported == ([start] if tree.nodes[1].HasField("warm_start") else [])
    return session, start


def members(stack: Stack, session: v1.Session) -> list[work.MemberSpec]:
    """The members of the second training, as a trainer gets them."""
    path = stack.folder / "artifacts" / session.name / "iterations/2/assignments/train/spec.json"
    return list(ParseDict(json.loads(path.read_text()), work.Assignment()).train.members)


async def test_the_reviser_chooses_and_each_seed_continues_from_its_own(stack: Stack) -> None:
    await stack.start()
    chosen = agent_pb.Revision(from_parent=True, start_reasoning="it runs already")
    session, start = await play(stack, chosen)
    assert (start.decided_by, start.reason, start.keeps_value) == ("test/model", "it runs already", False)
    assert start.score == pytest.approx(0.3) and start.iteration == f"{session.name}/iterations/1"
    text = warm_start_text(start)
    assert text.startswith("continues from the policies of iteration 1 (score 0.30; value network reset; decided by ")
    for member in members(stack, session):
        prefix = f"{session.name}/iterations/1/assignments/train/members/{member.id}/policy"
        assert member.start == work.StartPolicy(bundle=prefix)
    offered = [task.reviser.may_continue_from for task in stack.neighbours.agent.tasks if task.HasField("reviser")]
    assert offered == [[1]]


async def test_without_a_choice_and_with_never_it_starts_anew(stack: Stack) -> None:
    await stack.start()
    session, start = await play(stack)
    assert start == v1.WarmStart() and not any(member.HasField("start") for member in members(stack, session))
    stack.neighbours.agent.tasks.clear()
    chosen = agent_pb.Revision(from_parent=True)
    session, start = await play(stack, chosen, from_parent=v1.FROM_PARENT_NEVER)
    assert start == v1.WarmStart() and not any(member.HasField("start") for member in members(stack, session))
    assert not any(task.reviser.may_continue_from for task in stack.neighbours.agent.tasks)


async def test_the_value_network_continues_where_the_reward_does(stack: Stack) -> None:
    await stack.start()
    tuned = agent_pb.Revision(hyperparameters=v1.Hyperparameters(learning_rate=1e-4))
    tuned.source = WEAK
    session, start = await play(stack, tuned, from_parent=v1.FROM_PARENT_ALWAYS, tune_hyperparameters=True)
    assert start.keeps_value and start.decided_by == "user"
    assert all(member.start.keeps_value for member in members(stack, session))


async def test_the_same_reward_continues_where_the_reviser_chooses_so(stack: Stack) -> None:
    await stack.start()
    session, start = await play(stack, agent_pb.Revision(source=WEAK, from_parent=True, start_reasoning="it improves"))
    assert start.keeps_value and not start.refused and start.decided_by == "test/model"
    assert all(member.start.keeps_value for member in members(stack, session))


async def test_another_network_is_refused_with_its_reason(stack: Stack) -> None:
    await stack.start()
    larger = agent_pb.Revision(hyperparameters=v1.Hyperparameters(hidden_sizes=[128, 128]))
    session, start = await play(stack, larger, from_parent=v1.FROM_PARENT_ALWAYS, tune_hyperparameters=True)
    assert start.refused == "its network of 128x128 units differs from the 64x64 of iteration 1"
    assert "does not continue from iteration 1: its network" in warm_start_text(start)
    assert not any(member.HasField("start") for member in members(stack, session))


async def test_a_person_chooses_when_steering(stack: Stack) -> None:
    await stack.start()
    given = {**BASE, "steps_per_member": 1000, "reward_source": WEAK, "judge_source": JUDGE, "max_iterations": 1}
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=reward_session(**given)))
    await watch(stack.sessions, created.name)
    steer = pb.SteerSessionRequest(
        name=created.name, proposal_source=GOOD, rebase_to=1, from_parent=v1.FROM_PARENT_ALWAYS
    )
    await stack.sessions.SteerSession(steer)
    await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=created.name, additional_iterations=1))
    await watch(stack.sessions, created.name)
    tree = await stack.sessions.GetLineage(pb.GetLineageRequest(name=created.name))
    assert tree.nodes[1].warm_start.decided_by == "user" and tree.nodes[1].author == "user"
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert all(member.HasField("start") for member in members(stack, session))


async def test_a_backend_that_cannot_continue_is_refused_at_once(stack: Stack) -> None:
    await stack.start()
    spec = reward_session(**BASE, backend="sb3", from_parent=v1.FROM_PARENT_ALWAYS)
    with pytest.raises(AioRpcError, match="cannot continue from a policy"):
        await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec))
