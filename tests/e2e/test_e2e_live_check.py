"""`tools/live_check` against the scripted provider: a whole session within its limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "tests" / "fakes"


def live_check(
    *arguments: str, folder: Path, seconds: float, key: str = "not a key"
) -> subprocess.CompletedProcess[str]:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "OPENAI_API_KEY": key, "TMPDIR": str(folder)}
    command = [str(ROOT / "tools" / "live_check"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)


@pytest.mark.parametrize("arguments", [(), ("--seeds", "2")])
def test_live_check_needs_a_model(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = live_check(*arguments, folder=tmp_path, seconds=60)
    assert done.returncode == 2 and "usage: tools/live_check MODEL" in done.stderr


def test_live_check_without_a_key_names_its_variable(tmp_path: Path) -> None:
    done = live_check("openai/gpt-4.1", folder=tmp_path, seconds=120, key="")
    assert done.returncode == 1 and "set OPENAI_API_KEY" in done.stderr
    assert done.stderr.endswith("live check failed: no session was created, and nothing was spent\n")
    assert "{" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", ["openai/gpt-4.1", "openai/unpriced"])
def test_live_check_runs_a_session_within_its_limits(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FAKES))
    import runpy

    from openai_server import ScriptedServer

    script = runpy.run_path(str(FAKES / "scripts" / "one_revision.py"))["SCRIPT"]
    with ScriptedServer(script) as server:
        done = live_check(model, "--api-base", server.url, folder=tmp_path, seconds=580)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "live check passed" in done.stdout
    assert ("price unknown" in done.stdout) == (model == "openai/unpriced")
