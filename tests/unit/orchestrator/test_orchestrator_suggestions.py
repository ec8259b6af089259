"""A model's suggestions are clamped to the recommended ranges, and only where they are outside."""

from __future__ import annotations

import math

import protovalidate
import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.training.hyperparameters import RULES
from dressage_orchestrator.methods.reward.revising import adjustment_message, clamp
from hypothesis import given
from hypothesis import strategies as st

BOUNDS = {name: rule.recommended for name, rule in RULES.items() if rule.recommended is not None}
NUMBERS = {
    name: st.integers(-(2**31), 2**31 - 1) if RULES[name].whole else st.floats(allow_nan=True)
    for name in sorted(BOUNDS)
}


@given(st.fixed_dictionaries({}, optional=NUMBERS))
def test_what_is_left_is_within_the_bounds_and_valid(values):
    suggested = v1.Hyperparameters(**values, hidden_sizes=[32])
    allowed, changed = clamp(suggested)
    protovalidate.validate(allowed)
    by_name = {entry.name: entry for entry in changed}
    for name, value in values.items():
        low, high = BOUNDS[name]
        if math.isnan(value):
            assert not allowed.HasField(name) and name in by_name
            continue
        assert low <= getattr(allowed, name) <= high
        assert (name in by_name) == (not low <= value <= high)
        if low <= value <= high:
            assert getattr(allowed, name) == value
    assert {descriptor.name for descriptor, _ in allowed.ListFields()} <= {*values, "hidden_sizes"}
    assert list(allowed.hidden_sizes) == [32]
    assert clamp(allowed) == (allowed, [])


@pytest.mark.parametrize(
    ("name", "value", "used"),
    [("learning_rate", 1.0, 3e-3), ("entropy_coef", 0.0, 1e-4), ("epochs", 1, 3), ("discount", 0.5, 0.95)],
)
def test_the_change_is_stated(name, value, used):
    allowed, (change,) = clamp(v1.Hyperparameters(**{name: value}))
    assert getattr(allowed, name) == used
    assert f"{name} {value:g} → {used:g}" in adjustment_message([change])


def test_what_sac_does_not_have_is_left_out_and_stated():
    suggested = v1.Hyperparameters(learning_rate=1e-3, clip_range=0.3, epochs=5, minibatch_size=8)
    allowed, changed = clamp(suggested, algorithm="sac")
    assert allowed == v1.Hyperparameters(learning_rate=1e-3, minibatch_size=32)
    assert {entry.name for entry in changed} == {"clip_range", "epochs", "minibatch_size"}
    assert "clip_range 0.3 → left out" in adjustment_message(changed) and "minibatch_size 8 → 32" in adjustment_message(
        changed
    )
