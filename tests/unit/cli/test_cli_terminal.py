"""Control sequences in intents, replies, rewards and logs reach no terminal."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from dressage.api.v1 import session_pb2 as pb
from dressage.cli.main import invoke
from dressage.serving import logs
from dressage.terminal import PrintableStream, make_console, printable
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.orchestrator import Background, FakeOrchestrator

HOSTILE = "run\x1b[2K\x1b[1A\x1b]0;title\x07\x1b]52;c;Y2F0\x07\x9b31m\rforward\u202egniht\x08\x7f\x00 \x1b[8mhidden"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Background]:
    session = pb.Session(name="sessions/a", state=pb.SESSION_STATE_FAILED, state_reason=HOSTILE, owner=HOSTILE)
    session.spec.intent, session.spec.environment = HOSTILE, "environments/Hopper-v5"
    session.best_judgment.diagnosis = HOSTILE
    fake = FakeOrchestrator(sessions={"sessions/a": session}, events={"sessions/a": []})
    fake.estimate.spec.CopyFrom(session.spec)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path))
    with Background(fake) as running:
        monkeypatch.setenv("DRESSAGE_ADDRESS", running.address)
        yield running


@pytest.mark.parametrize(
    "command",
    [
        ["sessions", "list"],
        ["sessions", "list", "--json"],
        ["sessions", "show", "a"],
        ["sessions", "show", "a", "--json"],
        ["sessions", "watch", "a"],
        ["sessions", "lineage", "a"],
        ["sessions", "cancel", HOSTILE],
        ["runs", "list", "a"],
        ["envs", "show", HOSTILE],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_no_command_writes_control_characters(
    hostile: Background, command: list[str], capsys: pytest.CaptureFixture[str]
):
    invoke(command)
    written = capsys.readouterr()
    assert not CONTROL.search(written.out + written.err), written
    assert written.out + written.err


def test_json_keeps_the_text(hostile: Background, capsys: pytest.CaptureFixture[str]):
    assert invoke(["sessions", "list", "--json"]) == 0
    assert HOSTILE in _strings(json.loads(capsys.readouterr().out))


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for entry in value.values() for text in _strings(entry)]
    if isinstance(value, list):
        return [text for entry in value for text in _strings(entry)]
    return [value] if isinstance(value, str) else []


@given(st.text())
def test_printable_text_has_no_control_characters_and_the_same_json(text: str):
    shown = printable(text)
    assert not CONTROL.search(shown)
    assert shown == text or CONTROL.search(text) or "\u061c" in text
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_styles_of_commands_pass_and_others_do_not():
    written = io.StringIO()
    stream = PrintableStream(written)
    stream.write("\x1b[31merror:\x1b[0m \x1b[1;33mbold\x1b[0m \x1b[8mhidden\x1b[30;40mblack")
    assert written.getvalue() == ("\x1b[31merror:\x1b[0m \x1b[1;33mbold\x1b[0m \\u001b[8mhidden\\u001b[30;40mblack")


def test_a_live_picture_controls_the_terminal_but_texts_do_not():
    from rich.live import Live
    from rich.text import Text

    written = io.StringIO()
    console = make_console(PrintableStream(written), force_terminal=True, width=80)
    with Live(Text(f"intent {HOSTILE}"), console=console, refresh_per_second=4):
        pass
    text = written.getvalue()
    assert "\x1b[?25l" in text, "rich hides the cursor"
    assert "\x1b]52" not in text and "\x1b]0;" not in text and "\x9b" not in text and "\u202e" not in text


def test_text_logs_are_escaped():
    target = io.StringIO()
    handlers = structlog.get_config()
    try:
        logs.configure(format="text", stream=target)
        structlog.get_logger("x").warning("a session failed", reason=HOSTILE)
    finally:
        structlog.configure(**handlers)
    assert "a session failed" in target.getvalue() and not CONTROL.search(target.getvalue())
