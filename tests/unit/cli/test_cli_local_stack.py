"""The local stack's wiring with services that only record; and what Ctrl-C means for a session of one's own stack."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import signal
import socket
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dressage import errors
from dressage.addresses import is_loopback
from dressage.api.v1 import session_pb2
from dressage.cli import run
from dressage.cli.serve import console_line, console_url, default_console
from dressage.client import AsyncClient
from dressage.client.discovery import LOCK_FILE
from dressage.local import connection, stack
from dressage.local.connection import ServerOptions as Where
from dressage.local.stack import LocalStack, _reachable
from pydantic_settings import BaseSettings

from tests.fakes.orchestrator import FakeOrchestrator, serving

SERVICES = ("dressage_llm_agent", "dressage_renderer", "dressage_judge", "dressage_orchestrator")


@dataclass
class Running:
    address: str
    stop: Any

    @property
    def local_address(self) -> str:
        return self.address


class Recorder:
    """Fake service packages that record their settings and the order of starts and stops."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.log: list[str] = []
        self.failing = ""
        self.slow = ""
        self.locked = 0

    def wiring(self, package: str) -> Any:
        async def stop() -> None:
            self.log.append(f"stop {package}")
            if self.slow == package:
                await asyncio.sleep(60)

        async def start(settings: Any) -> Running:
            if self.failing == package:
                raise errors.FailedPrecondition(f"{package} is locked")
            if package == "dressage_orchestrator" and self.locked:
                self.locked -= 1
                raise errors.FailedPrecondition("held by another", reason="DATA_FOLDER_IN_USE")
            self.settings[package] = settings
            self.log.append(f"start {package}")
            return Running(f"127.0.0.1:{5000 + len(self.log)}", stop)

        return start


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder = Recorder()

    class Common(BaseSettings):
        store_url: str = ""
        auth_token: str | None = None
        peer_tokens: dict[str, str] = {}
        address: str = "127.0.0.1:0"

    class Agent(Common):
        api_base: str | None = None
        recordings: str = ""
        earlier_recordings: tuple[str, ...] = ()

    class Judge(Common):
        llm_agent_address: str = ""
        llm_agent_token: str = ""
        renderer_address: str = ""
        renderer_token: str = ""

    class Orchestrator(Judge):
        data_dir: Path = Path()
        judge_address: str = ""
        judge_token: str = ""
        recover: bool = True
        oidc_issuer: str = ""
        oidc_audience: str = ""

    kinds = dict(zip(SERVICES, (Agent, Common, Judge, Orchestrator), strict=True))
    for package, kind in kinds.items():
        settings, wiring = types.ModuleType(f"{package}.settings"), types.ModuleType(f"{package}.wiring")
        settings.Settings, wiring.start = kind, recorder.wiring(package)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"{package}.settings", settings)
        monkeypatch.setitem(sys.modules, f"{package}.wiring", wiring)
    monkeypatch.setattr("dressage.local.stack._configure_logs", lambda *_: None)
    return recorder


async def test_services_start_from_the_leaves_and_stop_in_reverse(services: Recorder, tmp_path: Path):
    stack = await LocalStack.start(tmp_path / "new" / "folder", api_base="http://model")
    announced = json.loads((tmp_path / "new" / "folder" / "server.json").read_text())
    assert announced == {"address": stack.address, "pid": os.getpid(), "token": stack.token}
    await stack.stop()
    await stack.stop()
    assert not (tmp_path / "new" / "folder" / "server.json").exists()
    assert services.log == [f"start {name}" for name in SERVICES] + [f"stop {name}" for name in reversed(SERVICES)]
    orchestrator, agent = services.settings["dressage_orchestrator"], services.settings["dressage_llm_agent"]
    assert stack.address == "127.0.0.1:5004"
    assert orchestrator.data_dir == tmp_path / "new" / "folder"
    assert (orchestrator.llm_agent_address, orchestrator.judge_address) == ("127.0.0.1:5001", "127.0.0.1:5003")
    assert agent.api_base == "http://model"
    assert {settings.store_url for settings in services.settings.values()} == {str(stack.artifacts)}
    judge, renderer = services.settings["dressage_judge"], services.settings["dressage_renderer"]
    assert orchestrator.auth_token == stack.token and agent.auth_token is None
    assert agent.peer_tokens == {"orchestrator": orchestrator.llm_agent_token, "judge": judge.llm_agent_token}
    assert renderer.peer_tokens == {"orchestrator": orchestrator.renderer_token, "judge": judge.renderer_token}
    assert judge.peer_tokens == {"orchestrator": orchestrator.judge_token}
    pairs = [*agent.peer_tokens.values(), *renderer.peer_tokens.values(), *judge.peer_tokens.values(), stack.token]
    assert len(set(pairs)) == 6 and all(len(token) >= 32 for token in pairs), "a token for each pair"


async def test_a_data_folder_keeps_its_token_and_another_has_another(services: Recorder, tmp_path: Path):
    tokens = []
    for folder in ("a", "a", "b"):
        stack = await LocalStack.start(tmp_path / folder)
        await stack.stop()
        tokens.append(stack.token)
    assert tokens[0] == tokens[1] != tokens[2]
    stack = await LocalStack.start(tmp_path / "a", token="given")
    await stack.stop()
    assert services.settings["dressage_orchestrator"].auth_token == "given"


@pytest.mark.parametrize("listening", ["0.0.0.0:7400", "[::]:7400", "10.0.0.1:7400", "127.0.0.1:7400"])
async def test_commands_of_the_machine_reach_a_server_that_listens_everywhere(listening: str):
    reached = _reachable(listening)
    assert reached.endswith(":7400")
    assert reached == listening or is_loopback(reached.rpartition(":")[0])


async def test_the_console_starts_last_and_reaches_the_orchestrator(
    services: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Console(BaseSettings):
        address: str = ""
        orchestrator_address: str = ""

    settings, wiring = types.ModuleType("settings"), types.ModuleType("wiring")
    settings.Settings, wiring.start = Console, services.wiring("dressage_console")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dressage_console.settings", settings)
    monkeypatch.setitem(sys.modules, "dressage_console.wiring", wiring)
    stack = await LocalStack.start(tmp_path, console="127.0.0.1:0")
    await stack.stop()
    assert services.log[4:6] == ["start dressage_console", "stop dressage_console"]
    assert services.settings["dressage_console"].orchestrator_address == stack.address
    assert stack.console == "http://127.0.0.1:5005"
    with pytest.raises(errors.InvalidArgument, match=r"^console"):
        await LocalStack.start(tmp_path, console="0.0.0.0:0")


@pytest.mark.parametrize("option", ["address", "console", "metrics"])
@pytest.mark.parametrize("value", ["bad", "127.0.0.1:http", "127.0.0.1:99999"])
async def test_a_malformed_address_is_refused_by_the_name_of_its_option(
    services: Recorder, tmp_path: Path, option: str, value: str
):
    with pytest.raises(errors.InvalidArgument, match=f"^{option}: .*{value}.*HOST:PORT"):
        await LocalStack.start(tmp_path, **{option: value})  # type: ignore[arg-type]
    assert services.log == []


async def test_a_data_folder_remembers_the_folder_of_recordings(services: Recorder, tmp_path: Path):
    data, folder = tmp_path / "data", tmp_path / "behaviours"
    folder.mkdir()
    seen = []
    for given in (None, folder, None):
        stack = await LocalStack.start(data, recordings=given)
        await stack.stop()
        seen.append(services.settings["dressage_llm_agent"].recordings)
    folder.rmdir()
    await (await LocalStack.start(data)).stop()
    assert seen == ["", str(folder), str(folder)], "an interrupted replay can be continued"
    assert services.settings["dressage_llm_agent"].recordings == "", "a folder that is gone is not used"


async def test_replays_of_different_folders_can_all_be_continued(services: Recorder, tmp_path: Path):
    data, folders = tmp_path / "data", [tmp_path / name for name in "abc"]
    seen = []
    for folder in folders:
        folder.mkdir()
    for given in (*folders, folders[0], None):
        await (await LocalStack.start(data, recordings=given)).stop()
        agent = services.settings["dressage_llm_agent"]
        seen.append([Path(each).name for each in (agent.recordings, *agent.earlier_recordings)])
    assert seen == [["a"], ["b", "a"], ["c", "b", "a"], ["a", "c", "b"], ["a", "c", "b"]]


def test_the_console_is_next_to_the_api_or_on_a_free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert default_console(f"127.0.0.1:{port - 1}") == "127.0.0.1:0"
    assert default_console("127.0.0.1:0") == "127.0.0.1:0"
    assert default_console(f"127.0.0.1:{port - 1}") == f"127.0.0.1:{port}"


def test_the_token_is_in_the_fragment_of_the_address():
    stack = LocalStack(address="127.0.0.1:1", artifacts=Path(), token="a/b&c", console="http://127.0.0.1:2")
    assert console_url(stack) == "http://127.0.0.1:2/#token=a%2Fb%26c"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert console_line(stack, Path("/data"), Terminal()) == "console: http://127.0.0.1:2/#token=a%2Fb%26c"
    line = console_line(stack, Path("/data"), io.StringIO())
    assert "a/b" not in line and "token=" not in line and "/data/server.json" in line, "a file does not get the token"


async def test_a_service_that_does_not_start_takes_the_others_down(services: Recorder, tmp_path: Path):
    services.failing = "dressage_judge"
    with pytest.raises(errors.FailedPrecondition, match="locked"):
        await LocalStack.start(tmp_path)
    assert services.log[2:] == ["stop dressage_renderer", "stop dressage_llm_agent"]


async def test_a_service_that_does_not_stop_is_left_after_its_time(
    services: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dressage.local.stack._STOP_SECONDS", 0.05)
    services.slow = "dressage_judge"
    stack = await LocalStack.start(tmp_path)
    await asyncio.wait_for(stack.stop(), 5)
    assert services.log[-1] == "stop dressage_llm_agent"


async def test_a_stack_for_records_starts_the_orchestrator_alone(services: Recorder, tmp_path: Path):
    stack = await LocalStack.start(tmp_path, full=False)
    await stack.stop()
    assert services.log == ["start dressage_orchestrator", "stop dressage_orchestrator"]
    assert services.settings["dressage_orchestrator"].recover is False


async def test_a_folder_that_cannot_be_made_is_said(services: Recorder, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.InvalidArgument, match="data_dir"):
        await LocalStack.start(tmp_path / "file" / "below")


async def test_a_running_server_is_joined_and_a_dead_one_is_not(
    services: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with serving(FakeOrchestrator()) as address:
        facts = {"address": address, "pid": os.getpid(), "token": "its own"}
        (tmp_path / "server.json").write_text(json.dumps(facts))
        (tmp_path / "server.json").chmod(0o600)
        lock = (tmp_path / LOCK_FILE).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with connection.connect(Where(data_dir=tmp_path, token="of another server"), start="full") as joined:
            assert (joined.kind, joined.client.address, joined.client.endpoint.token) == ("joined", address, "its own")
            assert joined.local_path("sessions/none") is None
        lock.close()
    assert services.log == []
    async with connection.connect(Where(data_dir=tmp_path), start="full") as own:
        assert own.kind == "stack"
    assert services.log
    with pytest.raises(errors.FailedPrecondition, match="dressage serve"):
        async with connection.connect(Where(data_dir=tmp_path), start="no"):
            pass


async def test_a_folder_is_quoted_where_a_command_is_suggested(services: Recorder, tmp_path: Path):
    folder = tmp_path / "my data"
    async with connection.connect(Where(data_dir=folder), start="full") as own:
        assert own.flags == f" --data-dir '{folder}'"


async def test_a_folder_that_is_held_for_a_moment_is_waited_for(
    services: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "_LOCKED_RETRY_SECONDS", 0.01)
    services.locked = 2
    async with connection.connect(Where(data_dir=tmp_path), start="full") as own:
        assert own.kind == "stack"
    assert services.log.count("start dressage_llm_agent") == 3
    monkeypatch.setattr(connection, "_LOCKED_SECONDS", 0.05)
    services.locked = 1000
    with pytest.raises(errors.FailedPrecondition, match="held"):
        async with connection.connect(Where(data_dir=tmp_path), start="full"):
            pass


async def _followed(kind: str, *numbers: int) -> tuple[FakeOrchestrator, session_pb2.Session, int | None]:
    """Follows a session that runs for ever, with signals that arrive."""
    fake = FakeOrchestrator(
        sessions={"sessions/a": session_pb2.Session(name="sessions/a", state=session_pb2.SESSION_STATE_RUNNING)},
        events={"sessions/a": []},
        hold_stream=asyncio.Event(),
    )
    signals = asyncio.Queue[int]()
    async with serving(fake) as address, AsyncClient.connect(address) as client:
        for number in numbers:
            signals.put_nowait(number)
        place = connection.Connection(client, kind, None)  # type: ignore[arg-type]
        session, code = await asyncio.wait_for(
            run.follow("sessions/a", place, run.OutputOptions(), signals=signals), 20
        )
    return fake, session, code


async def test_ctrl_c_cancels_a_session_of_the_own_stack(capsys: pytest.CaptureFixture[str]):
    fake, session, code = await _followed("stack", signal.SIGINT)
    assert code == 130
    assert session.state == session_pb2.SESSION_STATE_CANCELLED
    assert len(fake.requests["CancelSession"]) == 1
    assert "press Ctrl-C again to exit at once" in capsys.readouterr().err


async def test_sigterm_stops_without_cancelling(capsys: pytest.CaptureFixture[str]):
    fake, _, code = await _followed("stack", signal.SIGTERM)
    assert code == 143
    assert not fake.requests["CancelSession"]
    assert "`dressage serve` on this data folder resumes sessions/a" in capsys.readouterr().err


async def test_ctrl_c_detaches_from_a_joined_server(capsys: pytest.CaptureFixture[str]):
    fake, session, code = await _followed("joined", signal.SIGINT)
    assert code == 130
    assert session.state == session_pb2.SESSION_STATE_RUNNING
    assert not fake.requests["CancelSession"]
    assert "dressage sessions cancel a" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["settings", "wiring"])
def test_a_bare_wheel_names_the_extra(monkeypatch: pytest.MonkeyPatch, part: str):
    def missing(module: str) -> types.ModuleType:
        raise ModuleNotFoundError("No module named 'httpx'", name="httpx")

    monkeypatch.setattr(stack.importlib, "import_module", missing)
    with pytest.raises(errors.FailedPrecondition, match=r"need httpx, which is not installed: .*local") as caught:
        stack._import_service(f"dressage_llm_agent.{part}")
    assert caught.value.reason == "MISSING_EXTRA"
