"""Kinds of policy: one bundle for all, vectors of numbers, and ONNX graphs that act alike."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from dressage.envs.cards import load_card
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.policies import WEIGHTS_FILE, Policy, PolicyCard, kinds, load, save_bundle, to_onnx, to_sb3
from dressage.policies.card import HIDDEN_LAYERS, KINDS
from dressage.policies.kinds import PolicySpec
from dressage.policies.kinds.spec import weights_of_layers
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NETWORKS = [name for name in KINDS if name != "table"]


@st.composite
def specs(draw, names=KINDS):
    name = draw(st.sampled_from(names))
    table, counts = name == "table", st.integers(1, 9)
    size = draw(st.sampled_from([0, 1, 3]))
    low = draw(st.lists(st.floats(-3, -0.1), min_size=size, max_size=size))
    inputs, choices = 0 if table else draw(counts), 0 if size else draw(st.integers(2, 5))
    hidden = tuple(draw(st.lists(counts, min_size=1, max_size=3))) if name in HIDDEN_LAYERS else ()
    weights = weights_of_layers((inputs, *hidden, size or choices)) if name == "projected_mlp" else ()
    return PolicySpec(
        kind=name,
        observation_size=inputs,
        observation_count=draw(counts) if table else 0,
        action_size=size,
        action_count=choices,
        action_low=tuple(low),
        action_high=tuple(-value / 2 for value in low),
        bias=draw(st.booleans()) if name in ("linear", "random_features") else True,
        hidden=hidden,
        latent=tuple(draw(st.integers(1, min(6, count))) for count in weights),
        features=draw(counts) if name == "random_features" else 0,
        seed=draw(st.integers(0, 2**32)),
    )


def policy_of(spec, *, seed=0, scale=1.0) -> Policy:
    """A policy with random weights; biases too, unlike initial ones."""
    kind = kinds.kind(spec.kind)
    vector = kind.vector(spec, kind.initial(spec, seed=seed))
    if not kind.choices(spec):
        vector = vector + scale * np.random.default_rng(seed).standard_normal(len(vector))
    return Policy(weights=kind.weights(spec, vector), card=kind.card(spec, environment="Any-v0"))


def observations(spec, *, count=50, seed=1, scale=3.0):
    rng = np.random.default_rng(seed)
    if spec.kind == "table":
        return rng.integers(spec.observation_count, size=count)
    return (scale * rng.standard_normal((count, spec.observation_size))).astype(np.float32)


def outputs_by_definition(spec, w, x):
    """Outputs (N, ·) in double precision, from the documentation of the kinds."""
    w = {name: np.asarray(value, np.float64) for name, value in w.items()}
    bias = w.get("action.bias", 0.0)
    if spec.kind == "mlp":
        for layer in range(len(spec.hidden)):
            x = np.tanh(np.einsum("oi,ni->no", w[f"pi.{layer}.weight"], x) + w[f"pi.{layer}.bias"])
    elif spec.kind == "random_features":
        x = np.tanh(np.einsum("fi,ni->nf", w["projection.weight"], np.clip(x / 3, -5, 5)) + w["projection.bias"])
    elif spec.kind == "projected_mlp":
        *hidden, last = [
            (w[f"{n}.basis"] @ w[f"{n}.latent"]) for n in [*(f"pi.{i}" for i in range(len(spec.hidden))), "action"]
        ]
        for flat, units in zip(hidden, spec.hidden, strict=True):
            x = np.tanh(np.einsum("oi,ni->no", flat.reshape(units, -1), x))
        return np.einsum("oi,ni->no", last.reshape(spec.outputs, -1), x)
    return np.einsum("oi,ni->no", w["action.weight"], x) + bias


def is_clear(outputs):
    """Rows whose largest output stands out by more than rounding."""
    ordered = np.sort(outputs, axis=1)
    return ordered[:, -1] - ordered[:, -2] > 1e-3


def test_the_registry_has_the_kinds_of_cards():
    assert kinds.NAMES == KINDS
    assert all(kinds.kind(name).name == name for name in KINDS)
    with pytest.raises(
        InvalidArgument, match=r"kind: .*got 'lstm'.; expected one of mlp, linear, table, random_features"
    ):
        kinds.kind("lstm")


@FAST
@given(specs(), st.integers(0, 2**32 - 1))
def test_a_vector_comes_back_in_single_precision(spec, seed):
    kind = kinds.kind(spec.kind)
    rng = np.random.default_rng(seed)
    count = kind.choices(spec)
    vector = rng.integers(count, size=kind.size(spec)) if count else rng.standard_normal(kind.size(spec))
    weights = kind.weights(spec, vector)
    assert {name: array.shape for name, array in weights.items()} == kind.shapes(spec)
    back = kind.vector(spec, weights)
    assert back.dtype == np.float64 and back.shape == (kind.size(spec),)
    np.testing.assert_array_equal(back, vector.astype(np.float32))


@FAST
@given(specs(), st.integers(0, 2**32 - 1))
def test_what_is_saved_is_what_acts(tmp_path, spec, seed):
    policy = policy_of(spec, seed=seed)
    rows = observations(spec)
    loaded = load(save_bundle(tmp_path / "bundle", weights=policy.weights, card=policy.description))
    assert loaded.description == policy.description and loaded.card["kind"] == spec.kind
    np.testing.assert_array_equal(loaded.act(rows), policy.act(rows))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(policy)).act(rows), policy.act(rows))


@FAST
@given(specs(NETWORKS), st.integers(0, 2**32 - 1))
def test_networks_act_by_the_definition(spec, seed):
    policy, rows = policy_of(spec, seed=seed), observations(spec)
    outputs = outputs_by_definition(spec, policy.weights, rows.astype(np.float64))
    actions = policy.act(rows)
    if spec.action_count:
        clear = is_clear(outputs)
        assert actions.dtype == np.int64
        np.testing.assert_array_equal(actions[clear], outputs.argmax(axis=1)[clear])
    else:
        np.testing.assert_allclose(actions, np.clip(outputs, spec.action_low, spec.action_high), atol=1e-4)


@FAST
@given(specs(), st.integers(0, 2**32 - 1))
def test_one_observation_acts_as_in_a_batch(spec, seed):
    policy, rows = policy_of(spec, seed=seed), observations(spec, count=8)
    if spec.action_count and spec.kind != "table":
        rows = rows[is_clear(outputs_by_definition(spec, policy.weights, rows.astype(np.float64)))]
    assume(len(rows))
    batch, single = policy.act(rows), policy.act(rows[0])
    assert batch.shape == (len(rows), *single.shape)
    assert single.shape == (() if spec.action_count else (spec.action_size,))
    np.testing.assert_allclose(batch, np.stack([policy.act(row) for row in rows]), atol=1e-5)
    kind = kinds.kind(spec.kind)
    np.testing.assert_array_equal(kind.act(policy.weights, policy.description, rows), batch)


@FAST
@given(specs(), st.integers(0, 2**32 - 1))
def test_onnxruntime_acts_alike_for_each_kind(tmp_path, spec, seed):
    runtime = pytest.importorskip("onnxruntime")
    policy, rows = policy_of(spec, seed=seed), observations(spec)
    session = runtime.InferenceSession(
        str(to_onnx(policy, tmp_path / "policy.onnx")), providers=["CPUExecutionProvider"]
    )
    (actions,) = session.run(["action"], {"observation": rows})
    expected = policy.act(rows)
    assert actions.shape == expected.shape and actions.dtype == expected.dtype
    if spec.action_count and spec.kind != "table":
        clear = is_clear(outputs_by_definition(spec, policy.weights, rows.astype(np.float64)))
        np.testing.assert_array_equal(actions[clear], expected[clear])
    else:
        np.testing.assert_allclose(actions, expected, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "projected_mlp"])
def test_ties_go_to_the_first_action_in_onnx_too(tmp_path, name):
    runtime = pytest.importorskip("onnxruntime")
    hidden, features = ((4,) if name == "mlp" else ()), (4 if name == "random_features" else 0)
    spec = PolicySpec(kind=name, observation_size=3, action_count=4, hidden=hidden, features=features)
    kind = kinds.kind(name)
    vector = np.zeros(kind.size(spec))
    vector[-4:] = 0, 2, 2, 1  # the output layer's biases
    policy = Policy(weights=kind.weights(spec, vector), card=kind.card(spec, environment="Any-v0"))
    rows = observations(spec)
    assert set(policy.act(rows).tolist()) == {1}
    session = runtime.InferenceSession(str(to_onnx(policy, tmp_path / "p.onnx")), providers=["CPUExecutionProvider"])
    assert set(session.run(["action"], {"observation": rows})[0].tolist()) == {1}


@pytest.mark.parametrize(
    ("name", "environment", "bias", "size"),
    [
        # The sizes of R2PO's policies.
        ("linear", "CartPole-v1", True, 10),
        ("linear", "CartPole-v1", False, 8),
        ("linear", "Swimmer-v5", True, 18),
        ("linear", "InvertedPendulum-v5", True, 5),
        ("linear", "InvertedDoublePendulum-v5", True, 10),
        ("random_features", "Swimmer-v5", True, 18),
        ("projected_mlp", "Swimmer-v5", True, 10),
        ("projected_mlp", "InvertedPendulum-v5", True, 9),  # the last layer has 4 weights
        ("mlp", "CartPole-v1", True, 4 * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2),
    ],
)
def test_sizes_of_policies_for_environments(name, environment, bias, size):
    spec = PolicySpec.of(name, load_card(environment), bias=bias)
    assert kinds.kind(name).size(spec) == size


def test_the_order_of_a_linear_vector():
    spec = PolicySpec(kind="linear", observation_size=2, action_size=2, action_low=(-9.0,) * 2, action_high=(9.0,) * 2)
    weights = kinds.kind("linear").weights(spec, [1, 2, 3, 4, 5, 6])
    assert weights["action.weight"].tolist() == [[1, 2], [3, 4]] and weights["action.bias"].tolist() == [5, 6]


def test_the_projection_depends_on_the_seed_only_and_is_stored(tmp_path):
    spec = PolicySpec(kind="random_features", observation_size=8, action_count=2, features=6, seed=3)
    kind = kinds.kind(spec.kind)
    one, same, other = (kind.weights(s, np.ones(kind.size(s))) for s in (spec, spec, replace(spec, seed=4)))
    np.testing.assert_array_equal(one["projection.weight"], same["projection.weight"])
    assert not np.array_equal(one["projection.weight"], other["projection.weight"])
    folder = save_bundle(tmp_path, weights=one, card=kind.card(spec, environment="Any-v0"))
    np.testing.assert_array_equal(load(folder).weights["projection.weight"], one["projection.weight"])


@FAST
@given(specs(("projected_mlp",)), st.integers(0, 2**32 - 1))
def test_a_projected_network_is_the_mlp_of_its_expanded_weights(spec, seed):
    """A second implementation of the same function: the plain MLP with biases 0."""
    policy, projected, plain = policy_of(spec, seed=seed), kinds.kind(spec.kind), kinds.kind("mlp")
    twin = replace(spec, kind="mlp", latent=())
    tensors = {name: np.zeros(shape) for name, shape in plain.shapes(twin).items()}
    tensors |= projected.dense(policy.weights, policy.description)
    rows = observations(spec)
    other = Policy(weights=tensors, card=plain.card(twin, environment="Any-v0"))
    # Only an MLP adds in the order of BLAS: the last digit may differ, and with it a choice between almost equal scores.
    if spec.action_count:
        assert np.mean(policy.act(rows) == other.act(rows)) > 0.95
    else:
        np.testing.assert_allclose(policy.act(rows), other.act(rows), rtol=1e-4, atol=1e-5)


@FAST
@given(specs(("projected_mlp",)))
def test_the_basis_of_each_layer_is_orthonormal_and_of_its_seed(spec):
    kind = kinds.kind(spec.kind)
    size = kind.size(spec)
    assert size == sum(spec.latent)
    weights, other = kind.weights(spec, np.ones(size)), kind.weights(replace(spec, seed=spec.seed + 1), np.ones(size))
    bases = [name for name in weights if name.endswith(".basis")]
    assert len(bases) == len(spec.hidden) + 1
    for name in bases:
        basis = weights[name].astype(np.float64)
        np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-5)
    assert any(not np.array_equal(weights[name], other[name]) for name in bases if weights[name].size > 1) or all(
        weights[name].size == 1 for name in bases
    )


@FAST
@given(specs(), st.integers(0, 2**32 - 1))
def test_initial_weights_are_those_of_their_seed(spec, seed):
    kind = kinds.kind(spec.kind)
    one, same = kind.initial(spec, seed=seed), kind.initial(spec, seed=seed)
    assert {name: array.shape for name, array in one.items()} == kind.shapes(spec)
    for name, array in one.items():
        np.testing.assert_array_equal(array, same[name])
    if spec.kind != "table":
        assert not np.array_equal(kind.vector(spec, one), kind.vector(spec, kind.initial(spec, seed=seed + 1)))


@FAST
@given(specs())
def test_a_spec_is_plain_json(spec):
    assert PolicySpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_actions_are_copies():
    box = {"action_size": 2, "action_low": (-1.0,) * 2, "action_high": (1.0,) * 2}
    for spec in (
        PolicySpec(kind="table", observation_count=3, **box),
        PolicySpec(kind="table", observation_count=3, action_count=2),
    ):
        policy = policy_of(spec)
        before = policy.act([0, 1, 2])
        policy.act(1)[...] = 1 - before[1]
        policy.act([1])[...] = 1 - before[1]
        np.testing.assert_array_equal(policy.act([0, 1, 2]), before)


def test_a_table_plays_frozen_lake_as_its_optimal_policy():
    """Value iteration on Gymnasium's own transitions gives a policy whose return is known without playing."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    n, actions = int(env.observation_space.n), int(env.action_space.n)
    value = np.zeros(n)
    for _ in range(200):
        gain = np.array(
            [
                [
                    sum(p * (r + 0.9 * value[s] * (not done)) for p, s, r, done in env.unwrapped.P[state][a])
                    for a in range(actions)
                ]
                for state in range(n)
            ]
        )
        value = gain.max(axis=1)
    spec = PolicySpec(kind="table", observation_count=n, action_count=actions)
    kind = kinds.kind("table")
    assert kind.size(spec) == 16
    policy = Policy(
        weights=kind.weights(spec, gain.argmax(axis=1)), card=kind.card(spec, environment="gymnasium:FrozenLake-v1")
    )
    observation, _ = env.reset(seed=0)
    rewards, done = [], False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation).item())
        rewards.append(reward)
        done = terminated or truncated
    assert sum(rewards) == 1.0
    assert 0.9 ** (len(rewards) - 1) == pytest.approx(value[0]), "the shortest way, as value iteration found"


@pytest.mark.parametrize("name", ["linear", "table", "random_features", "projected_mlp"])
def test_sb3_has_mlps_only_and_the_error_names_a_remedy(tmp_path, name):
    spec = PolicySpec(
        kind=name,
        observation_size=0 if name == "table" else 3,
        observation_count=3 if name == "table" else 0,
        action_count=2,
        features=4 if name == "random_features" else 0,
        hidden=(4,) if name == "projected_mlp" else (),
        latent=(5, 5) if name == "projected_mlp" else (),
    )
    with pytest.raises(FailedPrecondition, match=rf"kind {name}; expected an mlp. Export it to ONNX") as refused:
        to_sb3(policy_of(spec), tmp_path / "sb3")
    assert refused.value.reason == "KIND_NOT_EXPORTABLE"
    assert not (tmp_path / "sb3").exists()


@pytest.mark.parametrize(
    "actions", [{"action_count": 3}, {"action_size": 2, "action_low": (-1.0, -2.0), "action_high": (1.0, 0.5)}]
)
def test_an_mlp_without_a_critic_acts_in_sb3(tmp_path, actions):
    pytest.importorskip("torch")
    sb3 = pytest.importorskip("stable_baselines3")
    policy = policy_of(PolicySpec(kind="mlp", observation_size=5, hidden=(8, 4), **actions))
    assert not [name for name in policy.weights if name.startswith(("vf", "value", "log_std", "obs_"))]
    policy_file, _ = to_sb3(policy, tmp_path)
    rows = np.random.default_rng(0).standard_normal((200, 5)).astype(np.float32)
    given, _ = sb3.PPO.load(policy_file, device="cpu").predict(rows, deterministic=True)
    np.testing.assert_allclose(given, policy.act(rows), atol=1e-4)


def test_a_linear_policy_may_be_normalised(tmp_path):
    """A card may ask for it, though a search's does not."""
    card = PolicyCard(
        environment="Any-v0", kind="linear", observation_size=2, action_low=(-9.0,), action_high=(9.0,), clip=2.0
    )
    weights = {"action.weight": [[1.0, 1.0]], "action.bias": [0.5], "obs_mean": [1.0, 0.0], "obs_var": [4.0, 1.0]}
    folder = save_bundle(tmp_path, weights={name: np.array(value) for name, value in weights.items()}, card=card)
    np.testing.assert_allclose(load(folder).act([3.0, 5.0]), [1.0 + 2.0 + 0.5], atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "change", "named"),
    [
        ("linear", lambda card: card.update(kind="lstm"), "card.json kind: .*got 'lstm'.; expected one of mlp"),
        ("linear", lambda card: card.pop("kind"), "malformed.*kind"),
        ("linear", lambda card: card.update(kind=["linear"]), "card.json kind"),
        ("linear", lambda card: card["network"].update(bias=False, x=1), None),
        ("linear", lambda card: card["network"].update(bias="yes"), "network.bias"),
        (
            "linear",
            lambda card: card.update(observation_size=4),
            r"tensor action.weight: .*got \(2, 3\).; expected shape \(2, 4\)",
        ),
        ("linear", lambda card: card.update(kind="mlp"), "malformed.*hidden_sizes"),
        ("random_features", lambda card: card["network"].update(features=0), "network.features"),
        ("random_features", lambda card: card["network"].update(features=5), "tensor projection.weight"),
        ("projected_mlp", lambda card: card["network"].update(latent_sizes=[5]), "network.latent_sizes"),
        ("projected_mlp", lambda card: card["network"].update(latent_sizes=[5, 4]), "tensor action.basis"),
        ("projected_mlp", lambda card: card["network"].pop("latent_sizes"), "malformed.*latent_sizes"),
        ("table", lambda card: card.update(observation_count=0), "observation_count"),
        ("table", lambda card: card.update(observation_count=9), "tensor table"),
        ("table", lambda card: card["normalization"].update(observation=True), "normalization.observation.*table"),
        ("mlp", lambda card: card["network"].update(actor_only=False), "tensor obs_mean"),
        ("mlp", lambda card: card["network"].update(hidden_sizes=[]), "network.hidden_sizes"),
    ],
)
def test_bad_cards_of_each_kind_are_refused_by_name(tmp_path, spec, change, named):
    sizes = {
        "mlp": {"hidden": (4,)},
        "random_features": {"features": 4},
        "projected_mlp": {"hidden": (4,), "latent": (5, 5)},
    }.get(spec, {})
    seen = {"observation_count": 3} if spec == "table" else {"observation_size": 3}
    policy = policy_of(PolicySpec(kind=spec, action_count=2, **sizes, **seen))
    folder = save_bundle(tmp_path, weights=policy.weights, card=policy.description)
    card = json.loads((folder / "card.json").read_text())
    change(card)
    (folder / "card.json").write_text(json.dumps(card))
    if named is None:  # a tensor that the card does not name is not read
        assert "action.bias" not in load(folder).weights
        return
    with pytest.raises(InvalidArgument, match=named):
        load(folder / WEIGHTS_FILE)
