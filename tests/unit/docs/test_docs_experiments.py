"""The page on experiments states how many runs of this repository's experiments are recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from dressage.experiments.files import read_matrix

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "experiments.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["controls", "sb3"])
def test_the_page_states_how_many_runs_are_recorded(name: str) -> None:
    lines = (ROOT / "experiments" / "results" / name / "results.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    recorded = len({(row["environment"], row["method"], row["run"]) for row in rows})
    total = len(read_matrix(ROOT / "experiments" / f"{name}.yaml").request.cases)
    stated = re.search(rf"`experiments/results/{name}` has (?:all (\d+)|(\d+) of (\d+)) runs", PAGE)
    assert stated is not None
    assert (int(stated[2] or stated[1]), int(stated[3] or stated[1])) == (recorded, total)
