"""Hyperparameters: legal values pass, others are refused by name, and the API has the same rules."""

from __future__ import annotations

import math
import re

import pytest
from dressage.api.v1 import session_pb2
from dressage.errors import InvalidArgument
from dressage.serving.validation import MessageValidator
from dressage.training import sac
from dressage.training.hyperparameters import (
    HIDDEN_SIZE,
    MAX_HIDDEN_LAYERS,
    RULES,
    Hyperparameters,
    rules_of,
)
from dressage.training.preset import DEFAULT, load_preset, preset_names
from dressage.training.sac import SacHyperparameters
from hypothesis import assume, given
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
        ("num_steps", 2**40), ("epochs", 10_001),
    ],
)  # fmt: skip
def test_impossible_values_are_refused_by_name(field, value):
    with pytest.raises(InvalidArgument) as caught:
        Hyperparameters.from_dict({field: value})
    assert caught.value.field == field
    assert field in str(caught.value)


API = session_pb2.Hyperparameters.DESCRIPTOR.fields


def test_every_number_of_the_api_has_a_rule():
    names = {descriptor.name for descriptor in API} - {"hidden_sizes"}
    assert set(RULES) == names - set(sac.OWN) and set(rules_of(SacHyperparameters)) == names
    assert (HIDDEN_SIZE.low, HIDDEN_SIZE.high, MAX_HIDDEN_LAYERS) == (1, 4096, 8)
    assert (RULES["discount"].expected, RULES["clip_range"].expected) == (
        "a number from 0 to 1",
        "a number above 0, at most 1e+30",
    )


NUMBERS = {
    name: st.integers(-2, 130) | st.integers(-(2**31), 2**31 - 1)
    if rule.whole
    else st.floats() | st.floats(-1, 2) | st.floats(-12, 12) | st.sampled_from([rule.low, rule.high])
    for name, rule in RULES.items()
}
validated = MessageValidator()


def takes(check, value):
    try:
        check(value)
    except InvalidArgument:
        return False
    return True


@given(st.sampled_from(sorted(RULES)).flatmap(lambda name: st.tuples(st.just(name), NUMBERS[name])))
def test_the_api_takes_a_number_if_and_only_if_the_trainer_does(pair):
    name, value = pair
    # As much of the others as leaves only this one to blame.
    room = {"num_envs": 1024, "num_steps": 65_536 if name == "minibatch_size" else 64, "minibatch_size": 1}
    by_api = takes(validated, session_pb2.Hyperparameters(**{name: value}))
    assert by_api == takes(Hyperparameters.from_dict, {**room, name: value})


@pytest.mark.parametrize("name", sorted(RULES))
def test_both_ends_of_a_range_are_legal_or_excluded_as_stated(name):
    rule = RULES[name]
    room = (
        {"num_envs": 1024, "num_steps": 65_536} if name == "minibatch_size" else {"minibatch_size": 2, "num_steps": 4}
    )
    for value in (math.nextafter(rule.low, math.inf) if rule.above else rule.low, rule.high):
        assert getattr(Hyperparameters.from_dict({**room, name: value}), name) == value
    beyond = rule.low if rule.above else rule.low - 1
    for value in (beyond, math.nextafter(rule.high, math.inf) if not rule.whole else rule.high + 1):
        with pytest.raises(InvalidArgument, match=f"^{name}: .*got .*; expected {re.escape(rule.expected)}$"):
            Hyperparameters.from_dict({**room, name: value})


def test_the_recommended_range_is_within_the_legal_one():
    for rule in RULES.values():
        assert rule.recommended is None or all(map(rule.allows, rule.recommended))


@pytest.mark.parametrize("value", [-10.5, 5.5, math.nan, "wide"])
def test_a_deviation_beyond_the_bound_is_refused(value):
    with pytest.raises(InvalidArgument, match=r"initial_log_std: .*got .*from -10 to 5"):
        Hyperparameters.from_dict({"initial_log_std": value})


@given(
    envs=st.integers(1, 64),
    steps=st.integers(1, 64),
    size=st.none() | st.integers(1, 8192),
    known=st.sampled_from(sorted(preset_names())),
)
def test_a_minibatch_larger_than_the_rollout_is_the_rollout(envs, steps, size, known):
    assume(envs * steps >= 2)
    values = {"num_envs": envs, "num_steps": steps, **({} if size is None else {"minibatch_size": size})}
    built = Hyperparameters.for_run(values, base=load_preset(known).ppo)
    assert built.minibatch_size == min(size or load_preset(known).ppo.minibatch_size, envs * steps)
    assert built.validate() == Hyperparameters.from_dict(
        {**values, "minibatch_size": built.minibatch_size}, base=load_preset(known).ppo
    )


@given(
    st.dictionaries(st.sampled_from(["num_steps", "minibatch_size"]), st.integers(16, 8192)),
    st.sampled_from(sorted(preset_names())),
)
def test_what_a_model_may_suggest_can_be_trained_with(values, known):
    assert Hyperparameters.for_run(values, base=load_preset(known).ppo).validate()


@pytest.mark.parametrize("value", [0, -1, 2.5, "all", math.nan, 2**40])
def test_a_minibatch_that_is_no_size_is_refused(value):
    with pytest.raises(InvalidArgument, match="minibatch_size"):
        Hyperparameters.for_run({"minibatch_size": value}, base=load_preset(DEFAULT).ppo)


def test_numbers_that_came_as_floats_are_integers_again():
    built = Hyperparameters.from_dict({"num_envs": 8.0, "minibatch_size": 32.0, "hidden_sizes": [32.0, 16.0]})
    assert built.num_envs == 8
    assert isinstance(built.num_envs, int)
    assert built.hidden_sizes == (32, 16)
