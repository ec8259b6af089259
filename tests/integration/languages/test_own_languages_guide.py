"""The example of the page on languages of your own runs from the text of the page alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dressage.sandbox.capabilities import capabilities

pytestmark = [
    pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp"),
    pytest.mark.timeout(600),
]


def test_the_commands_of_the_guide_run_offline_to_a_score(vacuum: Path, run: Any, guide: list[str], home: Path) -> None:
    """One test: each command needs those before it."""
    _, sample, search, *others = guide
    programs = run(sample).stdout.splitlines()
    assert len(programs) == 3 and all(program.startswith("DEF run m( ") for program in programs)
    result = run(search)
    assert result.returncode == 0, result.stderr[-2000:]
    assert re.search(r"state\s+succeeded", result.stdout) and re.search(
        r"score\s+1\.00 over 32 episodes", result.stdout
    )
    assert "starts from random programs" in result.stdout + result.stderr
    (session,) = json.loads(run("dressage sessions list --json").stdout)["sessions"]
    outputs = [run(line.replace("SESSION", session["name"].partition("/")[2])) for line in others]
    assert [output.returncode for output in outputs] == [0] * len(others), [o.stderr[-500:] for o in outputs]
    evaluated, _, scored, traced = (output.stdout for output in outputs)
    assert "1.00" in evaluated and "def run():" in (home / "clean.py").read_text()
    assert "mean return 1.0000 on 32 states of vacuum/Corridor" in scored
    assert "suck()" in traced and "the task ended the episode" in traced and "o is dirt" in traced


def test_a_registered_language_is_listed_drawn_and_removed(vacuum: Path, run: Any, home: Path) -> None:
    assert "vacuum/CleanRoom" in run("dressage envs list --json").stdout
    listed = json.loads(run("dressage programs languages --json").stdout)["languages"]
    assert [row["name"] for row in listed] == ["vacuum"] and listed[0]["engine"] == "compiled"
    picture = run("dressage programs render 'DEF run m( forward suck m)' --task vacuum/CleanRoom --out run.png")
    assert picture.returncode == 0 and (home / "run.png").read_bytes()[:4] == b"\x89PNG"
    missing = run("dressage programs unregister nothing")
    assert missing.returncode != 0 and "registered languages: vacuum" in missing.stderr
    assert run("dressage programs unregister vacuum").stdout == "removed: vacuum\n"
    unknown = run("dressage programs eval 'DEF run m( suck m)' --task vacuum/CleanRoom")
    assert unknown.returncode != 0 and "unknown task" in unknown.stderr
