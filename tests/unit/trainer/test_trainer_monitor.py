"""Computed warnings: raised for the curves that they are meant for, and for no others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dressage_trainer.monitor import Monitor
from hypothesis import given, settings
from hypothesis import strategies as st


def reasons(rows):
    monitor = Monitor()
    return [(index, warn.reason) for index, row in enumerate(rows) for warn in monitor.see(row)]


def curve(values):
    return [{"episode_return": float(value)} for value in values]


RISING = np.linspace(0, 1, 90)
LEVELLED = np.concatenate([np.linspace(0, 1, 30), np.ones(60)])


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e6), st.floats(-1e6, 1e6), st.integers(0, 100))
def test_a_plateau_is_seen_at_any_scale_and_a_rise_never(scale, offset, seed):
    noise = 0.02 * np.random.default_rng(seed).standard_normal(90)
    assert reasons(curve(offset + scale * (RISING + noise))) == []
    ((index, reason),) = reasons(curve(offset + scale * (LEVELLED + noise)))
    assert reason == "PLATEAU" and 50 <= index < 90


def test_a_long_curve_is_kept_short():
    monitor = Monitor()
    for row in curve(np.linspace(0, 1, 20_000)):
        assert not monitor.see(row)
    assert len(monitor._returns) <= 901


def test_falling_curves_are_no_plateau():
    assert reasons(curve(-RISING)) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"term_magnitude/a": 0.95, "term_magnitude/b": 0.05}] * 5, "REWARD_TERM_DOMINATES"),
        # A bonus that is never reached.
        ([{"term_magnitude/a": 1.0, "term_magnitude/b": 0.0}] * 5, "REWARD_TERM_DOMINATES"),
        ([{"std": 0.5}, {"std": 0.04}], "ENTROPY_COLLAPSE"),
        ([{"entropy": math.log(3)}, {"entropy": 0.005}], "ENTROPY_COLLAPSE"),
        ([{"approx_kl": 0.01}, {"approx_kl": 0.3}], "KL_SPIKE"),
        ([{"value_loss": 1.0}] * 5 + [{"value_loss": 500.0}], "VALUE_DIVERGENCE"),
    ],
)
def test_each_warning_comes_once_at_its_row(rows, expected):
    assert reasons([*rows, rows[-1]]) == [(len(rows) - 1, expected)]
    assert reasons(rows[:-1]) == []


@pytest.mark.parametrize(
    "rows",
    [
        [{"term_magnitude/a": 1.0}] * 9,  # one term alone is always all of it
        [{"term_magnitude/a": 0.95, "term_magnitude/b": 0.05}] * 4
        + [{"term_magnitude/a": 0.5, "term_magnitude/b": 0.5}],
        [{"term_magnitude/a": 1.0, "term_magnitude/b": None}] * 9,
        [{"term_magnitude/a": 0.0, "term_magnitude/b": 0.0}] * 9,
        # A Gaussian's entropy is negative for small deviations; that is no collapse by itself.
        [{"std": 0.3, "entropy": 1.0}, {"std": 0.2, "entropy": -3.0}],
        [{"value_loss": None, "std": None, "approx_kl": None, "episode_return": None}] * 60,
    ],
)
def test_what_is_normal_raises_nothing(rows):
    assert reasons(rows) == []
