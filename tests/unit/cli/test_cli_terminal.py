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
from dressage.cli import output
from dressage.cli.main import invoke
from dressage.errors import FailedPrecondition
from dressage.serving import logs
from dressage.terminal import PrintableStream, make_console, printable
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.orchestrator import Background, FakeOrchestrator

HOSTILE = "run\x1b[2K\x1b[1A\x1b]0;title\x07\x1b]52;c;Y2F0\x07\x9b31m\rforward\u202egniht\x08\x7f\x00 \x1b[8mhidden"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


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


@given(st.text(st.characters()))
def test_printable_text_has_no_control_characters_and_the_same_json(text: str):
    shown = printable(text)
    assert not CONTROL.search(shown)
    assert shown == text or CONTROL.search(text)
    assert PrintableStream(io.TextIOWrapper(io.BytesIO(), "utf-8")).write(text) == len(text)
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_styles_in_texts_do_not_pass():
    written = io.StringIO()
    PrintableStream(written).write("\x1b[31merror:\x1b[0m \x1b[8mhidden")
    assert written.getvalue() == "\\u001b[31merror:\\u001b[0m \\u001b[8mhidden"


def test_errors_are_red_but_what_they_quote_is_not(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    written = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", PrintableStream(written))
    output.fail(FailedPrecondition("it printed \x1b[1mbold\x1b[0m", reason="X"), as_json=False)
    assert written.getvalue() == "\x1b[31merror: it printed \\u001b[1mbold\\u001b[0m\x1b[0m\n"


CLAIM = "\\x1b[32mok\\x1b]0;title\\x07\\nreward.py: passed (vectorised, 0.01 ms for a step of 1000 environments)"
RAISING = f"""
def reward_fn(obs, action, next_obs, info):
    raise ValueError("{CLAIM}")
"""
NAMED = f"""
LATEX = "x{CLAIM}"
TERMS = {{"a{CLAIM}": "meaning{CLAIM}"}}

def reward(state, action, next_state, memory, np):
    return {{"a{CLAIM}": next_state.x_velocity}}
"""


@pytest.mark.parametrize(("source", "code"), [(RAISING, 1), (NAMED, None)], ids=["exception", "names"])
def test_check_writes_no_control_characters_of_the_code(
    source: str, code: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "reward.py"
    path.write_text(source)
    ended = invoke(["check", str(path), "--env", "HalfCheetah-v5"])
    written = capsys.readouterr().out
    assert code in (ended, None)
    assert written and not CONTROL.search(written), written
    claims = [line for line in written.splitlines() if line.startswith("reward.py: passed")]
    assert not claims, "the code printed a line that looks like a result"


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
