"""A search over programs by the installed command: kill -9 in the middle, and the same session comes out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from serving import DRESSAGE

ARGUMENTS = ("--env", "karel/DoorKey", "--method", "program", "--target", "2", "--set", "budget=150000", "--seed", "5")


def run(data: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [DRESSAGE, *arguments, "--data-dir", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, **options)  # type: ignore[call-overload,no-any-return]


def facts_of(data: Path, session: str) -> tuple[object, ...]:
    """Return what must not depend on being killed."""
    (iteration,) = json.loads(run(data, "sessions", "show", session, "--json", check=True).stdout)["iterations"]
    program = iteration["program"]
    search = program["search"]
    return program["programs"], program["program"], iteration["score"], search["evaluated"], search["improvements"]


@pytest.mark.timeout(900)
def test_a_killed_run_resumes_to_the_same_program(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", "run", "open the door", *ARGUMENTS, "--json")
    facts = json.loads(whole.stdout)
    assert facts["state"] == "exhausted" and len(facts["report_returns"]) == 32 and facts["candidates"] == 150_000
    name = facts["session"]["name"]
    expected = facts_of(tmp_path / "whole", name)

    killed = tmp_path / "killed"
    command = [DRESSAGE, "run", "open the door", *ARGUMENTS, "--data-dir", str(killed)]
    environment = {**os.environ, "DRESSAGE_ORCHESTRATOR_CHECKPOINT_SECONDS": "0.2"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "search: 0.5" in line:
                break
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGKILL)
    listed = json.loads(run(killed, "sessions", "list", "--json", check=True).stdout)["sessions"]
    resumed = run(killed, "sessions", "watch", listed[0]["name"])
    assert resumed.returncode == 0, resumed.stderr
    assert facts_of(killed, listed[0]["name"]) == expected

    evaluated = json.loads(
        run(killed, "eval", listed[0]["name"], "--seed", "1000", "--episodes", "32", "--json").stdout
    )
    assert evaluated["policy"]["mean_return"] == pytest.approx(facts["score"], abs=1e-12)
    exported = run(killed, "export", listed[0]["name"], "--format", "python", "--out", str(tmp_path / "program.py"))
    assert exported.returncode == 0 and "def run():" in (tmp_path / "program.py").read_text()
