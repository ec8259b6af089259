"""A method of a hundred lines, registered from the tests' folder by its entry point, through all that the API offers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import benchmark_service_pb2 as bench_api
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import FailedPrecondition
from dressage_orchestrator.lifecycle.outcome import BUDGETS
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from tests.integration.orchestrator.fakes import code, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
PLUGIN = Path(__file__).parents[2] / "plugin"


@pytest_asyncio.fixture
async def server(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """The stack with the plug-in on its path, and an author that proposes 1, 2, 3, …."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    stack.neighbours.agent.answer = numbers(1, 2, 3, 4, 5, 6, 7)
    await stack.start()
    yield stack


def numbers(*proposed: float) -> Callable[[agent_pb.Task], agent_pb.TaskResult]:
    """An author that proposes the numbers one after another, each for a cent."""
    left = list(proposed)

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = agent_pb.TaskResult(model=task.model)
        result.cost.CopyFrom(v1.Cost(requests=1, input_tokens=100, output_tokens=10, dollars=0.01))
        result.reward.CopyFrom(agent_pb.RewardProposal(source="# none\n", reasoning=f"{left.pop(0)}"))
        return result

    return answer


def spec(*, more: dict[str, Any] | None = None, **settings: float) -> v1.SessionSpec:
    """A session that looks for 3, by default."""
    from number_method import NumberSpec  # on the path by the fixture

    session_spec = v1.SessionSpec(intent="find the number", environment="environments/CartPole-v1", **(more or {}))
    session_spec.custom.Pack(NumberSpec(**{"target": 3.0, **settings}))
    return session_spec


async def create(server: Stack, ident: str, requested: v1.SessionSpec) -> v1.Session:
    request = pb.CreateSessionRequest(spec=requested, session_id=ident)
    created: v1.Session = await server.sessions.CreateSession(request)
    return created


async def ended(server: Stack, session: v1.Session) -> tuple[v1.Session, list[v1.Iteration], list[ev.Event]]:
    """The session once it has ended, its iterations, and its events, which are numbered without a gap."""
    events = await watch(server.sessions, session.name)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    final = await server.sessions.GetSession(pb.GetSessionRequest(name=session.name))
    listed = await server.sessions.ListIterations(pb.ListIterationsRequest(parent=session.name))
    return final, list(listed.iterations), events


def values(iterations: list[v1.Iteration]) -> list[float]:
    """The proposed numbers."""
    from number_method import NumberProposal

    entries = [NumberProposal() for _ in iterations]
    assert all(entry.custom.Unpack(proposal) for entry, proposal in zip(iterations, entries, strict=True))
    return [proposal.number for proposal in entries]


async def until(server: Stack, session: v1.Session, holds: Callable[[v1.Session], bool]) -> v1.Session:
    async with asyncio.timeout(60):
        while True:
            final: v1.Session = await server.sessions.GetSession(pb.GetSessionRequest(name=session.name))
            if holds(final):
                return final
            await asyncio.sleep(0.02)


def fields(error: grpc.aio.AioRpcError) -> list[str]:
    """The fields that a failed call names."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata() or ())["grpc-status-details-bin"])
    result = error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Is(result.DESCRIPTOR):
            detail.Unpack(result)
    return [violation.field for violation in result.field_violations]


async def test_numbers_are_proposed_until_one_passes_and_is_confirmed(server: Stack) -> None:
    created = await create(server, "story", spec())
    assert (created.method, created.goal) == ("number", "0.7")
    session, iterations, events = await ended(server, created)

    # Defaults: of the method and of all sessions.
    from number_method import NumberSpec

    settings = NumberSpec()
    session.spec.custom.Unpack(settings)
    assert (settings.target, settings.scale, session.spec.max_iterations) == (3.0, 1.0, 5)
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert values(iterations) == [1.0, 2.0, 3.0]
    assert [entry.score for entry in iterations] == pytest.approx([1 / 3, 1 / 2, 1.0])
    assert [entry.passed for entry in iterations] == [False, False, True]
    assert (session.best_score, iterations[2].confirmed_score) == (1.0, 1.0)
    assert session.best_iteration == "sessions/story/iterations/3" == iterations[2].name
    assert session.best_policy == "sessions/story/iterations/3/policy"
    assert server.store.get(f"{session.best_policy}/number.txt") == b"3"
    assert not session.HasField("best_judgment") and not session.returns.episodes and not session.best_video
    assert (session.cost.requests, session.cost.dollars) == (3, pytest.approx(0.03))
    assert "2 scores 0.500" in server.neighbours.agent.tasks[2].reward_author.brief.intent

    phases = [(e.iteration, v1.Phase.Name(e.phase_changed.phase)[6:]) for e in events if e.HasField("phase_changed")]
    each = ["PROPOSE", "CHECK", "EVALUATE", "DONE"]
    last = ["PROPOSE", "CHECK", "EVALUATE", "CONFIRM", "DONE"]
    assert phases == [(1, p) for p in each] + [(2, p) for p in each] + [(3, p) for p in last]
    scored = [
        (e.iteration, e.scored.score, e.scored.passed, e.scored.confirmed) for e in events if e.HasField("scored")
    ]
    assert scored == [
        (1, pytest.approx(1 / 3), False, False),
        (2, pytest.approx(1 / 2), False, False),
        (3, 1.0, True, False),
        (3, 1.0, True, True),
    ]
    assert await watch(server.sessions, created.name, token="7") == events[7:]

    lineage = await server.sessions.GetLineage(pb.GetLineageRequest(name=created.name))
    assert [(node.score, node.best) for node in lineage.nodes] == [
        (pytest.approx(1 / 3), False),
        (pytest.approx(1 / 2), False),
        (1.0, True),
    ]
    assert [node.parent.rpartition("/")[2] for node in lineage.nodes] == ["", "1", "2"]
    listed = await server.sessions.ListSessions(pb.ListSessionsRequest())
    assert [entry.name for entry in listed.sessions] == [created.name]


async def test_what_the_method_refuses_and_what_it_estimates(server: Stack) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await create(server, "wrong", spec(scale=-1.0))
    assert code(refused.value) == "INVALID_ARGUMENT" and fields(refused.value) == ["spec.custom.scale"]
    unknown = v1.SessionSpec(intent="x", environment="environments/CartPole-v1")
    unknown.custom.CopyFrom(AnyMessage(type_url="type.googleapis.com/other.Spec"))
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await create(server, "missing", unknown)
    assert fields(missing.value) == ["spec.custom"] and "code, number, parameters, program, reward" in str(
        missing.value.details()
    )
    estimate = await server.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec()))
    assert (estimate.method, estimate.goal, estimate.model_calls_per_iteration) == ("number", "0.7", 1)
    assert estimate.dollars_per_iteration == pytest.approx((100 * 1.0 + 10 * 10.0) / 1e6)
    assert estimate.env_steps_per_iteration == 0 == estimate.minutes_per_iteration


async def test_people_steer_edit_and_approve(server: Stack) -> None:
    """A note, a number of a person's, a rebase; a proposal is edited while it waits, and approved."""
    session_spec = spec(start=40, target=30, more={"approve_before_evaluation": True, "max_iterations": 3})
    created = await create(server, "people", session_spec)
    stub = server.sessions
    await until(server, created, lambda s: s.awaiting_approval == 1)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.SteerSession(pb.SteerSessionRequest(name=created.name, proposal_source="forty"))
    assert fields(refused.value) == ["proposal_source"]
    await stub.SteerSession(pb.SteerSessionRequest(name=created.name, proposal_source="20"))

    async def replaced() -> None:
        name = f"{created.name}/iterations/1"
        while values([await stub.GetIteration(pb.GetIterationRequest(name=name))]) != [20.0]:
            await asyncio.sleep(0.02)

    await asyncio.wait_for(replaced(), 60)
    await until(server, created, lambda s: s.awaiting_approval == 1)
    await stub.ApproveSession(pb.ApproveSessionRequest(name=created.name, note="fine"))
    await until(server, created, lambda s: s.awaiting_approval == 2)
    # A note, and the iteration that the third starts from.
    steer = pb.SteerSessionRequest(name=created.name, note="try a small one", rebase_to=1)
    await stub.SteerSession(steer)
    await stub.ApproveSession(pb.ApproveSessionRequest(name=created.name))
    await until(server, created, lambda s: s.awaiting_approval == 3)
    await stub.ApproveSession(pb.ApproveSessionRequest(name=created.name))
    session, iterations, events = await ended(server, created)
    assert session.state == v1.SESSION_STATE_EXHAUSTED and "is below 0.7" in session.state_reason
    assert values(iterations) == [20.0, 1.0, 2.0] and session.approval_wait_seconds > 0
    assert (iterations[0].author, list(iterations[0].edited)) == ("user", ["proposal"])
    assert list(iterations[0].notes) == ["fine"] and list(iterations[2].notes) == ["try a small one"]
    assert [entry.parent.rpartition("/")[2] for entry in iterations] == ["", "1", "1"]
    output = server.neighbours.agent.tasks[1].reward_author.brief.intent
    assert "try a small one" in output and "20 scores" in output
    assert [e.approval_granted.note for e in events if e.HasField("approval_granted")] == ["fine", "", ""]
    assert session.best_iteration == iterations[0].name and session.best_policy == f"{iterations[0].name}/policy"

    # An ended session keeps a person's number for when it is extended.
    await stub.SteerSession(pb.SteerSessionRequest(name=created.name, proposal_source="30", note="my own"))
    await stub.ResumeSession(pb.ResumeSessionRequest(name=created.name, additional_iterations=2))
    await until(server, created, lambda s: s.awaiting_approval == 4)
    await stub.ApproveSession(pb.ApproveSessionRequest(name=created.name))
    session, iterations, _ = await ended(server, created)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.epoch == 1 and session.spec.max_iterations == 5
    assert values(iterations)[3:] == [30.0] and iterations[3].author == "user"
    assert list(iterations[3].notes) == ["my own"] and len(server.neighbours.agent.tasks) == 2


@pytest.mark.parametrize(
    ("kind", "bound", "more"),
    [
        ("dollars", v1.Budget(dollars=0.015), v1.Budget(dollars=1.0)),
        ("tokens", v1.Budget(tokens=200), v1.Budget(tokens=9000)),
    ],
)
async def test_a_budget_ends_it_and_more_extends_it(
    server: Stack, kind: str, bound: v1.Budget, more: v1.Budget
) -> None:
    created = await create(server, "budget", spec(more={"budget": bound}))
    session, iterations, _ = await ended(server, created)
    assert (session.state, BUDGETS[session.exhaustion_reason]) == (v1.SESSION_STATE_EXHAUSTED, kind), (
        session.state_reason
    )
    assert session.cost.requests == 2 and session.cost_by_role["reward_author"].requests == 2
    assert session.best_policy == "sessions/budget/iterations/2/policy" and session.best_score == pytest.approx(0.5)
    assert not iterations[2].HasField("score")
    await server.sessions.ResumeSession(pb.ResumeSessionRequest(name=created.name, budget=more))
    session, iterations, _ = await ended(server, created)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and values(iterations) == [1.0, 2.0, 3.0]
    assert not session.exhaustion_reason and session.cost.requests == 3


async def test_cancelled_resumed_failed_resumed_and_deleted(server: Stack) -> None:
    stub, agent = server.sessions, server.neighbours.agent
    agent.delay = 30.0
    created = await create(server, "ways", spec())
    await until(server, created, lambda _: bool(agent.tasks))
    with pytest.raises(grpc.aio.AioRpcError) as early:
        await stub.DeleteSession(pb.DeleteSessionRequest(name=created.name))
    assert code(early.value) == "FAILED_PRECONDITION"
    await stub.CancelSession(pb.CancelSessionRequest(name=created.name, reason="enough"))
    session, iterations, _ = await ended(server, created)
    assert (session.state, session.state_reason) == (v1.SESSION_STATE_CANCELLED, "enough") and len(iterations) == 1

    # Resumed, its author fails in the second iteration: what the first achieved is delivered.
    agent.delay, proposing = 0.0, numbers(1.5, 3)

    def failing(task: agent_pb.Task) -> agent_pb.TaskResult:
        if task.key == "iterations/2/number-e1":
            raise FailedPrecondition("the key was revoked", reason="LLM_UNAUTHENTICATED")
        return proposing(task)

    agent.answer = failing
    await stub.ResumeSession(pb.ResumeSessionRequest(name=created.name))
    session, _, _ = await ended(server, created)
    assert (session.state, session.failure.reason) == (v1.SESSION_STATE_FAILED, "LLM_UNAUTHENTICATED")
    assert session.best_policy == "sessions/ways/iterations/1/policy" and session.best_score == pytest.approx(0.4)

    # Resumed again, it continues in the second.
    await stub.ResumeSession(pb.ResumeSessionRequest(name=created.name))
    session, iterations, _ = await ended(server, created)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and values(iterations) == [1.5, 3.0] and session.epoch == 2
    assert [task.key for task in agent.tasks] == [
        "iterations/1/number",
        "iterations/1/number-e1",
        "iterations/2/number-e1",
        "iterations/2/number-e2",
    ]
    deleted = await stub.DeleteSession(pb.DeleteSessionRequest(name=created.name))
    assert deleted.HasField("delete_time")
    assert not (await stub.ListSessions(pb.ListSessionsRequest())).sessions
    await stub.UndeleteSession(pb.UndeleteSessionRequest(name=created.name))
    assert len((await stub.ListSessions(pb.ListSessionsRequest())).sessions) == 1


async def test_a_proposal_that_is_no_number_fails_its_session(server: Stack) -> None:
    def words(task: agent_pb.Task) -> agent_pb.TaskResult:
        return agent_pb.TaskResult(model=task.model, reward=agent_pb.RewardProposal(source="#", reasoning="seven"))

    server.neighbours.agent.answer = words
    session, iterations, _ = await ended(server, await create(server, "words", spec()))
    assert (session.state, session.failure.reason) == (v1.SESSION_STATE_FAILED, "NO_NUMBER")
    assert not session.best_policy and not iterations[0].HasField("custom")


async def test_a_benchmark_of_numbers_has_their_scores(server: Stack) -> None:
    cases = [
        bench_api.BenchmarkCase(intent=f"case {n}", environment="environments/CartPole-v1", difficulty="easy")
        for n in range(2)
    ]
    template = spec(start=2, more={"max_iterations": 1})
    created = await server.benchmarks.CreateBenchmark(bench_api.CreateBenchmarkRequest(cases=cases, template=template))
    request = bench_api.WatchBenchmarkRequest(name=created.name)
    last = [answer.benchmark async for answer in server.benchmarks.WatchBenchmark(request, timeout=60)][-1]
    assert [(case.score, list(case.iteration_scores)) for case in last.cases] == [(0.5, [0.5])] * 2
    assert last.groups[0].mean_score == 0.5 and last.passed == 0 and last.completed == 2


async def test_sessions_are_counted_under_their_method(server: Stack) -> None:
    """The gauge of sessions and the counter of iterations carry the plug-in's name."""
    from dressage_orchestrator import metrics
    from dressage_orchestrator.database.engine import Database, sqlite_url
    from dressage_orchestrator.gauges import Gauges

    await ended(server, await create(server, "counted", spec(start=3)))
    database = Database(sqlite_url(server.folder / "dressage.db"))
    Gauges(database).update()
    database.close()
    assert metrics.SESSIONS.labels("succeeded", "number")._value.get() == 1
    assert metrics.ITERATIONS.labels("number", "passed")._value.get() >= 1
