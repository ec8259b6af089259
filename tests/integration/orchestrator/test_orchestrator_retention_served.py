"""Retention on a running server: deletion, undeletion, removal and resumption of real sessions."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import grpc
import pytest
from dressage.api.v1 import maintenance_service_pb2 as maintenance_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.cli import garbage
from dressage.client import AsyncClient
from dressage.local.connection import ServerOptions
from dressage_orchestrator import wiring

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio


def spec() -> v1.SessionSpec:
    return reward_session(
        intent="run",
        environment="environments/HalfCheetah-v5",
        model="template/v1",
        seeds=1,
        steps_per_member=1000,
        max_iterations=1,
        reward_source="# good\n",
        judge_source=JUDGE,
    )


async def run_session(stack: Stack, session: str) -> str:
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(), session_id=session))
    await watch(stack.sessions, created.name)
    stack.store.put(f"{created.name}/llm/iterations/1/reward_author/0-0.json", b"{}")
    return str(created.name)


async def collect(stack: Stack, *, validate_only: bool = False) -> list[tuple[int, str]]:
    request = maintenance_pb.CollectGarbageRequest(validate_only=validate_only)
    return [(part.kind, part.name) async for part in stack.maintenance.CollectGarbage(request)]


def workflows(stack: Stack) -> list[str]:
    """Ids in every table of DBOS with a workflow's id."""
    with sqlite3.connect(stack.folder / "workflows.db") as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        ids: list[str] = []
        for table in tables:
            columns = {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
            if "workflow_uuid" in columns:
                ids += [row[0] for row in connection.execute(f'SELECT workflow_uuid FROM "{table}"')]
    return ids


async def test_a_deleted_session_is_undeleted_then_removed_whole(stack: Stack) -> None:
    stack.options = {"retention_deleted_days": 1.0, "retention_seconds": 0.0}
    await stack.start()
    name, other = await run_session(stack, "gone"), await run_session(stack, "kept")
    kept = {info.key: stack.store.get(info.key) for info in stack.store.list(f"{other}/")}
    deleted = await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=name))
    grace = deleted.purge_time.ToDatetime() - deleted.delete_time.ToDatetime()
    assert grace.total_seconds() == 86_400 and await collect(stack) == []
    restored = await stack.sessions.UndeleteSession(pb.UndeleteSessionRequest(name=name))
    assert not restored.HasField("purge_time") and not restored.HasField("delete_time")

    await stack.stop()
    stack.options["retention_deleted_days"] = 0.0
    await stack.start()
    await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=name))
    part = (maintenance_pb.GARBAGE_KIND_DELETED_SESSION, name)
    assert await collect(stack, validate_only=True) == [part]
    assert [entry for entry in workflows(stack) if entry.startswith("gone:")] and stack.store.list(f"{name}/")
    assert await collect(stack) == [part] and await collect(stack) == []

    assert stack.store.list(f"{name}/") == [] and not [entry for entry in workflows(stack) if "gone" in entry]
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await stack.sessions.UndeleteSession(pb.UndeleteSessionRequest(name=name))
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND
    assert {info.key: stack.store.get(info.key) for info in stack.store.list(f"{other}/")} == kept
    assert await run_session(stack, "gone") == name  # the id is free again


async def test_a_session_without_its_history_is_resumed(stack: Stack) -> None:
    stack.options = {"retention_history_days": 0.0, "retention_events_days": 0.0, "retention_seconds": 0.0}
    await stack.start()
    name = await run_session(stack, "again")
    before = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    kinds = {kind for kind, _ in await collect(stack)}
    assert kinds == {maintenance_pb.GARBAGE_KIND_HISTORY, maintenance_pb.GARBAGE_KIND_EVENTS}
    assert not [entry for entry in workflows(stack) if entry.startswith("again:")]
    events = await watch(stack.sessions, name)
    assert len(events) == 1 and events[0].state_changed.state == before.state

    await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=name))
    events = await watch(stack.sessions, name)
    after = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    assert after.epoch == 1 and after.state == before.state
    assert after.current_iteration == 2 and after.best_score >= before.best_score
    assert [event.sequence for event in events] == list(range(events[0].sequence, events[-1].sequence + 1))


async def test_a_server_collects_by_itself(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_RETENTION_POLL_SECONDS", 0.2)
    stack.options = {"retention_deleted_days": 0.0, "retention_seconds": 0.5}
    await stack.start()
    name = await run_session(stack, "gone")
    await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=name))
    async with asyncio.timeout(30):
        while stack.store.list(f"{name}/"):
            await asyncio.sleep(0.1)


async def test_the_client_and_a_cancelled_call(stack: Stack) -> None:
    stack.options = {"retention_deleted_days": 0.0, "retention_seconds": 0.0}
    await stack.start()
    names = [await run_session(stack, session) for session in ("one", "two")]
    for name in names:
        await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=name))
    call: Any = stack.maintenance.CollectGarbage(maintenance_pb.CollectGarbageRequest())
    await call.read()
    call.cancel()
    async with AsyncClient.connect(stack.service.address) as client:
        async with asyncio.timeout(20):
            while stack.store.list("sessions/"):
                [_ async for _ in client.collect_garbage()]
        assert [part async for part in client.collect_garbage(validate_only=True)] == []


async def test_the_command_states_what_is_removed_and_what_is_kept_for_now(
    stack: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRESSAGE_INSECURE", "1")
    stack.options = {"retention_deleted_days": 0.0, "retention_seconds": 0.0}
    await stack.start()
    server = ServerOptions(address=stack.service.address)

    async def gc(*, dry_run: bool) -> str:
        await asyncio.to_thread(garbage.collect, server, dry_run=dry_run, as_json=False)
        return capsys.readouterr().out

    assert "nothing to remove" in await gc(dry_run=True)
    name = await run_session(stack, "gone")
    await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=name))
    planned = await gc(dry_run=True)
    assert "would remove:" in planned and "deleted sessions" in planned and "rows" not in planned
    assert "rows" in await gc(dry_run=False)
    await stack.stop()
    stack.options = {"retention_seconds": 0.0}
    await stack.start()
    server = ServerOptions(address=stack.service.address)
    name = await run_session(stack, "kept")
    await stack.sessions.DeleteSession(pb.DeleteSessionRequest(name=name))
    kept = await gc(dry_run=True)
    assert "nothing to remove" in kept and "1 deleted session is kept for now, kept until " in kept
