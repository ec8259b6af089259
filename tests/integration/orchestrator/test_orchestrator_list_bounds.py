"""Pages of every list are bounded by bytes, whatever the rows hold; lists of all principals leave out sources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from dressage.api.v1 import benchmark_service_pb2 as benchmark_api
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import InvalidArgument
from dressage.rpc_errors import from_rpc
from dressage_orchestrator.api.sessions import lineage
from dressage_orchestrator.database import benchmarks, pages, runs, sessions, summaries
from dressage_orchestrator.database.engine import Database, Transaction, sqlite_url
from dressage_orchestrator.database.tables import ASSIGNMENTS, MEMBERS
from google.protobuf import message_factory

from tests.fakes.public_api import METHODS
from tests.integration.orchestrator.stack import Stack

SOURCE = "x" * 262_144
COUNT = 24
PARENT = "sessions/s-00"


def fill_sessions(tx: Transaction) -> None:
    spec = v1.SessionSpec(intent="run", environment="environments/Hopper-v5", judge_source=SOURCE)
    spec.reward.reward_source = SOURCE
    for number in range(COUNT):
        name = f"s-{number:02}"
        sessions.create(tx, name, spec)
        sessions.change(tx, name, end)
        if number % 2:
            sessions.delete(tx, name, grace_seconds=1e6)


def end(session: v1.Session) -> None:
    session.state = v1.SESSION_STATE_CANCELLED
    session.end_time.GetCurrentTime()
    session.best_judgment.score, session.best_judgment.diagnosis = 0.5, SOURCE
    session.report.returns.extend([1.0] * 10_000)
    session.report.mean = 1.0


def fill_iterations(tx: Transaction) -> None:
    for number in range(1, COUNT + 1):
        sessions.upsert_iteration(tx, "s-00", number, propose)


def propose(iteration: v1.Iteration) -> None:
    iteration.reward.source, iteration.diff, iteration.lesson = SOURCE, SOURCE, "a lesson"
    iteration.reward.course.env_steps = 7


def fill_runs(tx: Transaction) -> None:
    for _ in range(COUNT):
        name = runs.create(tx, "s-00", pool="cpu").run.name
        for _ in range(3):
            runs.add_condition(tx, name, "SLOW", SOURCE)
        runs.end(tx, name, v1.RUN_STATE_CANCELLED)


def fill_assignments(tx: Transaction) -> None:
    evaluations = [v1.Evaluation(env_step=step, returns=[1.0] * 10_000) for step in range(8)]
    for number in range(COUNT):
        name = f"{PARENT}/iterations/1/assignments/a{number}"
        stored = v1.Assignment(name=name, kind="train", state=v1.ASSIGNMENT_STATE_CANCELLED)
        key = {"name": name, "session": "s-00", "iteration": 1, "id": number + 1, "create_micros": number}
        row = {"data": stored.SerializeToString(), "work": b"", "state": stored.state}
        tx.execute(ASSIGNMENTS.insert().values(**key, **row))
        member = v1.Member(name=f"{name}/members/m", evaluations=evaluations)
        tx.execute(MEMBERS.insert().values(assignment=name, id="m", position=0, data=member.SerializeToString()))


def fill_benchmarks(tx: Transaction) -> None:
    case = benchmark_api.BenchmarkCase(intent="run", environment="environments/Hopper-v5", session="sessions/s-00")
    case.spec.judge_source = SOURCE
    for number in range(COUNT):
        benchmark = benchmark_api.Benchmark(name=f"benchmarks/b-{number:02}", cases=[case, case])
        benchmark.template.reward.reward_source = SOURCE
        benchmark.template.model = "test/model"
        benchmarks.create(tx, benchmark)
        benchmarks.change(tx, benchmark.name, lambda message: message.end_time.GetCurrentTime())


FILLS: dict[str, Callable[[Transaction], None]] = {
    "SessionService/ListSessions": fill_sessions,
    "SessionService/ListIterations": fill_iterations,
    "SessionService/ListRuns": fill_runs,
    "SessionService/ListAssignments": fill_assignments,
    "BenchmarkService/ListBenchmarks": fill_benchmarks,
    # Of these the entries are small: a key of 500 characters, a card of the installation.
    "ArtifactService/ListArtifacts": lambda tx: None,
    "EnvironmentService/ListEnvironments": lambda tx: None,
}
"""What fills the table of each list with rows that together exceed a message."""


def filled(stack: Stack) -> None:
    database = Database(sqlite_url(stack.folder / "dressage.db"))
    for fill in FILLS.values():
        with database.begin() as tx:
            fill(tx)
    database.close()


def request_of(method: str, **fields: Any) -> Any:
    kind = message_factory.GetMessageClass(METHODS[f"dressage.v1.{method}"].input_type)
    names = kind.DESCRIPTOR.fields_by_name
    parent = f"{PARENT}/iterations/-" if method.endswith("ListAssignments") else PARENT
    place = {name: value for name, value in (("parent", parent), ("prefix", f"{PARENT}/")) if name in names}
    return kind(page_size=1000, **place, **fields)


async def every_page(stack: Stack, method: str, **fields: Any) -> list[Any]:
    """All responses of a list, page after page."""
    kind = message_factory.GetMessageClass(METHODS[f"dressage.v1.{method}"].output_type)
    stub = stack.channel.unary_unary(
        f"/dressage.v1.{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=kind.FromString,
    )
    responses, token = [], ""
    while not responses or token:
        responses.append(await stub(request_of(method, page_token=token, **fields), timeout=60))
        token = responses[-1].next_page_token
    return responses


def test_every_list_has_rows_to_be_tested_with():
    paged = {name for name, method in METHODS.items() if "page_token" in method.input_type.fields_by_name}
    assert {f"dressage.v1.{name}" for name in FILLS} == paged


async def test_pages_of_every_list_are_bounded_by_bytes(stack: Stack):
    await asyncio.to_thread(filled, stack)
    await stack.start()
    key = "k" * 200
    for number in range(3):
        stack.store.put(f"{PARENT}/{key}/{number}", b"x")
    whole = {"read_mask": {"paths": ["*"]}}
    lists = [(method, {}) for method in FILLS]
    lists += [("SessionService/ListSessions", whole), ("SessionService/ListSessions", {"show_deleted": True, **whole})]
    lists += [("BenchmarkService/ListBenchmarks", whole)]
    for method, fields in lists:
        responses = await every_page(stack, method, **fields)
        entries = [entry for response in responses for entry in response.ListFields()[0][1]]
        largest = max(entry.ByteSize() for entry in entries)
        assert max(response.ByteSize() for response in responses) <= pages.PAGE_BYTES + largest + 10_000, method
        names = [getattr(entry, "name", "") or entry.key for entry in entries]
        assert len(names) == len(set(names)) >= 3, (method, "each entry once")
        if fields or method.endswith(("Iterations", "Runs", "Assignments")):
            assert len(responses) > 1, (method, "the rows exceed a page")
    tree = await stack.sessions.GetLineage(pb.GetLineageRequest(name=PARENT))
    assert len(tree.nodes) == COUNT and tree.ByteSize() < 2 * pages.PAGE_BYTES
    assert tree.nodes[0].diff == SOURCE and not tree.nodes[-1].diff and tree.nodes[-1].course.env_steps == 7


async def test_lists_leave_out_sources_unless_they_are_asked_for(stack: Stack):
    await asyncio.to_thread(filled, stack)
    await stack.start()
    for show_deleted, count in ((False, COUNT // 2), (True, COUNT)):
        (page,) = await every_page(stack, "SessionService/ListSessions", show_deleted=show_deleted)
        assert len(page.sessions) == count and page.ByteSize() < 50_000, "one page of what is small"
        for entry in page.sessions:
            assert (entry.spec.intent, entry.spec.WhichOneof("method_spec")) == ("run", "reward") and entry.etag
            assert not (entry.spec.judge_source or entry.spec.reward.reward_source or entry.best_judgment.diagnosis)
            assert entry.best_judgment.score == 0.5 and entry.report.mean == 1.0 and not entry.report.returns
    (page,) = await every_page(stack, "BenchmarkService/ListBenchmarks")
    assert len(page.benchmarks) == COUNT and page.ByteSize() < 50_000
    first = page.benchmarks[0]
    assert first.template.model == "test/model" and first.template.HasField("reward") and first.HasField("end_time")
    assert [case.session for case in first.cases] == ["sessions/s-00"] * 2 and not first.cases[0].intent
    got = await stack.sessions.GetSession(pb.GetSessionRequest(name=PARENT))
    assert got.spec.judge_source == got.spec.reward.reward_source == SOURCE
    mask = {"paths": ["name", "spec.reward.reward_source"]}
    page = (await every_page(stack, "SessionService/ListSessions", read_mask=mask))[0]
    expected = v1.Session(name=page.sessions[0].name)
    expected.spec.reward.reward_source = SOURCE
    assert page.sessions[0] == expected


async def test_a_read_mask_that_names_no_field_is_refused(stack: Stack):
    await stack.start()
    for paths in (["nonsense"], ["spec.nonsense"], ["*", "name"], ["name"] * 101):
        for method in ("SessionService/ListSessions", "BenchmarkService/ListBenchmarks"):
            with pytest.raises(Exception, match="read_mask") as refused:
                await every_page(stack, method, read_mask={"paths": paths})
            error = from_rpc(refused.value)  # type: ignore[arg-type]
            assert isinstance(error, InvalidArgument) and error.field == "read_mask", (paths, error)
    mask = {"paths": ["name"]}
    (page,) = await every_page(stack, "SessionService/ListSessions", read_mask=mask)
    assert not page.sessions


def test_a_summary_is_small_whatever_a_session_holds():
    """Every text and list of a session is filled; what stays is bounded by the rules of the API or is the server's own."""
    session = v1.Session(name="sessions/x")
    session.spec.intent = "i" * 8000
    session.spec.judge_source = session.spec.code.policy_source = SOURCE
    session.spec.criteria.extend([v1.IntentCriterion(title="t", description="d" * 2000)] * 32)
    for name in range(32):
        session.spec.roles[f"r{name}"].api_base = "h" * 400
    end(session)
    session.confirmation.CopyFrom(session.best_judgment)
    assert session.ByteSize() > 1_000_000
    assert len(summaries.of_session(session)) < 10_000
    custom = v1.Session()
    custom.spec.custom.type_url, custom.spec.custom.value = "x/Settings", b"v" * 1_000_000
    assert v1.Session.FromString(summaries.of_session(custom)).spec.custom.type_url == "x/Settings"
    assert len(summaries.of_session(custom)) < 100


def test_the_lineage_of_a_session_of_many_sources_is_bounded():
    iterations = []
    for number in range(1, 60):
        iterations.append(v1.Iteration(name=f"sessions/s/iterations/{number}", number=number))
        propose(iterations[-1])
    tree = lineage(v1.Session(name="sessions/s"), iterations)
    assert len(tree.nodes) == 59 and tree.ByteSize() < pages.PAGE_BYTES + 100_000
