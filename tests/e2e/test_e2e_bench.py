"""`dressage bench` against a server that is killed in the middle: what was done stays done, and the report is whole. Slow."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from dressage.api.v1 import benchmark_service_pb2 as pb
from serving import DRESSAGE, Server, run_cli

CASES = """env_id,instruction,category,difficulty
InvertedPendulum-v5,balance the pole,balance,easy
InvertedPendulum-v5,balance the pole at the centre,balance,easy
InvertedPendulum-v5,balance the pole to the right,balance,medium
"""
_DEADLINE = 600


def command(server: Server, cases: Path, out: Path) -> list[str]:
    size = ("--seeds", "1", "--steps", "24k", "--iterations", "1", "--flat", "--out", str(out))
    return ["bench", str(cases), *size, "--data-dir", str(server.data_dir)]


def until_one_is_done(server: Server) -> pb.Benchmark:
    deadline = time.monotonic() + _DEADLINE
    with server.client() as client:
        while time.monotonic() < deadline:
            benchmarks = list(client.list_benchmarks())
            if benchmarks and 0 < benchmarks[0].completed < 3:
                return benchmarks[0]
            time.sleep(0.2)
    raise AssertionError(f"no case was done: {server.log()[-3000:]}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_benchmark_resumes_after_kill_9(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text(CASES)
    with Server(tmp_path / "data") as server:
        following = subprocess.Popen(
            [DRESSAGE, *command(server, cases, tmp_path / "never")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = until_one_is_done(server)
        server.kill()
        following.kill()
        server.start()
        out = tmp_path / "report"
        done = run_cli(*command(server, cases, out), "--json", timeout=_DEADLINE)  # the same command continues it
        assert done.returncode == 0, done.stderr[-3000:]
        with server.client() as client:
            sessions = list(client.list_sessions())
    output = json.loads(done.stdout)["benchmark"]
    assert int(output["completed"]) == 3 and len(output["cases"]) == 3
    first = next(case for case in before.cases if case.session)
    assert len(sessions) == 3 and first.session in {
        entry["session"] for entry in output["cases"]
    }  # none was begun twice
    assert len((out / "results.jsonl").read_text().splitlines()) == 3
    rows = (out / "cases.csv").read_text().splitlines()
    assert len(rows) == 4 and "balance the pole to the right" in (out / "report.md").read_text()
