"""The blocking client has all of the asyncio one, and downloads are whole, in place, and inside their folder."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from dressage import errors
from dressage.api.v1 import event_pb2, session_pb2
from dressage.client import AsyncClient, CallPolicy, Client, find_local_server
from dressage.client.discovery import LOCK_FILE
from dressage.client.downloads import relative_path
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.orchestrator import Background, FakeOrchestrator, Fault

FAST = CallPolicy(attempt_seconds=0.5, total_seconds=3, initial_backoff=0.01, max_backoff=0.02, watch_reconnects=3)


@pytest.fixture
def server() -> Iterator[Background]:
    with Background(FakeOrchestrator()) as running:
        yield running


def test_both_clients_have_the_same_methods_with_the_same_parameters():
    public = {name for name, _ in inspect.getmembers(AsyncClient, callable) if not name.startswith("_")}
    assert public == {name for name, _ in inspect.getmembers(Client, callable) if not name.startswith("_")}
    for name in public:
        ours, theirs = inspect.signature(getattr(Client, name)), inspect.signature(getattr(AsyncClient, name))
        assert list(ours.parameters.values()) == list(theirs.parameters.values()), name


def test_a_blocking_client_creates_watches_and_lists(server: Background):
    server.fake.script = [event_pb2.Event(iteration=1)] * 3
    server.fake.ended = session_pb2.Session(state=session_pb2.SESSION_STATE_EXHAUSTED)
    spec = session_pb2.SessionSpec(intent="hop", environment="environments/Hopper-v5")
    with Client.connect(server.address, policy=FAST) as client:
        session = client.create_session(spec)
        assert [response.event.sequence for response in client.watch_session(session.name)] == [1, 2, 3]
        assert [each.name for each in client.list_sessions()] == [session.name]
        assert client.wait_session(session.name).state == session_pb2.SESSION_STATE_EXHAUSTED
        assert client.estimate_session(spec).spec.intent == "hop"
        client.steer_session("s1", "lower the hips")
        assert client.label_rollout("sessions/s1/r.npz", 0.5).score == 0.5
        assert client.elicit("hop", "Hopper-v5").questions == ["How fast?"]
        with pytest.raises(errors.NotFound):
            client.get_session("other")


def test_an_abandoned_iterator_leaves_the_client_usable(server: Background):
    server.fake.sessions = {f"sessions/{n}": session_pb2.Session(name=f"sessions/{n}") for n in "abcde"}
    with Client.connect(server.address, policy=FAST) as client:
        for session in client.list_sessions():
            assert session.name == "sessions/a"
            break
        assert len(list(client.list_sessions())) == 5


def run_script(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_client_fails_at_once_in_a_forked_child(server: Background):
    script = """
        import os, sys
        from dressage import errors
        from dressage.client import Client
        client = Client.connect(sys.argv[1])
        child = os.fork()
        if child == 0:
            try:
                client.get_session("a")
            except errors.FailedPrecondition as error:
                client.close()
                os._exit(7 if "parent process" in error.message else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        client.close()
        try:
            client.get_session("a")
        except errors.FailedPrecondition as error:
            print(error.message)
    """
    done = run_script(script, server.address)
    assert done.returncode == 0, done.stderr
    assert "the client is closed" in done.stdout


def test_a_client_that_is_never_closed_lets_the_interpreter_exit(server: Background):
    server.fake.sessions = {"sessions/a": session_pb2.Session(name="sessions/a")}
    script = """
        import sys
        from dressage.client import Client
        client = Client.connect(sys.argv[1])
        watching = client.watch_session("a")
        print(client.get_session("a").name)
    """
    done = run_script(script, server.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sessions/a\n", "")


def test_an_interrupted_call_is_cancelled_and_the_client_goes_on_working(
    server: Background, request: pytest.FixtureRequest
):
    server.fake.sessions = {"sessions/a": session_pb2.Session(name="sessions/a")}
    server.fake.fail_next("GetSession", Fault(grpc.StatusCode.UNAVAILABLE, hang_seconds=30))
    main = threading.get_ident()
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    # Event loops of other tests may leave another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before or signal.SIG_DFL))
    with Client.connect(server.address, policy=CallPolicy(attempt_seconds=25)) as client:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            client.get_session("a")
        assert client.get_session("a").name == "sessions/a"
        deadline = time.monotonic() + 5
        while asyncio.all_tasks(client._loop.loop) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not asyncio.all_tasks(client._loop.loop), "the call is cancelled"


def test_the_derived_methods_keep_their_documentation():
    assert Client.download_artifacts.__doc__ == AsyncClient.download_artifacts.__doc__


def test_an_environment_may_be_given_by_its_id(server: Background):
    with Client.connect(server.address, policy=FAST) as client:
        client.create_session(session_pb2.SessionSpec(intent="hop", environment="Hopper-v5"))
    assert server.fake.requests["CreateSession"][0].spec.environment == "environments/Hopper-v5"


def test_closing_twice_is_harmless(server: Background):
    client = Client.connect(server.address)
    client.close()
    client.close()
    assert not client._loop.running


def test_a_folder_is_downloaded_whole_and_again_after_a_lost_connection(server: Background, tmp_path: Path):
    prefix = "sessions/s1/policy"
    big = bytes(range(256)) * 40
    server.fake.artifacts = {
        f"{prefix}/policy.safetensors": big,
        f"{prefix}/card.json": b"{}",
        f"{prefix}/deep/x": b"",
        "sessions/s1/policy-other/x": b"no",
    }
    faults = (0, 9, 9, 3, 2)  # one before the first byte of card.json, two within policy.safetensors
    server.fake.fail_next("ReadArtifact", *[Fault(grpc.StatusCode.UNAVAILABLE, after_events=k) for k in faults])
    with Client.connect(server.address, policy=FAST) as client:
        written = client.download_artifacts(prefix, tmp_path)
        assert sorted(path.relative_to(tmp_path).as_posix() for path in written) == [
            "card.json",
            "deep/x",
            "policy.safetensors",
        ]
        assert (tmp_path / "policy.safetensors").read_bytes() == big
        assert [path for path in tmp_path.rglob("*") if path.name.endswith(".part")] == []
        assert client.download_artifacts(f"{prefix}/card.json", tmp_path / "one") == [tmp_path / "one" / "card.json"]
        with pytest.raises(errors.NotFound):
            client.download_artifacts("sessions/none", tmp_path)


def test_a_failed_download_leaves_nothing_behind(server: Background, tmp_path: Path):
    server.fake.artifacts = {"sessions/s1/a": b"x" * 5000}
    server.fake.fail_next("ReadArtifact", Fault(grpc.StatusCode.INTERNAL, after_events=2))
    with Client.connect(server.address, policy=FAST) as client, pytest.raises(errors.Internal):
        client.download_artifacts("sessions/s1/a", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_size_than_announced_is_refused(server: Background, tmp_path: Path):
    server.fake.artifacts = {"sessions/s1/a": b"x" * 5000}
    server.fake.lost_bytes = 1
    with Client.connect(server.address, policy=FAST) as client, pytest.raises(errors.Unavailable, match="4999 of 5000"):
        client.download_artifacts("sessions/s1/a", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "key", ["sessions/s/../../etc/passwd", "sessions/s//etc/passwd", "sessions/s/a\\b", "sessions/s/.."]
)
def test_a_key_cannot_leave_its_folder(key: str):
    with pytest.raises(errors.InvalidArgument, match="artifact key"):
        relative_path(key, "sessions/s")


@given(parts=st.lists(st.sampled_from(["..", ".", "a", "b c", "", "/", "...", "~"]), min_size=1, max_size=6))
def test_no_key_resolves_outside(parts: list[str]):
    folder = Path("/somewhere/deep")
    try:
        path = relative_path("sessions/s/" + "/".join(parts), "sessions/s/")
    except errors.InvalidArgument:
        return
    assert path is not None
    assert Path(os.path.normpath(folder / path)).is_relative_to(folder)


def test_a_server_file_is_believed_only_if_its_process_answers(server: Background, tmp_path: Path):
    file = tmp_path / "server.json"
    assert find_local_server(tmp_path) is None
    with (tmp_path / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file.write_text("{half")
        file.chmod(0o600)
        assert find_local_server(tmp_path) is None
        file.write_text(json.dumps({"address": server.address, "pid": 2**22 + 1}))
        assert find_local_server(tmp_path) is None
        file.write_text(json.dumps({"address": "127.0.0.1:9", "pid": os.getpid()}))
        assert find_local_server(tmp_path) is None
        file.write_text(json.dumps({"address": server.address, "pid": os.getpid()}))
        local = find_local_server(tmp_path)
        assert local is not None and local.address == server.address
        with Client.connect(environ={"DRESSAGE_HOME": str(tmp_path)}) as client:
            assert client.address == server.address
    assert find_local_server(tmp_path) is None, "the lock is free"
