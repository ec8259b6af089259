"""Computed warnings: raised for the curves that they are meant for, and for no others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dressage_trainer import learner
from dressage_trainer.backends import monitor
from dressage_trainer.backends.monitor import Monitor
from dressage_trainer.messages import MemberTask, TrainSpec, parse
from hypothesis import given, settings
from hypothesis import strategies as st


def reasons(rows, *, steps=1_000_000):
    watching = Monitor(steps=steps)
    return [(index, warn.reason) for index, row in enumerate(rows) for warn in watching.see(row)]


def curve(values):
    return [{"step": 10.0 * (index + 1), "episode_return": float(value)} for index, value in enumerate(values)]


def at_the_end(values):
    """Return the warnings of a training with these returns."""
    return reasons(curve(values), steps=10 * len(values))


def until(share, count):
    """Return a curve that rises for this share of the training, and then is level."""
    return np.minimum(1, np.arange(count) / (share * (count - 1)))


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e6), st.floats(-1e6, 1e6), st.integers(0, 100))
def test_a_plateau_is_seen_at_any_scale_and_a_rise_never(scale, offset, seed):
    noise = 0.02 * np.random.default_rng(seed).standard_normal(90)
    assert at_the_end(offset + scale * (until(1, 90) + noise)) == []
    assert at_the_end(offset + scale * (until(0.4, 90) + noise)) == [(89, "PLATEAU")]


@pytest.mark.parametrize("noise", [0.1, 0.3])
@pytest.mark.parametrize("count", [250, 1000, 3000])
def test_noise_hardly_ever_hides_a_rise_or_a_plateau(count, noise):
    """Measured with 2,000 curves of each kind: at most 0.1 % of the rises, at least 93 % of the plateaus from 40 or 50 % of the
    training on, and 83 % of those from 20 % on. (A check at every row called 25 to 100 % of these rises a plateau.)"""
    rng, repeats = np.random.default_rng(5), 60

    def warned(share):
        curves = until(share, count) + noise * rng.standard_normal((repeats, count))
        return sum(bool(at_the_end(values)) for values in curves) / repeats

    assert warned(1) < 0.02
    assert warned(0.5) > 0.8 and warned(0.4) > 0.8


def test_a_plateau_is_reported_once_and_at_the_end():
    rows = curve(until(0.3, 200))
    assert reasons(rows, steps=2_010) == []
    assert reasons([*rows, *rows[-1:]], steps=2_000) == [(199, "PLATEAU")]


def test_a_return_that_never_leaves_its_noise_is_a_plateau():
    warnings = [at_the_end(np.random.default_rng(seed).standard_normal(250)) for seed in range(30)]
    assert warnings.count([(249, "PLATEAU")]) > 24
    assert at_the_end(np.ones(80)) == [(79, "PLATEAU")]


def test_a_long_curve_is_kept_short():
    watching = Monitor(steps=200_000)
    for row in curve(np.linspace(0, 1, 20_000)):
        assert not watching.see(row)
    assert len(watching._returns) <= 901


def test_falling_curves_and_short_ones_are_no_plateau():
    assert at_the_end(-until(1, 90)) == []
    assert at_the_end(until(0.3, 40)) == []


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
        [{"value_loss": None, "std": None, "approx_kl": None, "episode_return": None}] * 90,
    ],
)
def test_what_is_normal_raises_nothing(rows):
    assert reasons(rows) == []


class Line:
    """A learner's channel whose other end is a list."""

    def __init__(self, spec):
        self.requests, self.sent = [spec.to_dict()], []

    def recv(self, timeout):
        return self.requests.pop()

    def send(self, message):
        self.sent.append(parse(message))


@pytest.mark.parametrize(("backend", "package"), [("jax", "jax"), ("sb3", "stable_baselines3")])
def test_each_backend_reports_a_plateau_at_the_end_of_training(tmp_path, monkeypatch, backend, package):
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learner.Training, "_listen", lambda self: None)
    monkeypatch.setattr(monitor, "_NOISE", math.inf)  # every curve is level
    source = "LATEX = '1'\nTERMS = {'up': 'stay up'}\n\n\ndef reward(state, action, next_state, memory, np):\n"
    small = {"num_envs": 4, "num_steps": 32, "minibatch_size": 128, "epochs": 1, "hidden_sizes": [4]}
    spec = TrainSpec(
        environment="InvertedPendulum-v5",
        reward_source=source + "    return {'up': 0.0 * next_state.time + 1.0}\n",
        members=(MemberTask("a", {**small, "learning_rate": 1e-6}, 1),),
        backend=backend,
        steps_per_member=70 * 128 - 5,  # the last update goes beyond
    )
    line = Line(spec)
    learner.learn(line)
    assert line.sent[-1].type == "done"
    warned = [(message.member, message.reason) for message in line.sent if message.type == "warning"]
    assert warned == [("a", "PLATEAU")]
