"""A recorded session again, offline: the same words, trained and judged anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serving import run_cli

BEHAVIOURS = Path(__file__).parents[2] / "examples" / "behaviours"


def replay(name, data, timeout):
    done = run_cli(
        "run", "--replay", str(BEHAVIOURS / name), "--yes", "--json", "--data-dir", str(data), timeout=timeout
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_pole_that_falls_first_and_balances_then(tmp_path):
    result = replay("pole", tmp_path / "data", 240)
    assert result["state"] == "succeeded" and result["confirmation"]["passed"]
    assert result["session"]["current_iteration"] == 2 and result["session"].get("cost", {}).get("requests", 0) == 0
    assert list((tmp_path / "data/artifacts/sessions").glob("*/llm/iterations/2/reviser/0-0.json"))


def test_a_pole_that_is_balanced_in_the_wrong_place_first(tmp_path):
    result = replay("pole_aside", tmp_path / "data", 240)
    assert result["state"] == "succeeded" and result["confirmation"]["passed"]
    assert result["session"]["current_iteration"] == 2


# The others of docs/gallery.md that reach their threshold.
REACHED = ("backflip", "low_crawl", "sit_up", "backward_walk")


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHED)
def test_a_recorded_behaviour_reaches_its_threshold(name, tmp_path):
    assert replay(name, tmp_path / "data", 3600)["state"] == "succeeded"
