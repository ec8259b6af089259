"""Commands that output suggests work where they are printed, and take what other commands print."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from dressage import installation
from dressage.api.v1 import event_pb2
from dressage.api.v1 import session_pb2 as pb
from dressage.cli import listings, summary
from dressage.cli.main import invoke
from dressage.client import AsyncClient
from dressage.local.connection import Connection
from dressage.sdk.files import read_criteria
from dressage.sdk.progress import View, advance
from dressage.sdk.results import Result, rows

from tests.fakes.orchestrator import Background, FakeOrchestrator

ROOT = Path(__file__).parents[3]


def checkout(folder: Path) -> Path:
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "uv").touch()
    return folder


def test_the_install_command_follows_the_installation(tmp_path: Path) -> None:
    root = checkout(tmp_path / "clone")

    def command(extra: str, *, prefix: Path, folder: Path = root) -> str:
        return installation.command_for(extra, root=root, prefix=prefix, folder=folder)

    assert command("sb3", prefix=root / ".venv").startswith("tools/uv sync --inexact ")
    assert command("sb3", prefix=root / ".venv", folder=tmp_path).startswith(f"{root}/tools/uv sync ")
    assert command("local", prefix=tmp_path) == "pip install 'dressage[local]'"
    assert command("sb3", prefix=tmp_path).endswith("whl/cpu"), "pip installs torch for the CPU"
    assert (ROOT / "tools" / "uv").is_file()


@pytest.mark.parametrize("installed", [True, False])
def test_an_export_to_sb3_is_suggested_only_where_torch_is(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "has_sb3", lambda: installed)
    session = pb.Session(name="sessions/s1", state=pb.SESSION_STATE_SUCCEEDED, best_policy="p")
    commands = summary.next_commands(Result(session, Connection(None, "remote", None)))  # type: ignore[arg-type]
    assert any("--format sb3" in command for command in commands) == installed
    assert any("--format onnx" in command for command in commands) != installed


@pytest.mark.parametrize("state", ["running", "interrupted", "cancelled"])
def test_approval_is_suggested_where_a_proposal_waits_for_it(state: str) -> None:
    connection = Connection(None, "stack", None, " --data-dir d", read_only=state == "interrupted")  # type: ignore[arg-type]
    cancelled = state == "cancelled"
    session = pb.Session(name="sessions/s1", phase=pb.PHASE_APPROVE)
    session.state = pb.SESSION_STATE_CANCELLED if cancelled else pb.SESSION_STATE_RUNNING
    result = Result(session, connection)
    assert (summary.next_commands(result)[0] == "dressage sessions approve s1 --data-dir d") != cancelled
    assert ("waits for your approval" in rows(result)[0][1]) != cancelled
    requested = event_pb2.Event(approval_requested=event_pb2.ApprovalRequested(iteration="sessions/s1/iterations/1"))
    view = View(session="sessions/s1", started=0.0, flags=" --data-dir d")
    assert advance(view, requested).lines == ("waits for approval: dressage sessions approve s1 --data-dir d",)


@pytest.mark.parametrize("arguments", [["eval", "bundle"], ["run", "hop", "--env", "Hopper-v5"]])
def test_a_missing_package_is_named_with_its_extra(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "gymnasium", None)  # as where only the wheel itself is installed
    (tmp_path / "bundle").mkdir()
    monkeypatch.chdir(tmp_path)

    async def start(*_: Any, **__: Any) -> None:
        __import__("gymnasium")

    monkeypatch.setattr("dressage.sdk.policy.load_path", lambda folder: __import__("gymnasium"))
    monkeypatch.setattr("dressage.local.stack.LocalStack.start", start)
    assert invoke(arguments) == 1
    err = capsys.readouterr().err
    assert installation.install_command("local") in err and "Traceback" not in err and "bug" not in err


@pytest.mark.parametrize("word", ["false", "off", "no"])
def test_a_criterion_that_is_off_in_yaml_is_left_out(tmp_path: Path, word: str) -> None:
    path = tmp_path / "criteria.yaml"
    path.write_text(f"criteria:\n- title: fast\n- title: quiet\n  on: {word}\n- title: low\n  on: true\n")
    assert [entry.title for entry in read_criteria(path)] == ["fast", "low"]


def test_resume_states_what_it_adds() -> None:
    before = pb.SessionSpec(max_iterations=1, budget=pb.Budget(dollars=1.0))
    after = pb.SessionSpec(max_iterations=3, budget=pb.Budget(dollars=2.5, tokens=1000))
    after.budget.wall_time.FromSeconds(90)
    assert listings.limits_change(before, after) == (
        "2 more iterations, at most 3 in total; at most 2.5 $; at most 1,000 tokens; at most 1 min 30 s"
    )
    assert listings.limits_change(after, after) == "no further iteration, at most 3 in total"


def test_a_resumed_session_shows_only_new_events(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # for the learning curve

    def warning(number: int, text: str) -> event_pb2.Event:
        return event_pb2.Event(sequence=number, warning=event_pb2.Warning(message=text))

    class Resuming(FakeOrchestrator):
        async def ResumeSession(self, request: Any, context: Any) -> Any:
            session = await super().ResumeSession(request, context)
            self.events[request.name].append(warning(2, "after"))
            return session

    fake = Resuming(ended=pb.Session(state=pb.SESSION_STATE_EXHAUSTED))
    fake.sessions["sessions/s1"] = pb.Session(name="sessions/s1", state=pb.SESSION_STATE_EXHAUSTED)
    fake.events["sessions/s1"] = [warning(1, "before")]
    with Background(fake) as server:

        async def resume() -> None:
            async with AsyncClient.connect(server.address) as client:
                await listings.resume("s1", iterations=1, as_json=False)(Connection(client, "stack", None))

        asyncio.run(resume())
    out = capsys.readouterr().out
    assert "warning: after" in out and "warning: before" not in out
    assert out.startswith("resuming s1: ")


def test_render_takes_the_key_of_a_rollout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "sessions/s1/iterations/1/assignments/train/members/base-s0/rollouts/5000_median.npz"
    fake = FakeOrchestrator()
    fake.artifacts = {key: b"rollout"}
    drawn: list[bytes] = []

    def draw(recorded: Path, target: Path) -> dict[str, Any]:
        drawn.append(recorded.read_bytes())
        return {"video": str(target)}

    monkeypatch.setattr("dressage.cli.videos.draw", draw)
    monkeypatch.chdir(tmp_path)
    with Background(fake) as server:
        assert invoke(["render", key, "--address", server.address]) == 0
    assert drawn == [b"rollout"] and capsys.readouterr().out == "5000_median.mp4\n"
