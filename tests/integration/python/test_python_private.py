"""A server of one machine and its files are its user's alone: another user and callers without the token get nothing."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dressage
import grpc
import pytest
import trustme
from dressage.api.internal.v1 import run_service_pb2
from dressage.cli.main import app
from dressage.client.loop import LoopThread
from dressage.local.stack import LocalStack
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from tests.fakes import public_api

AUTHORITY = trustme.CA()
METHODS = [f"/{method}" for method in public_api.METHODS]


class Served:
    """A full stack with TLS on a data folder below a folder that every user may enter."""

    def __init__(self, stack: LocalStack, data: Path) -> None:
        self.stack = stack
        self.data = data


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="dressage-private-") as folder:
        os.chmod(folder, 0o755)
        data = Path(folder) / "data"
        data.mkdir(mode=0o755)  # as an earlier version, or a person, made it
        loop = LoopThread()
        certificate, tls = AUTHORITY.issue_cert("localhost", "127.0.0.1"), (Path(folder) / "crt", Path(folder) / "key")
        tls[0].write_bytes(certificate.cert_chain_pems[0].bytes())
        certificate.private_key_pem.write_to_path(str(tls[1]))
        AUTHORITY.cert_pem.write_to_path(str(Path(folder) / "ca.crt"))
        stack = loop.run(LocalStack.start(data, tls=tls))
        try:
            yield Served(stack, data)
        finally:
            loop.run(stack.stop())
            loop.stop()


@pytest.fixture(scope="module")
def searched(served: Served) -> dressage.Result:
    """A session that ran on the server, by a command that was given nothing but the data folder."""
    result: dressage.Result = dressage.run(
        "balance the pole",
        env="CartPole-v1",
        method="parameters",
        iterations=2,
        data_dir=served.data,
        quiet=True,
    )
    return result


def code_of(address: str, method: str, token: str | None) -> str:
    """The status of a call of a unary or server-streaming method with an empty request."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_stream(method)
        try:
            list(call(b"", timeout=10, metadata=metadata))
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_asks_for_the_token(served: Served, method: str):
    assert code_of(served.stack.address, method, None) == "UNAUTHENTICATED"
    assert code_of(served.stack.address, method, "guessed") == "UNAUTHENTICATED"


def test_a_trainer_has_a_token_of_its_own(served: Served):
    (service,) = run_service_pb2.DESCRIPTOR.services_by_name.values()
    with grpc.insecure_channel(served.stack.address) as channel:
        work = channel.stream_stream(f"/{service.full_name}/Work")
        hello = run_service_pb2.WorkRequest(hello={"run": "sessions/a/runs/r1", "attempt": 1, "token": "1.ab"})
        with pytest.raises(grpc.RpcError) as refused:
            list(work(iter([hello.SerializeToString()]), timeout=10))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_health_is_open(served: Served):
    with grpc.insecure_channel(served.stack.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_the_token_is_in_the_private_server_file(served: Served):
    file = served.data / "server.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = json.loads(file.read_text())["token"]
    assert len(token) >= 32
    assert code_of(served.stack.address, "/dressage.v1.SessionService/ListSessions", token) == "OK"


def test_commands_on_the_folder_need_no_option(served: Served, searched: dressage.Result):
    assert searched.state == "succeeded" or searched.score is not None
    name = searched.session.removeprefix("sessions/")
    for options in ([], ["--address", served.stack.address]):
        listed = CliRunner().invoke(app, ["sessions", "list", "--json", "--data-dir", str(served.data), *options])
        assert listed.exit_code == 0 and name in listed.output, listed.output
    other = str(served.data.parent / "other")
    options = ["--data-dir", other, "--address", served.stack.address]
    elsewhere = CliRunner().invoke(app, ["sessions", "list", "--json", *options])
    assert elsewhere.exit_code != 0 and "token missing or wrong" in str(elsewhere.exception)


def test_other_machines_use_tls_and_the_token(served: Served):
    assert served.stack.public != served.stack.address
    options = ["--json", "--address", served.stack.public, "--data-dir", str(served.data.parent / "other")]
    trust = ["--ca-file", str(served.data.parent / "ca.crt"), "--token", served.stack.token]
    listed = CliRunner().invoke(app, ["sessions", "list", *options, *trust])
    assert listed.exit_code == 0, listed.exception
    without = CliRunner().invoke(app, ["sessions", "list", *options, *trust[:2]])
    assert "token missing or wrong" in str(without.exception)


def test_the_token_is_not_printed_and_not_logged(served: Served, searched: dressage.Result):
    assert searched.session
    assert served.stack.token is not None
    for path in (served.data / "logs").iterdir():
        assert served.stack.token not in path.read_text(errors="replace"), path


def test_files_and_folders_are_for_their_owner_only(served: Served, searched: dressage.Result):
    assert searched.session
    entries = [served.data, *served.data.rglob("*")]
    names = {path.name for path in entries}
    assert {"dressage.db", "workflows.db", "server.json", "artifacts", "logs"} <= names
    open_to_others = {
        str(path.relative_to(served.data)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in entries
        if path.lstat().st_mode & 0o077
    }
    assert open_to_others == {}


STRANGER = """
import json, os, sys
import grpc
grpc.insecure_channel("127.0.0.1:1").close()
address, methods, paths = json.loads(sys.stdin.read())
os.setgroups([]); os.setgid(65534); os.setuid(65534)
seen = {}
for path in paths:
    try:
        seen[path] = os.listdir(path) if os.path.isdir(path) else len(open(path, "rb").read(1))
    except OSError as error:
        pass
channel = grpc.insecure_channel(address)
for method in methods:
    try:
        list(channel.unary_stream(method)(b"", timeout=10))
        seen[method] = "OK"
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
            seen[method] = error.code().name
print(json.dumps(seen))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as a second user")
def test_another_user_of_the_machine_gets_nothing(served: Served, searched: dressage.Result):
    assert searched.session
    paths = [str(path) for path in (served.data, *served.data.rglob("*"))]
    given = json.dumps([served.stack.address, METHODS, paths])
    done = subprocess.run([sys.executable, "-c", STRANGER], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
