"""A named benchmark: what it repeats and continues when it is created again, and what a stop of the server costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as session_api
from dressage.errors import InvalidArgument

from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_api import refused
from tests.integration.orchestrator.test_orchestrator_plugin_method import PLUGIN, numbers, spec

pytestmark = pytest.mark.asyncio
NAME = "benchmarks/numbers"


@pytest_asyncio.fixture
async def server(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    monkeypatch.syspath_prepend(str(PLUGIN))
    stack.neighbours.agent.answer = numbers(*range(1, 50))
    await stack.start()
    yield stack


def request(*, runs: int = 1, iterations: int = 2, **more: Any) -> pb.CreateBenchmarkRequest:
    """A method that finds its number at once, and one that never does."""
    message = pb.CreateBenchmarkRequest(**{"name": NAME, **more})
    message.template.max_iterations = iterations
    for run in range(runs):
        for method, settings in (("near", {"target": 5, "start": 5}), ("far", {"target": 1000, "start": 2})):
            case = message.cases.add(intent="find the number", environment="environments/CartPole-v1", run=run)
            case.spec.custom.CopyFrom(spec(**settings).custom)
            case.spec.seed, case.method, case.session_id = run, method, f"numbers-{method}-{run}"
    return message


async def run(server: Stack, message: pb.CreateBenchmarkRequest) -> pb.Benchmark:
    created = await server.benchmarks.CreateBenchmark(message)
    watched = pb.WatchBenchmarkRequest(name=created.name)
    last = [answer.benchmark async for answer in server.benchmarks.WatchBenchmark(watched, timeout=90)][-1]
    assert isinstance(last, pb.Benchmark)
    return last


async def sessions(server: Stack) -> dict[str, v1.Session]:
    listed = await server.sessions.ListSessions(session_api.ListSessionsRequest(page_size=100))
    return {session.name.partition("/")[2]: session for session in listed.sessions}


async def test_more_runs_and_iterations_repeat_no_finished_case(server: Stack) -> None:
    first = await run(server, request())
    assert [(case.method, case.state, case.epoch) for case in first.cases] == [
        ("near", v1.SESSION_STATE_SUCCEEDED, 0),
        ("far", v1.SESSION_STATE_EXHAUSTED, 0),
    ]
    assert {(group.kind, group.value) for group in first.groups} >= {("method", "near"), ("method", "far")}
    before = await sessions(server)
    again = await run(server, request())
    assert {name: each.etag for name, each in (await sessions(server)).items()} == {
        name: each.etag for name, each in before.items()
    }, "nothing is repeated"
    assert list(again.cases) == list(first.cases)
    more = await run(server, request(runs=2, iterations=3))
    after = await sessions(server)
    assert {name: each.epoch for name, each in after.items()} == {
        "numbers-near-0": 0,
        "numbers-far-0": 1,  # its limit is larger now
        "numbers-near-1": 0,
        "numbers-far-1": 0,
    }
    assert [case.iterations for case in more.cases if case.method == "far"] == [3, 3] and more.completed == 4


async def test_a_failed_case_is_continued_once_for_each_request(server: Stack) -> None:
    server.neighbours.agent.answer = numbers()  # an author without answers
    assert [case.state for case in (await run(server, request())).cases] == [
        v1.SESSION_STATE_SUCCEEDED,
        v1.SESSION_STATE_FAILED,
    ]
    server.neighbours.agent.answer = numbers(*range(1, 50))
    repeated = request(request_id="again")
    assert (await run(server, repeated)).cases[1].state == v1.SESSION_STATE_EXHAUSTED
    await run(server, repeated)
    assert {name: each.epoch for name, each in (await sessions(server)).items()} == {
        "numbers-near-0": 0,
        "numbers-far-0": 1,
    }


async def test_a_stopped_server_continues_its_benchmark(server: Stack) -> None:
    """No client is needed for it, and no session is created twice."""
    message = request(runs=3, parallel=1)
    await server.benchmarks.CreateBenchmark(message)
    while not (await server.benchmarks.GetBenchmark(pb.GetBenchmarkRequest(name=NAME))).completed > 0:
        await asyncio.sleep(0.05)
    await server.stop()
    await server.start()
    async with asyncio.timeout(90):
        while True:
            benchmark = await server.benchmarks.GetBenchmark(pb.GetBenchmarkRequest(name=NAME))
            if benchmark.HasField("end_time"):
                break
            await asyncio.sleep(0.1)
    assert benchmark.completed == 6 and benchmark.passed == 3
    assert {each.epoch for each in (await sessions(server)).values()} == {0}


async def test_cases_that_have_not_begun_are_replaced_by_those_of_the_request(server: Stack) -> None:
    await server.benchmarks.CreateBenchmark(request(runs=20, parallel=1))
    last = await run(server, request(runs=2, parallel=4))
    assert len(last.cases) < 20 and {case.session_id for case in last.cases} >= {"numbers-near-1", "numbers-far-1"}
    assert last.completed == len(last.cases) == len(await sessions(server))


async def test_a_cancelled_benchmark_starts_no_case_until_it_is_created_again(server: Stack) -> None:
    await server.benchmarks.CreateBenchmark(request(runs=4, parallel=1))
    await server.benchmarks.CancelBenchmark(pb.CancelBenchmarkRequest(name=NAME))
    watched = pb.WatchBenchmarkRequest(name=NAME)
    stopped = [answer.benchmark async for answer in server.benchmarks.WatchBenchmark(watched, timeout=60)][-1]
    assert stopped.stopped_reason == "cancelled" and stopped.completed < 8
    assert (await run(server, request(runs=4, parallel=4))).completed == 8


async def test_ids_of_a_named_benchmark_are_distinct_and_complete(server: Stack) -> None:
    twice = request()
    twice.cases[1].session_id = twice.cases[0].session_id
    without = request()
    without.cases[1].session_id = ""
    wrong = request()
    wrong.cases[1].environment = "environments/Lost-v1"
    unchecked = request(runs=2)
    unchecked.cases[3].spec.seed = -1  # another run of a method that was checked
    fields = (
        (twice, "cases[0].session_id"),
        (without, "cases[1].session_id"),
        (wrong, "cases[1]"),
        (unchecked, "cases[3]"),
    )
    for message, field in fields:
        error = await refused(server.benchmarks.CreateBenchmark(message))
        assert isinstance(error, InvalidArgument) and error.field == field, error
    assert not await sessions(server)


async def test_a_deleted_session_is_named_and_not_repeated(server: Stack) -> None:
    await run(server, request())
    await server.sessions.DeleteSession(session_api.DeleteSessionRequest(name="sessions/numbers-far-0"))
    last = await run(server, request(iterations=5))
    assert last.cases[1].state == v1.SESSION_STATE_FAILED and "undelete numbers-far-0" in last.cases[1].reason


async def test_a_restored_session_counts_without_a_repetition(server: Stack) -> None:
    await run(server, request())
    await server.sessions.DeleteSession(session_api.DeleteSessionRequest(name="sessions/numbers-near-0"))
    other = request(name="benchmarks/other")
    assert (await run(server, other)).cases[0].state == v1.SESSION_STATE_FAILED
    await server.sessions.UndeleteSession(session_api.UndeleteSessionRequest(name="sessions/numbers-near-0"))
    assert (await run(server, other)).cases[0].state == v1.SESSION_STATE_SUCCEEDED
    assert (await sessions(server))["numbers-near-0"].epoch == 0
