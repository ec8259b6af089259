"""What belongs to whom: artifacts without a session, request ids, open streams of revoked tokens, files that readers cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from dressage.api.v1 import artifact_service_pb2 as artifact_api
from dressage.api.v1 import benchmark_service_pb2 as benchmark_api
from dressage.errors import AlreadyExists, NotFound, PermissionDenied, Unauthenticated
from dressage.serving import interceptor
from dressage_orchestrator import principals
from dressage_orchestrator.database import benchmarks, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url

from tests.integration.orchestrator.people import PEOPLE, SPEC, call, client, write_principals
from tests.integration.orchestrator.stack import Stack
from tests.waiting import until

ORPHAN = "sessions/orphan"
POSES = "dressage.v1.ArtifactService/GetRolloutPoses"


@pytest_asyncio.fixture
async def served(stack: Stack) -> AsyncIterator[Stack]:
    stack.options = {"principals_file": write_principals(stack.folder)}
    await stack.start()
    yield stack


async def test_artifacts_without_a_session_are_for_administrators(served: Stack):
    for key in ("reward.py", "llm/author/0-0.json", "rollouts/1.npz"):
        served.store.put(f"{ORPHAN}/{key}", b"code")
    for name in ("vera", "uma"):
        async with client(served, name) as person:
            for read in (person.get_artifact, person.get_rollout_video):
                with pytest.raises((NotFound, PermissionDenied)):
                    await read(f"{ORPHAN}/rollouts/1.npz")
            with pytest.raises(NotFound, match="no artifact"):
                [_ async for _ in person.read_artifact(f"{ORPHAN}/reward.py")]
            for prefix in (ORPHAN, f"{ORPHAN}/", "sessions/", "sessions/orph"):
                assert not [entry async for entry in person.list_artifacts(prefix)]
        poses = artifact_api.GetRolloutPosesRequest(rollout=f"{ORPHAN}/rollouts/1.npz")
        assert isinstance(await call(served, POSES, poses, name), NotFound)
    async with client(served, "ada") as ada:
        assert len([entry async for entry in ada.list_artifacts(f"{ORPHAN}/")]) == 3
        assert b"".join([chunk async for chunk in ada.read_artifact(f"{ORPHAN}/reward.py")]) == b"code"
        with pytest.raises(NotFound, match="no session"):
            await ada.get_rollout_video(f"{ORPHAN}/rollouts/1.npz")
    assert served.neighbours.renderer.rendered == served.neighbours.renderer.posed == []


async def test_an_id_with_artifacts_cannot_be_claimed(served: Stack):
    served.store.put(f"{ORPHAN}/reward.py", b"code")
    async with client(served, "ugo") as ugo:
        with pytest.raises(AlreadyExists, match="artifacts of an earlier session exist") as refused:
            await ugo.create_session(SPEC, session_id="orphan")
        assert refused.value.reason == "SESSION_ID_USED"
        with pytest.raises(NotFound):
            await ugo.get_session("orphan")
        case = benchmark_api.BenchmarkCase(intent="run", environment="environments/HalfCheetah-v5", session_id="orphan")
        await ugo.create_benchmark([case], template=SPEC, name="claims")
        states = [state async for state in ugo.watch_benchmark("claims")]
        assert "artifacts of an earlier session" in states[-1].cases[0].reason
        # A repeated request finds its own session's artifacts.
        first = await ugo.create_session(SPEC, session_id="mine", request_id="again")
        served.store.put("sessions/mine/reward.py", b"code")
        assert (await ugo.create_session(SPEC, session_id="mine", request_id="again")).name == first.name


async def test_a_request_id_of_another_principal_is_another_request(served: Stack):
    async with client(served, "uma") as uma, client(served, "ugo") as ugo, client(served, "ada") as ada:
        mine = await uma.create_session(SPEC, request_id="r1")
        theirs = await ugo.create_session(SPEC, request_id="r1")
        assert (mine.owner, theirs.owner) == ("uma", "ugo") and mine.name != theirs.name
        assert (await uma.create_session(SPEC, request_id="r1")).name == mine.name
        case = benchmark_api.BenchmarkCase(intent="run", environment="environments/HalfCheetah-v5")
        one = await uma.create_benchmark([case], template=SPEC, request_id="r1")
        other = await ugo.create_benchmark([case], template=SPEC, request_id="r1")
        assert (one.owner, other.owner) == ("uma", "ugo") and one.name != other.name
        await uma.steer_session(mine.name, "faster", request_id="r1")
        await ada.steer_session(mine.name, "faster", request_id="r1")
        assert [e.event.note_added.note async for e in _recorded(uma, mine.name)].count("faster") == 2


async def _recorded(person: Any, session: str) -> AsyncIterator[Any]:
    await person.cancel_session(session)
    async for response in person.watch_session(session):
        yield response


async def test_a_benchmark_that_another_created_meanwhile_is_not_extended(
    served: Stack, monkeypatch: pytest.MonkeyPatch
):
    """The name is free when the call is checked, and taken when it is recorded."""
    case = benchmark_api.BenchmarkCase(intent="run", environment="environments/HalfCheetah-v5", session_id="c1")
    async with client(served, "uma") as uma, client(served, "ugo") as ugo:
        await uma.create_benchmark([case], template=SPEC, name="race")
        known = benchmarks.owner
        calls: list[str] = []

        def unknown_at_first(tx: Any, name: str) -> str | None:
            calls.append(name)
            return None if len(calls) == 1 else known(tx, name)

        monkeypatch.setattr(benchmarks, "owner", unknown_at_first)
        with pytest.raises(PermissionDenied, match="belongs to uma"):
            await ugo.create_benchmark([case], template=SPEC, name="race")


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptor, "RECHECK_SECONDS", 0.2)
    monkeypatch.setattr(interceptor, "_TRUSTED_SECONDS", 0.0)
    monkeypatch.setattr(principals, "_CHECK_SECONDS", 0.0)


def test_a_revoked_token_receives_nothing_after_ten_seconds():
    """The bound of docs/security.md: the file is read, then the stream is checked."""
    assert principals._CHECK_SECONDS + interceptor.RECHECK_SECONDS + interceptor._TRUSTED_SECONDS <= 10


class Watching:
    """A stream that collects until it ends."""

    def __init__(self, stack: Stack, name: str, session: str) -> None:
        self.events: list[Any] = []
        self.error: Any = None
        self.done = asyncio.create_task(self._watch(stack, name, session))

    async def _watch(self, stack: Stack, name: str, session: str) -> None:
        async with client(stack, name) as person:
            try:
                async for response in person.watch_session(session):
                    self.events.append(response.event)
            except Exception as error:
                self.error = error


@pytest.mark.usefixtures("quick_checks")
async def test_open_watches_of_a_revoked_token_end(served: Stack):
    async with client(served, "uma") as uma:
        await uma.create_session(SPEC, session_id="umas")
        watching = {name: Watching(served, name, "umas") for name in ("vera", "ugo", "uma")}
        await until(lambda: all(each.events for each in watching.values()))
        write_principals(served.folder, people={"uma": "user", "ada": "admin", "ugo": "viewer"})
        await asyncio.wait_for(watching["vera"].done, 10)
        assert isinstance(watching["vera"].error, Unauthenticated)
        received = len(watching["vera"].events)
        await uma.steer_session("umas", "unseen")
        await until(lambda: any(event.note_added.note == "unseen" for event in watching["ugo"].events))
        assert len(watching["vera"].events) == received
        # A reader loses a session that its owner deletes; the owner does not.
        await uma.delete_session("umas", force=True)
        await asyncio.wait_for(watching["ugo"].done, 10)
        assert watching["ugo"].error is None or watching["ugo"].error.reason == "SESSION_DELETED"
        await asyncio.wait_for(watching["uma"].done, 30)
        assert watching["uma"].error is None


@pytest.mark.usefixtures("quick_checks")
async def test_an_open_stream_of_any_kind_is_checked_again(served: Stack):
    case = benchmark_api.BenchmarkCase(intent="run", environment="environments/HalfCheetah-v5", session_id="b1")
    async with client(served, "uma") as uma, client(served, "vera") as vera:
        await uma.create_benchmark([case], template=SPEC, name="bench")
        stream = aiter(vera.watch_benchmark("bench"))
        await anext(stream)
        write_principals(served.folder, people={"uma": "user"})
        async with asyncio.timeout(10):
            with pytest.raises(Unauthenticated):
                [_ async for _ in stream]


@pytest.mark.usefixtures("quick_checks")
async def test_readers_do_not_add_files_to_a_session(served: Stack):
    rollout = "sessions/umas/iterations/1/assignments/a/candidates/1/rollouts/1.npz"
    poses = artifact_api.GetRolloutPosesRequest(rollout=rollout)
    async with client(served, "uma") as uma:
        await uma.create_session(SPEC, session_id="umas")
        served.store.put(rollout, b"states")
        for name in ("vera", "ugo"):
            error = await call(served, POSES, poses, name)
            assert isinstance(error, PermissionDenied) and "belongs to uma" in error.message
        assert served.neighbours.renderer.posed == []
        write_principals(served.folder, people={**PEOPLE, "uma": "viewer"})
        error = await call(served, POSES, poses, "uma")
        assert isinstance(error, PermissionDenied) and error.reason == "ROLE_TOO_LOW"
        write_principals(served.folder)
        for name in ("uma", "vera", "ugo"):  # once it is there, everybody reads it
            assert await call(served, POSES, poses, name) is None
        await uma.get_rollout_video(rollout)
        await uma.get_rollout_video(rollout)
    database = Database(sqlite_url(served.folder / "dressage.db"))
    with database.read() as tx:
        assert sessions.artifact_bytes(tx, "uma") == len(b"poses") + len(b"mp4"), "each file counts once"
    database.close()
