"""A request that breaks a rule is refused with the path of its field, through lists too, and the value seen."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument
from dressage.serving.validation import MessageValidator


@pytest.mark.parametrize(
    ("values", "path", "seen"),
    [
        ({"num_envs": 0}, "num_envs", "0"),
        ({"learning_rate": -1.0}, "learning_rate", "-1.0"),
        ({"hidden_sizes": [8, 0]}, "hidden_sizes[1]", "0"),
        ({"hidden_sizes": [8] * 40}, "hidden_sizes", "40 entries"),
    ],
)
def test_a_value_inside_a_list_is_named_with_its_index(values: dict[str, Any], path: str, seen: str):
    spec = v1.SessionSpec(intent="run", environment="environments/HalfCheetah-v5")
    spec.reward.configs.add(id="plain")
    spec.reward.configs.add(id="odd", hyperparameters=v1.Hyperparameters(**values))
    with pytest.raises(InvalidArgument) as error:
        MessageValidator()(spec)
    assert error.value.field == f"reward.configs[1].hyperparameters.{path}"
    assert error.value.message.startswith(f"reward.configs[1].hyperparameters.{path}: must ")
    assert error.value.message.endswith(f"(got {seen})")


def test_a_long_text_is_shortened_and_every_problem_listed():
    with pytest.raises(InvalidArgument) as error:
        MessageValidator()(v1.SessionSpec(intent="", environment="e" * 1000))
    assert "intent: " in error.value.message and "(got '')" in error.value.message
    assert "(got 1000 characters: 'eeee" in error.value.message and len(error.value.message) < 400


def test_a_value_outside_a_list_is_refused_with_the_list():
    spec = v1.SessionSpec(intent="run", environment="environments/CartPole-v1")
    spec.parameters.profile = "paper"
    with pytest.raises(InvalidArgument) as error:
        MessageValidator()(spec)
    assert str(error.value).endswith("profile: invalid value (got 'paper'); expected one of corrected, r2po-paper")
