"""Hyperparameters: any legal value passes, any other is refused by name; presets are legal."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from dressage.errors import InvalidArgument
from dressage_trainer.ppo.hyperparameters import Hyperparameters
from dressage_trainer.ppo.presets import DEFAULT, PRESETS, preset
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "learning_rate": st.floats(1e-12, 10),
            "num_envs": st.integers(2, 4096),
            "num_steps": st.integers(1, 4096),
            "epochs": st.integers(1, 100),
            "discount": st.floats(0, 1),
            "gae_lambda": st.floats(0, 1),
            "entropy_coef": st.floats(0, 10),
            "target_kl": st.none() | st.floats(1e-6, 10),
            "hidden_sizes": st.lists(st.integers(1, 512), min_size=1, max_size=8),
            "normalize_reward": st.booleans(),
        },
    )
)
def test_legal_values_pass_and_survive_a_round_trip(values):
    built = Hyperparameters.from_dict({**values, "minibatch_size": 2})
    assert Hyperparameters.from_dict(built.to_dict()) == built


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", 0), ("learning_rate", math.nan), ("learning_rate", "fast"), ("num_envs", 0),
        ("num_envs", 2.5), ("num_envs", True), ("minibatch_size", 10_000_000), ("epochs", -1), ("discount", 1.01),
        ("gae_lambda", -0.1), ("clip_range", 0), ("entropy_coef", -1), ("value_coef", math.inf),
        ("max_grad_norm", 0), ("target_kl", 0), ("hidden_sizes", []), ("hidden_sizes", [0]),
        ("hidden_sizes", [64] * 9), ("hidden_sizes", "64"), ("normalize_observation", 1), ("gamma", 0.9),
        ("num_steps", 2**40),
    ],
)  # fmt: skip
def test_impossible_values_are_refused_by_name(field, value):
    with pytest.raises(InvalidArgument) as caught:
        Hyperparameters.from_dict({field: value})
    assert caught.value.field in (field, "num_envs")
    assert field in str(caught.value) or "num_steps" in str(caught.value)


def test_numbers_that_came_as_floats_are_integers_again():
    built = Hyperparameters.from_dict({"num_envs": 8.0, "minibatch_size": 32.0, "hidden_sizes": [32.0, 16.0]})
    assert built.num_envs == 8
    assert isinstance(built.num_envs, int)
    assert built.hidden_sizes == (32, 16)


def test_presets_are_legal_and_every_field_has_a_sentence():
    for environment, values in PRESETS.items():
        assert values.validate() is preset(environment)
    assert preset("Unknown-v0") is DEFAULT.validate()
    assert len(fields(Hyperparameters)) == 16
