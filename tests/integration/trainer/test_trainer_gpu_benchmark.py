"""`benchmarks/gpu_training.py`: it runs with tiny sizes where there is no GPU, and gives no figures of one there."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from dressage.sandbox.gpu import gpu_access

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks/gpu_training.py"
pytestmark = pytest.mark.skipif(gpu_access() is not None, reason="this machine has a GPU")


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=3000, check=False)


def test_without_a_gpu_it_gives_no_figures() -> None:
    refused = run()
    assert refused.returncode == 2 and not refused.stdout and "There is no GPU" in refused.stderr
    assert "give both or none" in run("--device-hour", "2").stderr


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="the extra `warp` is not installed")
def test_with_tiny_sizes_it_names_the_device_and_has_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("--smoke", "--env", "HalfCheetah-v5", "--device-hour", "2", "--core-hour", "0.05", "--cores", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    result = importlib.import_module("bench").check(json.loads(done.stdout.splitlines()[-1]), SCRIPT)
    assert result["device"] == {"name": "not a GPU", "is_gpu": False, "jax": "cpu", "warp": "cpu"}
    assert "not a GPU" in result["rows"][0]["what"] and "not a GPU" in result["notes"]
    measured = result["environments"]["HalfCheetah-v5"]
    assert measured["cores_per_device"] == pytest.approx(result["ours"] / result["peer"], rel=0.1)
    assert (measured["members"], measured["worlds"]) == (1, 16)
    assert measured["dollars"]["ours"] == pytest.approx(2e9 / result["ours"] / 3600, rel=0.01)
    timed = result["time_to_speed"]
    assert timed["target"] == 5.0 and not timed["ours"]["reached"] and timed["peer"]["seconds"] > 0
