"""A recorded session again, offline: the same words, trained and judged anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dressage.envs.packs.registry import problem_of
from serving import run_cli

EXAMPLES = Path(__file__).parents[2] / "examples"
BEHAVIOURS = EXAMPLES / "behaviours"


def replay(name, data, timeout, root=BEHAVIOURS):
    done = run_cli("run", "--replay", str(root / name), "--yes", "--json", "--data-dir", str(data), timeout=timeout)
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
REACHED = ("low_crawl", "sit_up", "backward_walk", "floor_sit", "backflip", "high_jump")


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHED)
def test_a_recorded_behaviour_reaches_its_threshold(name, tmp_path):
    assert replay(name, tmp_path / "data", 3600)["state"] == "succeeded"


@pytest.mark.slow
@pytest.mark.timeout(3700)
@pytest.mark.parametrize("name", ["arms_up", "leg_up"])
def test_a_humanoid_on_its_back_stretches_a_limb_up(name, tmp_path):
    assert replay(name, tmp_path / "data", 3600, EXAMPLES / "behaviours_long")["state"] == "succeeded"


@pytest.mark.timeout(700)
def test_recorded_policies_that_improve_over_three_rounds(tmp_path):
    result = replay("code_pole", tmp_path / "data", 600)
    assert result["state"] == "succeeded" and result["session"]["report"]["mean"] >= 475
    assert result["session"]["current_iteration"] == 3


@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("name", ["mountain_car", "noise_world", "hidden_keys", "double_pendulum", "swimmer"])
def test_recorded_policies_reach_the_target_of_the_card(name, tmp_path):
    assert replay(name, tmp_path / "data", 1200)["state"] == "succeeded"


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("name", "pack", "target"), [("point_maze", "robotics", 550), ("button_press", "metaworld", 3500)]
)
def test_recorded_policies_solve_environments_of_packs(name, pack, target, tmp_path):
    if problem_of(pack):
        pytest.skip(f"dressage envs install {pack}")
    result = replay(name, tmp_path / "data", 600)
    assert result["state"] == "succeeded" and result["session"]["report"]["mean"] >= target


def test_a_recording_whose_pack_is_missing_fails_and_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("DRESSAGE_PACKS", str(tmp_path / "none"))
    folder = str(BEHAVIOURS / "point_maze")
    done = run_cli("run", "--replay", folder, "--yes", "--data-dir", str(tmp_path / "data"), timeout=120)
    assert done.returncode == 1
    assert "dressage envs install robotics" in done.stdout + done.stderr
