"""The comparison's statistics; and, marked slow, the comparison itself."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("learning_comparison", ROOT / "tools" / "learning_comparison.py")
comparison = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(comparison)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=7))
def test_the_interquartile_mean_is_that_of_the_middle_half(values):
    # Each value four times: the quarters are whole numbers then, and the mean is the plain one of the middle half.
    ordered = np.sort(np.repeat(values, 4))
    quarter = len(ordered) // 4
    expected = ordered[quarter : len(ordered) - quarter].mean()
    tolerance = 1e-6 * max(1.0, np.abs(ordered).max())
    assert comparison.interquartile_mean(np.array(values)) == pytest.approx(expected, abs=tolerance)


def test_a_difference_is_found_and_an_outlier_is_not_taken_for_one():
    rng = np.random.default_rng(1)
    base = rng.normal(100, 3, 10)
    better = comparison.compare(base + 50, base, rng)
    assert better["low"] > 0.3 and better["difference"] == pytest.approx(0.5, abs=0.05)
    worse = comparison.compare(base - 50, base, rng)
    assert worse["high"] < -0.3 and worse["low"] < comparison.MARGIN
    lucky = base.copy()
    lucky[0] = 10_000.0
    assert abs(comparison.compare(lucky, base, rng)["difference"]) < 0.05


def test_seeds_far_apart_tell_little_unless_they_are_pairs():
    theirs = np.linspace(100.0, 1000.0, 10)
    alone, paired = (
        comparison.compare(0.95 * theirs, theirs, np.random.default_rng(0), paired=p) for p in (False, True)
    )
    assert alone["low"] < comparison.MARGIN < paired["low"] < -0.05 < paired["high"] < 0.0 < alone["high"]
    assert alone["difference"] == paired["difference"] == pytest.approx(-0.05)


@pytest.mark.parametrize(("name", "paired"), [("figures", False), ("same_chance", True)])
def test_recorded_comparisons_are_those_of_the_recorded_returns(name, paired):
    for recorded in json.loads((comparison.OUT / f"{name}.json").read_text("utf-8")).values():
        ours, theirs = (np.array(recorded["returns"][backend]) for backend in ("jax", "sb3"))
        found = comparison.compare(ours, theirs, np.random.default_rng(0), paired=paired)
        assert found == pytest.approx(recorded["comparison"], rel=1e-9)


def test_curves_are_compared_where_every_seed_of_both_has_one():
    found = {
        "jax": {"curves": {"s0": [[10, 0.0], [110, 100.0]], "s1": [[20, 5.0], [90, 5.0]]}},
        "sb3": {"curves": {"s0": [[0, 3.0], [200, 3.0]], "s1": []}},
    }
    grid, curves = comparison.on_one_grid(found, points=8)
    assert grid.tolist() == [20, 30, 40, 50, 60, 70, 80, 90]
    np.testing.assert_allclose(curves["jax"], [grid - 10, np.full(8, 5.0)])
    np.testing.assert_allclose(curves["sb3"], np.full((1, 8), 3.0))


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("environment", comparison.ENVIRONMENTS)
def test_we_learn_what_sb3_learns(environment, tmp_path):
    pytest.importorskip("stable_baselines3")
    row = comparison.run(environment, seeds=20, steps=300_000, threads=2, episodes=10, work=tmp_path / "work",
                         out=tmp_path / "out")  # fmt: skip
    assert row["comparison"]["low"] > comparison.MARGIN, row["comparison"]
