"""Bad specs, vectors and observations of policies are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.policies import Policy, kinds
from dressage.policies.kinds import PolicySpec

BOX = {"action_size": 1, "action_low": [-1.0], "action_high": [1.0]}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"kind": "lstm", "observation_size": 3, **BOX}, "kind: .*got 'lstm'.; expected one of mlp"),
        ({"kind": "linear", **BOX}, "observation_size: .*got 0.; expected a positive integer for linear"),
        (
            {"kind": "linear", "observation_size": 3, "observation_count": 3, **BOX},
            "observation_count: .* 0 for linear",
        ),
        ({"kind": "table", "observation_size": 3, **BOX}, "observation_size: .*got 3.; expected 0 for table"),
        (
            {"kind": "table", "observation_count": 3, "bias": False, **BOX},
            "bias: .*got False.; expected true for table",
        ),
        ({"kind": "mlp", "observation_size": 3, **BOX}, "hidden: .*positive integers"),
        ({"kind": "mlp", "observation_size": 3, "hidden": [4, 0], **BOX}, "hidden: "),
        ({"kind": "mlp", "observation_size": 3, "hidden": 4, **BOX}, "hidden: .*got 4.; expected a list"),
        ({"kind": "linear", "observation_size": 3, "hidden": [4], **BOX}, "hidden: .*no hidden layers for linear"),
        ({"kind": "linear", "observation_size": 3, "features": 4, **BOX}, "features: "),
        ({"kind": "random_features", "observation_size": 3, **BOX}, "features: .*got 0"),
        ({"kind": "linear", "observation_size": 3, "latent": [2], **BOX}, "latent: .*no latents for linear"),
        (
            {"kind": "projected_mlp", "observation_size": 3, "hidden": [4], "latent": [5], **BOX},
            "latent: .*expected 2 positive integers, at most 12, 4, the weights of each layer",
        ),
        (
            {"kind": "projected_mlp", "observation_size": 3, "hidden": [4], "latent": [5, 5], **BOX},
            "latent: .*at most 12, 4",
        ),
        ({"kind": "projected_mlp", "observation_size": 3, "latent": [5], **BOX}, "hidden: .*positive integers"),
        ({"kind": "projected_mlp", "observation_size": 3, "hidden": [4], "latent": 5, **BOX}, "latent: .*a list"),
        ({"kind": "linear", "observation_size": 3}, "action_size: "),
        ({"kind": "linear", "observation_size": 3, "action_count": 1}, "action_count: .*got 1.; expected at least 2"),
        ({"kind": "linear", "observation_size": 3, "action_count": 2, **BOX}, "action_size: "),
        ({"kind": "linear", "observation_size": 3, **BOX, "action_low": [1.0]}, "action_low, action_high: "),
        ({"kind": "linear", "observation_size": 3, **BOX, "action_low": [float("nan")]}, "action_low, action_high: "),
        ({"kind": "linear", "observation_size": 3, **BOX, "seed": -1}, "seed: "),
        ({"kind": "linear", "observation_size": 3, **BOX, "colour": 1}, "policy: .*got .'colour'"),
        ({"observation_size": 3, **BOX}, "policy: "),
    ],
)
def test_bad_specs_are_refused_by_name(values, named):
    with pytest.raises(InvalidArgument, match=named):
        PolicySpec.from_dict(values)


@pytest.mark.parametrize(
    ("vector", "named"),
    [
        ([1.0] * 7, r"vector: .*got 'shape \(7,\)'.; expected shape \(8,\)"),
        ([[1.0] * 8], "vector: "),
        (["x"] * 8, "vector: "),
        ([1.0] * 7 + [np.nan], "tensor action.bias: "),
        ([1e39] + [1.0] * 7, "tensor action.weight: "),
    ],
)
def test_bad_vectors_are_refused_by_name(vector, named):
    spec = PolicySpec(kind="linear", observation_size=3, action_count=2)
    with pytest.raises(InvalidArgument, match=named):
        kinds.kind("linear").weights(spec, vector)


@pytest.mark.parametrize("bad", [-1.0, 3.0, 0.5, np.nan, np.inf])
def test_a_table_takes_actions_that_exist_only(bad):
    spec = PolicySpec(kind="table", observation_count=4, action_count=3)
    assert kinds.kind("table").choices(spec) == 3
    with pytest.raises(InvalidArgument, match=r"tensor table, entry 2: .*got .*.; expected an integer from 0 to 2"):
        kinds.kind("table").weights(spec, [0, 1, bad, 2])


def test_the_spec_of_another_kind_is_refused():
    spec = PolicySpec(kind="table", observation_count=4, action_count=3)
    with pytest.raises(InvalidArgument, match=r"kind: .*got 'table'.; expected the spec of a policy of kind linear"):
        kinds.kind("linear").size(spec)


def table(*, actions=3) -> Policy:
    spec, kind = PolicySpec(kind="table", observation_count=4, action_count=actions), kinds.kind("table")
    return Policy(weights=kind.weights(spec, [2, 0, 1, 2]), card=kind.card(spec, environment="Any-v0"))


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (2, 1),
        (np.int64(0), 2),
        ([3, 1], [2, 0]),
        (np.eye(4)[2], 1),
        (np.eye(4)[[0, 0, 1]], [2, 2, 0]),
        (np.eye(4, dtype=np.int64)[[1]], [0]),
        (np.array([0, 1, 0, 0]), [2, 0, 2, 2]),  # integers of one axis are observations, never a one-hot row
    ],
)
def test_a_table_takes_integers_and_one_hot_rows(observation, action):
    given = table().act(observation)
    assert given.tolist() == action and given.dtype == np.int64


@pytest.mark.parametrize(
    "bad", [4, -1, [0, 4], 1.0, [0.5, 0.5, 0, 0], [1.0, 1.0, 0, 0], np.zeros(4), np.zeros((2, 3)), "x"]
)
def test_a_table_refuses_other_observations(bad):
    with pytest.raises(InvalidArgument, match=r"observation: .*integers from 0 to 3"):
        table().act(bad)
