"""Rates of GPUs: which rate counts for a training, and that the package has those of committed results only."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dressage.training.device_rates import DeviceRate, device_rates, nearest, parse_rates

ROOT = Path(__file__).resolve().parents[3]
ROW = {"ours": 900_000, "startup_seconds": 60.0, "members": 2, "worlds": 4096}
RESULT = {"environments": {"HalfCheetah-v5": {**ROW, "device": {"name": "GPU X", "is_gpu": True}}}}


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("device_rates_tool", ROOT / "tools" / "device_rates.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_package_has_the_rates_of_committed_results_only(tool: ModuleType) -> None:
    paths = sorted({rate.source for rate in device_rates()})
    results: Mapping[str, Any] = {path: json.loads((ROOT / path).read_text("utf-8")) for path in paths}
    assert parse_rates(tool.text_of(results)) == device_rates()


def test_results_become_rates(tool: ModuleType) -> None:
    (rate,) = parse_rates(tool.text_of({"benchmarks/results/x.json": RESULT}))
    assert rate == DeviceRate("HalfCheetah-v5", "GPU X", 2, 4096, 900_000.0, 60.0, "benchmarks/results/x.json")
    assert rate.effective(54_000_000) == pytest.approx(450_000)


def test_results_of_a_cpu_are_refused(tool: ModuleType) -> None:
    row = {**ROW, "device": {"name": "not a GPU", "is_gpu": False}}
    with pytest.raises(SystemExit, match="was not measured on a GPU"):
        tool.text_of({"x.json": {"environments": {"HalfCheetah-v5": row}}})


@pytest.mark.parametrize(
    ("members", "worlds", "expected"),
    [
        (2, 4096, 4096),
        (1, 2048, 4096),
        (4, 8192, 4096),
        (2, 2047, None),
        (5, 4096, None),
        (8, 16384, 16384),
        (8, 12000, 16384),
    ],
)
def test_the_rate_of_the_nearest_load_counts(members: int, worlds: int, expected: int | None) -> None:
    rates = [DeviceRate("Ant-v5", "GPU X", count, size, 1e6, 1.0, "x") for count, size in ((2, 4096), (8, 16384))]
    rate = nearest(rates, "Ant-v5", members=members, worlds=worlds)
    assert (rate.worlds if rate else None) == expected
    assert nearest(rates, "Hopper-v5", members=members, worlds=worlds) is None
