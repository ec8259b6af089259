"""TLS and callers: what a server shows, to whom, and what a client refuses to send."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from dressage import errors
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as agent_rpc
from dressage.api.v1 import environment_service_pb2 as pb
from dressage.api.v1 import environment_service_pb2_grpc as pb_grpc
from dressage.client import AsyncClient, CallPolicy, Trust
from dressage.serving.access import by_tokens, current_principal
from dressage.serving.channels import connect, read_authorities
from dressage.serving.server import GrpcServer, TlsFiles
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr

SERVICE = "dressage.v1.EnvironmentService"
QUICK = CallPolicy(attempt_seconds=2, total_seconds=2, initial_backoff=0.1)


class Environments(pb_grpc.EnvironmentServiceServicer):
    """Answers with the name of the caller."""

    async def GetEnvironment(self, request: Any, context: Any) -> pb.Environment:
        principal = current_principal.get()
        return pb.Environment(name=principal.name if principal else "")


class Authority:
    """A certificate authority and the files of a server's certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = TlsFiles(folder / "tls.crt", folder / "tls.key")
        self.ca = folder / "ca.crt"
        self.issue()

    def issue(self) -> None:
        """Replace authority and certificate."""
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        authority.cert_pem.write_to_path(str(self.ca))
        certificate.private_key_pem.write_to_path(str(self.files.key))
        self.files.cert.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))

    @property
    def trust(self) -> Trust:
        return Trust(self.ca)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(authority: Authority, **more: Any) -> AsyncIterator[tuple[GrpcServer, str]]:
    known = by_tokens({"alice": SecretStr("of alice"), "judge": SecretStr("of the judge")})
    options = {"tls": authority.files, "authenticate": known, "grace_seconds": 0.1, **more}
    server = GrpcServer(service_name="test", address="127.0.0.1:0", **options)
    server.add(pb_grpc.add_EnvironmentServiceServicer_to_server, Environments(), SERVICE)
    address = await server.start()
    try:
        yield server, address
    finally:
        await server.stop()


async def caller(address: str, token: str | None, trust: Trust) -> str:
    async with AsyncClient.connect(address, token, trust=trust, policy=QUICK, environ={}) as client:
        return str((await client.get_environment("environments/x")).name)


async def test_a_client_with_the_authority_reaches_a_tls_server(authority: Authority):
    async with serving(authority) as (_, address):
        assert await caller(address, "of alice", authority.trust) == "alice"
        assert await caller(f"https://{address}", "of the judge", authority.trust) == "judge"
        async with connect(address, token=SecretStr("of the judge"), tls_ca=authority.ca.read_text()) as channel:
            reply = await pb_grpc.EnvironmentServiceStub(channel).GetEnvironment(
                pb.GetEnvironmentRequest(name="environments/x"), timeout=5
            )
        assert reply.name == "judge"


async def test_other_authorities_and_clear_calls_do_not_reach_it(authority: Authority, tmp_path: Path):
    (tmp_path / "other").mkdir()
    async with serving(authority) as (_, address):
        for trust, url in ((Authority(tmp_path / "other").trust, address), (Trust(), f"https://{address}")):
            with pytest.raises(errors.Unavailable):
                await caller(url, "of alice", trust)
        with pytest.raises(errors.Unavailable):
            await caller(f"http://{address}", "of alice", Trust())


async def test_a_replaced_certificate_is_served_without_a_restart(authority: Authority):
    async with serving(authority) as (_, address):
        assert await caller(address, "of alice", authority.trust) == "alice"
        authority.files.cert.write_text("half a certificate")  # the old one is served while files are replaced
        authority.issue()
        assert await caller(address, "of alice", authority.trust) == "alice"


async def test_processes_of_the_machine_call_it_in_clear(authority: Authority):
    async with serving(authority) as (server, address):
        assert server.local_address.startswith("127.0.0.1:") and server.local_address != address
        assert await caller(server.local_address, "of alice", Trust()) == "alice"
        with pytest.raises(errors.Unauthenticated):
            await caller(server.local_address, None, Trust())


async def test_probes_get_health_in_clear_and_nothing_else(authority: Authority):
    probe = "127.0.0.1:50152"
    async with serving(authority, health_address=probe), grpc.aio.insecure_channel(probe) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await pb_grpc.EnvironmentServiceStub(channel).GetEnvironment(
                pb.GetEnvironmentRequest(name="environments/x"), timeout=5
            )
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("files", [("absent.crt", "absent.key"), ("words", "words")])
async def test_a_bad_certificate_is_named(files: tuple[str, str], tmp_path: Path):
    (tmp_path / "words").write_text("words")
    tls = TlsFiles(tmp_path / files[0], tmp_path / files[1])
    with pytest.raises(errors.FailedPrecondition, match=files[1]):
        await GrpcServer(service_name="test", address="127.0.0.1:0", tls=tls).start()


@pytest.mark.parametrize("address", ["gpu-host:7400", "http://gpu-host:7400", "10.1.2.3:7400", "[2001:db8::1]:7400"])
def test_a_token_is_not_sent_in_clear_to_another_machine(address: str):
    with pytest.raises(errors.InvalidArgument, match=r"without encryption.*DRESSAGE_CA_FILE.*--insecure") as refused:
        AsyncClient.connect(address, "t", environ={})
    assert refused.value.reason == "TOKEN_IN_CLEAR"
    with pytest.raises(errors.InvalidArgument, match="without encryption"):
        AsyncClient.connect(environ={"DRESSAGE_ADDRESS": address, "DRESSAGE_TOKEN": "t"})


@pytest.mark.parametrize("environ", [{"DRESSAGE_INSECURE": "1"}, {}])
async def test_it_is_sent_where_that_is_asked_for(environ: dict[str, str]):
    trust = None if environ else Trust(insecure=True)
    async with AsyncClient.connect("gpu-host:7400", "t", trust=trust, environ=environ) as client:
        assert client.endpoint.url == "http://gpu-host:7400"
    for loopback in ("localhost:7400", "127.9.9.9:7400", "[::1]:7400"):
        async with AsyncClient.connect(loopback, "t", environ={}):
            pass
    async with AsyncClient.connect("gpu-host:7400", environ={}):  # without a token there is nothing to keep
        pass


def test_the_token_is_not_shown():
    async def shown() -> str:
        async with AsyncClient.connect("127.0.0.1:7400", "very secret", environ={}) as client:
            return repr(client.endpoint)

    assert "very secret" not in asyncio.run(shown())


@pytest.mark.parametrize("problem", ["absent", "words"])
def test_a_bad_authority_file_is_named(problem: str, tmp_path: Path):
    (tmp_path / "words").write_text("words")
    with pytest.raises(errors.InvalidArgument, match=r"ca_file.*PEM"):
        AsyncClient.connect("gpu-host:7400", "t", trust=Trust(tmp_path / problem), environ={})


@pytest.mark.parametrize(
    "package", ["dressage_llm_agent", "dressage_judge", "dressage_renderer", "dressage_orchestrator"]
)
async def test_no_service_starts_beyond_loopback_without_credentials(package: str, tmp_path: Path):
    wiring = importlib.import_module(f"{package}.wiring")
    settings = importlib.import_module(f"{package}.settings").Settings
    values = {"address": "0.0.0.0:0", "store_url": str(tmp_path / "store"), "data_dir": tmp_path / "data"}
    values = {name: value for name, value in values.items() if name in settings.model_fields}
    with pytest.raises(errors.FailedPrecondition, match=r"refuses to listen on 0\.0\.0\.0:0 without credentials"):
        await wiring.start(settings(**values))


async def test_a_service_asks_its_peers_for_their_tokens(tmp_path: Path):
    from dressage.api.internal.v1 import renderer_service_pb2, renderer_service_pb2_grpc
    from dressage_renderer.settings import Settings
    from dressage_renderer.wiring import start

    tokens = {"orchestrator": SecretStr("o" * 32), "judge": SecretStr("j" * 32)}
    service = await start(Settings(address="0.0.0.0:0", store_url=str(tmp_path), peer_tokens=tokens))
    address = service.address.replace("0.0.0.0", "127.0.0.1")
    codes = []
    try:
        for token in (None, "guessed", "o" * 32, "j" * 32):
            async with connect(address, token=token) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await renderer_service_pb2_grpc.RendererServiceStub(channel).Render(
                        renderer_service_pb2.RenderRequest(), timeout=5
                    )
                codes.append(refused.value.code().name)
    finally:
        await service.stop()
    assert codes == ["UNAUTHENTICATED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]


def test_a_service_alone_says_why_it_does_not_start(tmp_path: Path):
    environment = {
        "PATH": "/bin",
        "DRESSAGE_RENDERER_ADDRESS": "0.0.0.0:0",
        "DRESSAGE_RENDERER_STORE_URL": str(tmp_path),
    }
    command = [sys.executable, "-m", "dressage_renderer"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith("error: renderer refuses"), done
    environment["DRESSAGE_RENDERER_TLS_CERT"] = str(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "TLS needs both" in done.stderr, done


async def test_the_orchestrator_and_the_judge_call_llm_agent_by_tls(authority: Authority, tmp_path: Path):
    from dressage_judge import wiring as judge
    from dressage_judge.settings import Settings as JudgeSettings
    from dressage_llm_agent import wiring as agent
    from dressage_llm_agent.settings import Settings as AgentSettings
    from dressage_orchestrator import wiring as orchestrator
    from dressage_orchestrator.settings import Settings

    tokens = {"orchestrator": SecretStr("of the orchestrator"), "judge": SecretStr("of the judge")}
    served = await agent.start(
        AgentSettings(tls_cert=authority.files.cert, tls_key=authority.files.key, peer_tokens=tokens)
    )
    try:
        given = {"llm_agent_address": served.address, "renderer_address": served.address}
        for file in (authority.ca, None):
            async with AsyncExitStack() as stack:
                settings = Settings(
                    **given,
                    data_dir=tmp_path,
                    services_tls_ca_file=file,
                    llm_agent_token=SecretStr("of the orchestrator"),
                )
                described = (await orchestrator._clients(settings, stack))["agent"].describe("template/v1", "")
                if file is None:
                    with pytest.raises(errors.Unavailable):
                        await described
                else:
                    assert (await described).configured
            channels: list[grpc.aio.Channel] = []
            judging = JudgeSettings(**given, services_tls_ca_file=file, llm_agent_token=SecretStr("of the judge"))
            judge._video_judge(judging, Any, channels)  # type: ignore[arg-type]
            request = agent_pb.DescribeModelRequest(model="template/v1")
            call = agent_rpc.AgentServiceStub(channels[0]).DescribeModel(request, timeout=5)
            if file is None:
                with pytest.raises(grpc.aio.AioRpcError):
                    await call
            else:
                assert (await call).configured
            for channel in channels:
                await channel.close()
    finally:
        await served.stop()


def test_a_file_of_authorities_that_is_none_is_refused(tmp_path: Path):
    for text in (None, "no certificate"):
        file = tmp_path / "ca.crt"
        if text is not None:
            file.write_text(text)
        with pytest.raises(errors.FailedPrecondition, match=r"ca\.crt"):
            read_authorities(file)
    assert read_authorities(None) == ""
