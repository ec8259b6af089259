"""An experiment on the real local stack, killed after its first result: the same command completes it and repeats nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from serving import DRESSAGE, run_cli

EXPERIMENT = """
name: tiny
environments: [{id: CartPole-v1, score_range: [0, 500]}]
methods:
  - {name: random, settings: {search: random, episodes: 5, report_episodes: 10, target: 501}}
runs: 2
budget: {episodes: 50}
"""
_DEADLINE = 600


def results(folder: Path) -> list[dict[str, object]]:
    path = folder / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def killed_after_one_result(command: list[str], out: Path) -> None:
    """Run a command until there is a result, then kill -9 its whole process group, trainers included."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, text=True
    )
    try:
        deadline = time.monotonic() + _DEADLINE
        while not results(out) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_experiment_is_completed_by_the_same_command(tmp_path: Path) -> None:
    path, out, data = tmp_path / "tiny.yaml", tmp_path / "out", tmp_path / "data"
    path.write_text(EXPERIMENT)
    arguments = ["bench", str(path), "--out", str(out), "--parallel", "1", "--data-dir", str(data)]
    killed_after_one_result([DRESSAGE, *arguments], out)
    (first,) = results(out)
    done = run_cli(*arguments, "--json", timeout=_DEADLINE)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout)
    lines = results(out)
    assert lines[0] == first and [line["run"] for line in lines] == [0, 1], "the first cell was not played again"
    assert document["cells"] == 2 and {line["cell"] for line in lines} == {e["cell"] for e in document["results"]}
    for line in lines:
        assert (line["state"], line["episodes"], line["candidates"]) == ("exhausted", 50, 10)
        assert len(line["report_returns"]) == 10 and line["curve"] and line["machine"]["cores"]
    assert lines[0]["score"] != lines[1]["score"], "runs have different seeds"
    listed = json.loads(run_cli("sessions", "list", "--json", "--data-dir", str(data)).stdout)
    assert len(listed["sessions"]) == 2
    report = run_cli("report", str(out), "--json")
    assert report.returncode == 0, report.stderr
    (row,) = json.loads(report.stdout)["summary"]
    assert row["runs"] == 2 and (out / "curves-episodes.png").exists()
