"""Who may do what on the public API: every method and role, owners, quotas, rates, signed tokens, and the audit log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
import structlog
from dressage.api.v1 import benchmark_service_pb2, environment_service_pb2, session_service_pb2_grpc
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import (
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from dressage.rpc_errors import from_rpc
from dressage.serving.access import Principal, Role
from dressage_orchestrator.api.gate import RULES, PublicGate
from dressage_orchestrator.principals import Principals
from dressage_orchestrator.settings import Settings
from google.protobuf import message_factory

from tests.fakes.public_api import METHODS
from tests.integration.orchestrator.people import PEOPLE, SPEC, call, client, entry, token_of, write_principals
from tests.integration.orchestrator.stack import Stack


@pytest_asyncio.fixture
async def served(stack: Stack) -> AsyncIterator[Stack]:
    stack.options = {"principals_file": write_principals(stack.folder)}
    await stack.start()
    yield stack


def test_every_public_method_has_a_rule_and_no_other():
    assert RULES.keys() == METHODS.keys()


def test_a_method_without_a_rule_is_refused_for_everybody(tmp_path: Path):
    gate = PublicGate(None, Principals(Settings(data_dir=tmp_path)))  # type: ignore[arg-type]
    for role in Role:
        with pytest.raises(PermissionDenied, match="it has no rule"):
            gate.enter(Principal("x", role), "dressage.v1.SessionService/NewMethod")


async def test_every_method_and_role(served: Stack):
    """An empty request: the role is checked before its fields."""
    refused = {}
    for method, rule in RULES.items():
        empty = message_factory.GetMessageClass(METHODS[method].input_type)()
        for name, role in PEOPLE.items():
            error = await call(served, method, empty, name)
            denied = isinstance(error, PermissionDenied)
            refused[method, name] = denied
            assert denied == (Role[role.upper()] < rule.role), (method, name, error)
        for stranger in (None, "unknown"):
            error = await call(served, method, empty, stranger)
            assert error is not None and error.reason == "TOKEN_MISSING_OR_WRONG"
    assert sum(refused.values()) > 12, "some are refused"


async def test_only_owners_and_administrators_change_a_session_and_a_benchmark(served: Stack):
    async with client(served, "uma") as uma:
        session = await uma.create_session(SPEC, session_id="umas")
        case = benchmark_service_pb2.BenchmarkCase(intent="run", environment="environments/HalfCheetah-v5")
        benchmark = await uma.create_benchmark([case], template=SPEC)
        assert session.owner == "uma" and benchmark.owner == "uma"
    names = {"session": session.name, "benchmark": benchmark.name}
    more = {"SteerSession": {"note": "gently"}, "LabelRollout": {"score": 0.5}}
    owned = [method for method, rule in RULES.items() if rule.owned]
    assert len(owned) >= 8
    for method in owned:
        rule = RULES[method]
        request = message_factory.GetMessageClass(METHODS[method].input_type)()
        name = names[rule.owned]
        key = f"{name}/iterations/1/assignments/train/members/a/rollouts/1.npz"
        setattr(request, rule.field, key if rule.field == "rollout" else name)
        for field, value in more.get(method.rpartition("/")[2], {}).items():
            setattr(request, field, value)
        if method.endswith("/CreateBenchmark"):  # which extends an existing one
            request.cases.add(intent="run", environment="environments/HalfCheetah-v5", session_id="another")
        stranger = await call(served, method, request, "ugo")
        assert isinstance(stranger, PermissionDenied) and stranger.reason == "NOT_THE_OWNER", (method, stranger)
        assert "belongs to uma" in stranger.message
        for allowed in ("uma", "ada"):
            assert not isinstance(await call(served, method, request, allowed), PermissionDenied), (method, allowed)
    async with client(served, "vera") as vera:  # everybody reads
        assert (await vera.get_session(session.name)).owner == "uma"


async def test_deleted_sessions_artifacts_are_not_readable(served: Stack):
    for name in ("kept", "gone"):
        async with client(served, "uma") as uma:
            await uma.create_session(SPEC, session_id=name)
        served.store.put(f"sessions/{name}/reward.py", b"code")
    async with client(served, "uma") as uma:
        await uma.delete_session("gone", force=True)
        key = "sessions/gone/reward.py"
        with pytest.raises(NotFound, match=r"its session is deleted.*undelete gone"):
            await uma.get_artifact(key)
        with pytest.raises(NotFound, match="its session is deleted"):
            [_ async for _ in uma.read_artifact(key)]
        for prefix in ("sessions/gone/", "sessions/", "sessions/g"):
            assert not [a.key async for a in uma.list_artifacts(prefix) if "gone" in a.key]
        assert [a.key async for a in uma.list_artifacts("sessions/kept/reward")] == ["sessions/kept/reward.py"]
        await uma.undelete_session("gone")
        assert b"".join([chunk async for chunk in uma.read_artifact(key)]) == b"code"


async def test_every_reading_method_and_role(served: Stack):
    """Conversations and deleted sessions, for a viewer, another user, the owner and an administrator."""
    assert {m for m, rule in RULES.items() if bool(rule.reads) != (rule.role is Role.VIEWER)} == set(), (
        "a reader has a rule"
    )
    async with client(served, "uma") as uma:
        for name in ("gone", "kept"):
            await uma.create_session(SPEC, session_id=name)
            served.store.put(f"sessions/{name}/llm/author/0-0.json", b"{}")
        await uma.delete_session("gone", force=True)
    checked = 0
    for method, rule in RULES.items():
        if rule.reads not in ("session", "artifact") or method.endswith("ListArtifacts"):
            continue
        request = message_factory.GetMessageClass(METHODS[method].input_type)()
        for session in ("gone", "kept"):
            setattr(request, rule.field, f"sessions/{session}{_below(method)}")
            for name in PEOPLE:
                error = await call(served, method, request, name)
                others = name in ("vera", "ugo")
                hidden = error is not None and error.reason in ("SESSION_DELETED", "NOT_THE_OWNER")
                is_file = rule.reads == "artifact"
                assert hidden == (others if is_file or session == "gone" else False) or (
                    is_file and session == "gone"
                ), (method, session, name, error)
                checked += 1
    assert checked >= 12 * 2 * 4


def _below(method: str) -> str:
    """What names of a method's resources have after the session's."""
    below = {
        "GetIteration": "/iterations/1",
        "GetRun": "/runs/r1",
        "ReadRunLog": "/runs/r1",
        "GetAssignment": "/iterations/1/assignments/train",
        "ListAssignments": "/iterations/-",
        "GetArtifact": "/llm/author/0-0.json",
        "ReadArtifact": "/llm/author/0-0.json",
        "GetRolloutPoses": "/llm/rollouts/0.npz",
    }
    return below.get(method.rpartition("/")[2], "")


async def test_lists_leave_out_what_the_reader_may_not_read(served: Stack):
    async with client(served, "uma") as uma:
        for name in ("gone", "kept"):
            await uma.create_session(SPEC, session_id=name)
        for key in ("llm/author/0-0.json", "reward.py"):
            served.store.put(f"sessions/kept/{key}", b"{}")
        await uma.delete_session("gone", force=True)
    for name in PEOPLE:
        async with client(served, name) as person:
            listed = {entry.name async for entry in person.list_sessions(show_deleted=True)}
            keys = {artifact.key async for artifact in person.list_artifacts("sessions/kept/")}
        everything = name in ("uma", "ada")
        assert listed == {"sessions/kept"} | ({"sessions/gone"} if everything else set()), name
        assert ("sessions/kept/llm/author/0-0.json" in keys) == everything and "sessions/kept/reward.py" in keys, name


async def restarted(stack: Stack, quotas: dict[str, str], **options: Any) -> None:
    stack.options = {"principals_file": write_principals(stack.folder, quotas), **options}
    await stack.start()


async def test_running_sessions_are_limited_for_each_principal(stack: Stack):
    await restarted(stack, {"uma": "quota = {running_sessions = 1}"})
    async with client(stack, "uma") as uma, client(stack, "ugo") as ugo:
        await uma.create_session(SPEC, session_id="first")
        with pytest.raises(
            ResourceExhausted, match=r"quota of uma .*running_sessions would be 2, at most 1"
        ) as refused:
            await uma.create_session(SPEC)
        assert refused.value.reason == "QUOTA_RUNNING_SESSIONS" and refused.value.retry_seconds == 30
        await ugo.create_session(SPEC, session_id="another-persons")
        await uma.cancel_session("first")
        await uma.wait_session("first")
        await uma.create_session(SPEC, session_id="second")
        with pytest.raises(ResourceExhausted):
            await uma.resume_session("first")


async def test_cores_and_stored_bytes_are_limited(stack: Stack):
    await restarted(stack, {"uma": "quota = {cores = 0}", "ugo": "quota = {artifact_bytes = 10}"})
    async with client(stack, "uma") as uma, client(stack, "ugo") as ugo:
        with pytest.raises(ResourceExhausted, match="cores would be"):
            await uma.create_session(SPEC)
        await ugo.create_session(SPEC, session_id="ugos")
        from dressage_orchestrator.database import sessions
        from dressage_orchestrator.database.engine import Database, sqlite_url

        database = Database(sqlite_url(stack.folder / "dressage.db"))
        with database.begin() as tx:
            sessions.add_artifact_bytes(tx, "ugos", 11)
        database.close()
        with pytest.raises(ResourceExhausted, match="artifact_bytes would be 11, at most 10"):
            await ugo.create_session(SPEC)
        await ugo.delete_session("ugos", force=True)
        with pytest.raises(ResourceExhausted, match="artifact_bytes would be 11, at most 10"):
            await ugo.create_session(SPEC)  # its files are still stored


async def test_dollars_are_reserved_by_running_sessions(stack: Stack):
    await restarted(stack, {"uma": "quota = {dollars = 1.0}"})
    async with client(stack, "uma") as uma:
        limited = v1.SessionSpec()
        limited.CopyFrom(SPEC)
        limited.budget.dollars = 0.7
        assert (await uma.create_session(limited)).spec.budget.dollars == pytest.approx(0.7)
        assert (await uma.create_session(SPEC)).spec.budget.dollars == pytest.approx(0.3), "what remains"
        with pytest.raises(ResourceExhausted, match="dollars would be 1, at most 1"):
            await uma.create_session(SPEC)
        with pytest.raises(ResourceExhausted, match="dollars"):
            await uma.elicit("hop", "environments/Hopper-v5")


async def test_elicitations_are_charged_once_and_bounded_in_a_day(stack: Stack):
    await restarted(stack, {}, elicit_dollars_per_day=0.015)
    async with client(stack, "uma") as uma, client(stack, "ugo") as ugo:
        await uma.elicit("hop", "environments/Hopper-v5")
        await uma.elicit("hop", "environments/Hopper-v5")  # from the journal: the same key, and no second charge
        await ugo.elicit("hop", "environments/Hopper-v5")
        keys = stack.neighbours.agent.keys
        assert keys[0] == keys[1] != keys[2], "a journal of its own for each principal"
        with pytest.raises(ResourceExhausted, match="elicitations a day") as refused:
            await ugo.elicit("jump", "environments/Hopper-v5")
        assert refused.value.reason == "ELICIT_BUDGET" and len(stack.neighbours.agent.tasks) == 3
        await ugo.elicit("jump", "environments/Hopper-v5", model="template/v1")


async def test_calls_over_the_rate_wait_as_the_server_says(stack: Stack):
    await restarted(stack, {"vera": "quota = {requests_per_second = 4}"})
    request = environment_service_pb2.GetEnvironmentRequest(name="environments/Hopper-v5")
    method = "dressage.v1.EnvironmentService/GetEnvironment"
    errors = [await call(stack, method, request, "vera") for _ in range(30)]
    limited = [error for error in errors if error is not None]
    assert limited and all(isinstance(error, ResourceExhausted) for error in limited)
    assert all(0 < error.retry_seconds <= 0.25 for error in limited if isinstance(error, ResourceExhausted))
    assert await call(stack, method, request, "uma") is None, "others are not limited"
    async with client(stack, "vera") as vera:  # the client waits and repeats
        for _ in range(6):
            await vera.get_environment("Hopper-v5")


async def test_watches_of_one_caller_are_limited_and_others_watch_on(stack: Stack):
    await restarted(
        stack, {"vera": "quota = {requests_per_second = 1000}", "ugo": "quota = {open_streams = 1}"}, open_streams=3
    )
    async with client(stack, "uma") as uma:
        await uma.create_session(SPEC, session_id="watched")
    async with grpc.aio.insecure_channel(stack.service.address) as channel:
        stub = session_service_pb2_grpc.SessionServiceStub(channel)

        async def watch(name: str) -> Any:
            metadata = (("authorization", f"Bearer {token_of(name)}"),)
            stream = stub.WatchSession(pb.WatchSessionRequest(name="sessions/watched"), metadata=metadata, timeout=60)
            await anext(aiter(stream))
            return stream

        async def refusal(name: str) -> ResourceExhausted:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await watch(name)
            error = from_rpc(caught.value)
            assert isinstance(error, ResourceExhausted) and error.reason == "TOO_MANY_STREAMS"
            return error

        held = [await watch("vera") for _ in range(3)]
        assert "vera has 3 open streams" in (await refusal("vera")).message
        assert "open_streams = 3" in (await refusal("vera")).message, "a quota without it has the server's"
        held += [await watch("uma"), await watch("ugo")]
        assert (await refusal("ugo")).metadata == {"open_streams": "1"}
        held[0].cancel()
        async with asyncio.timeout(10):
            while True:
                try:
                    held.append(await watch("vera"))
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
        for stream in held:
            stream.cancel()


async def test_changes_and_refusals_are_audited(served: Stack):
    with structlog.testing.capture_logs() as logs:
        async with client(served, "uma") as uma:
            await uma.create_session(SPEC, session_id="audited")
            await uma.get_session("audited")
        await call(
            served, "dressage.v1.SessionService/CancelSession", pb.CancelSessionRequest(name="sessions/audited"), "ugo"
        )
        for _ in range(100):  # a refusal reaches the caller before it is recorded
            if len([e for e in logs if e["event"] == "call"]) == 2:
                break
            await asyncio.sleep(0.05)
    calls = [(e["principal"], e["method"].rpartition("/")[2], e["code"]) for e in logs if e["event"] == "call"]
    assert calls == [("uma", "CreateSession", "OK"), ("ugo", "CancelSession", "PERMISSION_DENIED")]
    assert [e["resource"] for e in logs if e["event"] == "call"] == ["sessions/audited"] * 2
    assert "token of" not in json.dumps(logs, default=str)


async def test_the_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path):
    now = [0.0]
    principals = Principals(
        Settings(data_dir=tmp_path, principals_file=write_principals(tmp_path)), clock=lambda: now[0]
    )
    assert principals.authenticate is not None
    assert await principals.authenticate(token_of("uma")) == Principal("uma", Role.USER)
    for text, known in (("nonsense [", True), (entry("ivo", "viewer"), False)):
        (tmp_path / "principals.toml").write_text(text)
        now[0] += 10
        await principals.authenticate("x")
        assert (await principals.authenticate(token_of("uma")) is not None) == known
    assert await principals.authenticate(token_of("ivo")) == Principal("ivo", Role.VIEWER)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense [", "principals.toml"),
        (entry("a", "owner"), "role"),
        (entry("a b", "user"), "name"),
        (entry("admin", "user"), "taken"),
        (entry("a", "user") * 2, "taken"),
        (entry("a", "user", "quota = {cats = 1}"), "cats"),
        (entry("a", "user", "quota = {cores = -1}"), "negative"),
        (entry("a", "user").replace("token_sha256", "token"), "token"),
    ],
)
def test_an_error_of_the_file_is_named(text: str, problem: str, tmp_path: Path):
    (tmp_path / "principals.toml").write_text(text)
    with pytest.raises(FailedPrecondition, match=problem):
        Principals(Settings(data_dir=tmp_path, principals_file=tmp_path / "principals.toml"))
