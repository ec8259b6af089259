"""Hyperparameters: any legal value passes, any other is refused by name; presets are legal."""

from __future__ import annotations

import math
import sys
from dataclasses import fields

import pytest
from dressage.api.buf.validate import validate_pb2
from dressage.api.v1 import session_pb2
from dressage.errors import InvalidArgument
from dressage.serving.validation import MessageValidator
from dressage_trainer.messages import MemberTask, TrainSpec
from dressage_trainer.ppo.hyperparameters import Hyperparameters
from dressage_trainer.ppo.presets import DEFAULT, PRESETS, preset
from dressage_trainer.run_members import minibatch_warnings
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
    assert caught.value.field in (field, "num_envs")
    assert field in str(caught.value) or "num_steps" in str(caught.value)


def edges_of_the_api():
    """Name and value of both ends of what CreateSession takes for each hyperparameter; just inside where an end is open."""
    for descriptor in session_pb2.Hyperparameters.DESCRIPTOR.fields:
        rules = descriptor.GetOptions().Extensions[validate_pb2.field]
        bounds = getattr(rules, rules.WhichOneof("type"))
        listed = descriptor.name == "hidden_sizes"
        number = bounds.items.int32 if listed else bounds
        low = number.gte if number.HasField("gte") else math.nextafter(number.gt, math.inf)
        for value in (low, number.lte if number.HasField("lte") else sys.float_info.max):
            yield descriptor.name, [value] * bounds.max_items if listed else value


@pytest.mark.parametrize(("name", "value"), edges_of_the_api())
def test_what_the_api_takes_is_taken(name, value):
    # With as much of the others as makes the minibatch fit the rollout.
    room = (
        {"num_envs": 1024, "num_steps": 65_536} if name == "minibatch_size" else {"minibatch_size": 2, "num_steps": 4}
    )
    built = Hyperparameters.from_dict({**room, name: value})
    seen = getattr(built, name)
    assert (list(seen) if name == "hidden_sizes" else seen) == value


WHOLE = {field.name for field in session_pb2.Hyperparameters.DESCRIPTOR.fields if field.type == field.TYPE_INT32}
SCALARS = sorted({field.name for field in session_pb2.Hyperparameters.DESCRIPTOR.fields} - {"hidden_sizes"})
CAPS = {"num_envs": 4096, "num_steps": 65_536}
"""Bounds of the API alone: what one member may ask of a machine. The trainer bounds their product."""
NUMBERS = {
    name: st.integers(-2, 130) | st.integers(-(2**31), 2**31 - 1)
    if name in WHOLE
    else st.floats() | st.floats(-1, 2) | st.floats(-12, 12) | st.sampled_from([0.0, 1.0, -10.0, 5.0])
    for name in SCALARS
}
validated = MessageValidator()


def takes(check, value):
    try:
        check(value)
    except InvalidArgument:
        return False
    return True


@given(st.sampled_from(SCALARS).flatmap(lambda name: st.tuples(st.just(name), NUMBERS[name])))
def test_the_api_takes_a_number_if_and_only_if_the_trainer_does(told):
    name, value = told
    # As much of the others as leaves only this one to blame.
    room = {"num_envs": 1024, "num_steps": 65_536 if name == "minibatch_size" else 64, "minibatch_size": 1}
    by_api = takes(validated, session_pb2.Hyperparameters(**{name: value}))
    by_trainer = takes(Hyperparameters.from_dict, {**room, name: value})
    assert by_api == (by_trainer and value <= CAPS.get(name, math.inf))


def test_stable_baselines3_takes_minibatches_of_one_sample_as_our_ppo_does():
    pytest.importorskip("stable_baselines3")
    from dressage_trainer.sb3 import models
    from stable_baselines3.common.env_util import make_vec_env

    h = Hyperparameters(num_envs=2, num_steps=1, minibatch_size=1, epochs=1, hidden_sizes=(4,), discount=0.0)
    model = models.make_model("ppo", h.validate(), make_vec_env("Pendulum-v1", 2), seed=1, tuned_entropy=False)
    before = [value.clone() for value in model.policy.parameters()]
    model.learn(8)
    after = list(model.policy.parameters())
    assert all(value.isfinite().all() for value in after)
    assert any((a != b).any() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("value", [-10.5, 5.5, math.nan, "wide"])
def test_a_deviation_beyond_the_bound_is_refused(value):
    with pytest.raises(InvalidArgument, match=r"initial_log_std: .*got .*between -10 and 5"):
        Hyperparameters.from_dict({"initial_log_std": value})


@given(
    envs=st.integers(1, 64),
    steps=st.integers(1, 64),
    size=st.none() | st.integers(1, 8192),
    known=st.sampled_from(sorted(PRESETS)),
)
def test_a_minibatch_larger_than_the_rollout_is_the_rollout(envs, steps, size, known):
    assume(envs * steps >= 2)
    values = {"num_envs": envs, "num_steps": steps, **({} if size is None else {"minibatch_size": size})}
    built = Hyperparameters.for_run(values, base=preset(known))
    assert built.minibatch_size == min(size or preset(known).minibatch_size, envs * steps)
    assert built.validate() == Hyperparameters.from_dict(
        {**values, "minibatch_size": built.minibatch_size}, base=preset(known)
    )


@given(
    st.dictionaries(st.sampled_from(["num_steps", "minibatch_size"]), st.integers(16, 8192)),
    st.sampled_from(sorted(PRESETS)),
)
def test_what_a_model_may_suggest_can_be_trained_with(values, known):
    assert Hyperparameters.for_run(values, base=preset(known)).validate()


@pytest.mark.parametrize("value", [0, -1, 2.5, "all", math.nan, 2**40])
def test_a_minibatch_that_is_no_size_is_refused(value):
    with pytest.raises(InvalidArgument, match="minibatch_size"):
        Hyperparameters.for_run({"minibatch_size": value}, base=DEFAULT)


def test_a_member_is_warned_of_its_own_minibatch_only():
    tasks = MemberTask("a", {"minibatch_size": 9999}, 1), MemberTask("b", {"num_envs": 1, "num_steps": 8}, 1)
    (warning,) = minibatch_warnings(TrainSpec(environment="HalfCheetah-v5", members=tasks))
    assert warning.member == "a" and "9999" in warning.message and "2048" in warning.message


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
