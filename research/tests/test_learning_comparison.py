"""The comparison's statistics; and, marked slow, the comparison itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from research import learning_comparison as comparison


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


def write_part(work, environment, backend, returns):
    """Store a finished part as `run` does, with a straight learning curve for each seed."""
    work.mkdir(exist_ok=True)
    part = {
        "returns": {f"s{seed}": [value] * 2 for seed, value in enumerate(returns)},
        "curves": {f"s{seed}": [[10, 0.0], [1000, value]] for seed, value in enumerate(returns)},
        "seconds": 1.0,
        "hyperparameters": comparison.hyperparameters(environment),
    }
    (work / f"{environment}-{backend}-0-{len(returns)}-1000.json").write_text(json.dumps(part), "utf-8")


def test_finished_parts_are_compared_and_other_lines_stay(tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"
    ours, theirs = [90.0, 100.0, 110.0, 120.0], [80.0, 100.0, 100.0, 120.0]
    for backend, returns in (("jax", ours), ("sb3", theirs)):
        write_part(work, "Hopper-v5", backend, returns)
    out.mkdir()
    (out / "README.md").write_text("| Walker2d-v5 | 20 | kept |\n| Hopper-v5 | 20 | old |\n", "utf-8")
    row = comparison.run("Hopper-v5", seeds=4, steps=1000, threads=1, episodes=2, work=work, out=out)
    expected = comparison.compare(np.array(ours), np.array(theirs), np.random.default_rng(0))
    assert row["comparison"] == expected and row["returns"] == {"jax": ours, "sb3": theirs}
    assert json.loads((work / "figures.json").read_text("utf-8"))["Hopper-v5"]["returns"] == row["returns"]
    page = (out / "README.md").read_text("utf-8")
    assert "| Walker2d-v5 | 20 | kept |" in page and "old" not in page
    assert f"| Hopper-v5 | 4 | 1,000 | {expected['ours']:.0f} | {expected['sb3']:.0f} |" in page
    assert "![Hopper-v5](Hopper-v5.png)" in page and (out / "Hopper-v5.png").is_file()
    assert not list(out.glob("*.json"))


def test_curves_are_compared_where_every_seed_of_both_has_one():
    results = {
        "jax": {"curves": {"s0": [[10, 0.0], [110, 100.0]], "s1": [[20, 5.0], [90, 5.0]]}},
        "sb3": {"curves": {"s0": [[0, 3.0], [200, 3.0]], "s1": []}},
    }
    grid, curves = comparison.on_one_grid(results, points=8)
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
