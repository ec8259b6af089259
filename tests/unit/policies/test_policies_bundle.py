"""The bundle: what is saved is what acts, everywhere alike."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage.installation import install_command
from dressage.policies import CARD_FILE, WEIGHTS_FILE, Policy, PolicyCard, load, save_bundle, to_onnx, to_sb3
from dressage.policies.bundle import tensor_shapes
from hypothesis import given, settings
from hypothesis import strategies as st

D, A = 11, 3


def make_policy(*, seed=0, hidden=(32, 16), normalize=True) -> Policy:
    rng = np.random.default_rng(seed)
    card = PolicyCard(
        environment="Hopper-v5",
        observation_size=D,
        action_low=(-1.0, -0.4, -2.0),
        action_high=(1.0, 0.4, 0.5),
        hidden_sizes=hidden,
        normalize_observation=normalize,
        clip=3.0,
        statistics={"obs_count": 12.0, "return_var": 3.0, "discount": 0.97, "reward_clip": 2.5},
        provenance={"intent": "hop", "seed": seed},
    )
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) / np.sqrt(shape[-1])
        for name, shape in tensor_shapes(card).items()
    }
    # A large mean and a small spread, where single precision would show.
    weights["obs_mean"] = rng.standard_normal(D) * 5
    weights["obs_var"] = 10.0 ** rng.uniform(-2, 2, D)
    return Policy(weights=weights, card=card)


def observations(policy: Policy, count=200, seed=1):
    rng = np.random.default_rng(seed)
    spread = np.sqrt(policy.weights["obs_var"])
    rows = policy.weights["obs_mean"] + rng.standard_normal((count, D)) * spread
    rows[:10] *= 100  # beyond the clip
    return rows.astype(np.float32).astype(np.float64)


def saved(policy, path):
    return save_bundle(path, weights=policy.weights, card=policy.description)


def test_loaded_acts_as_saved(tmp_path):
    policy = make_policy()
    loaded = load(saved(policy, tmp_path / "bundle"))
    rows = observations(policy)
    np.testing.assert_array_equal(loaded.act(rows), policy.act(rows))
    assert loaded.card == policy.card
    assert load(tmp_path / "bundle" / WEIGHTS_FILE).card == policy.card


def test_act_by_the_definition():
    policy = make_policy()
    w, row = policy.weights, observations(policy)[20]
    x = np.clip((row - w["obs_mean"]) / np.sqrt(w["obs_var"] + 1e-8), -10, 10)
    for name in ("pi.0", "pi.1"):
        x = np.tanh(w[f"{name}.weight"] @ x + w[f"{name}.bias"])
    expected = np.clip(
        w["action.weight"] @ x + w["action.bias"], policy.description.action_low, policy.description.action_high
    )
    np.testing.assert_allclose(policy.act(row), expected, atol=1e-5)
    assert policy.act(row).shape == (A,)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(0.01, 1e6))
def test_rows_are_independent_and_bounded(seed, count, scale):
    policy = make_policy()
    rows = np.random.default_rng(seed).standard_normal((count, D)) * scale
    batch = policy.act(rows)
    np.testing.assert_allclose(batch, np.stack([policy.act(row) for row in rows]), atol=1e-5)
    assert (batch >= np.float32(policy.description.action_low)).all()
    assert (batch <= np.float32(policy.description.action_high)).all()


@pytest.mark.parametrize("normalize", [True, False])
def test_onnxruntime_acts_alike(tmp_path, normalize):
    runtime = pytest.importorskip("onnxruntime")
    policy = make_policy(normalize=normalize)
    path = to_onnx(policy, tmp_path / "policy.onnx")
    rows = observations(policy)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (actions,) = session.run(["action"], {"observation": rows.astype(np.float32)})
    np.testing.assert_allclose(actions, policy.act(rows), atol=1e-4)


def test_sb3_acts_alike(tmp_path):
    pytest.importorskip("torch")
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    policy = make_policy()
    policy_file, normalizer_file = to_sb3(policy, tmp_path)
    model = sb3.PPO.load(policy_file, device="cpu")

    class Spaces(__import__("gymnasium").Env):
        observation_space, action_space = model.observation_space, model.action_space

    normalizer = VecNormalize.load(str(normalizer_file), DummyVecEnv([Spaces]))
    assert not normalizer.training
    assert normalizer.ret_rms.var == 3.0 and normalizer.gamma == 0.97
    assert (normalizer.clip_obs, normalizer.clip_reward) == (3.0, 2.5)
    rows = observations(policy)
    actions, _ = model.predict(normalizer.normalize_obs(rows), deterministic=True)
    np.testing.assert_allclose(actions, policy.act(rows), atol=1e-4)


def test_missing_sb3_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(FailedPrecondition, match=re.escape(install_command("sb3"))):
        to_sb3(make_policy(), tmp_path)


def test_import_needs_numpy_and_safetensors_only():
    code = (
        "import sys, dressage.policies\n"
        "heavy = {'torch', 'jax', 'onnx', 'gymnasium', 'mujoco', 'grpc', 'stable_baselines3'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_missing_and_damaged_files_are_named(tmp_path):
    with pytest.raises(NotFound, match=CARD_FILE):
        load(tmp_path)
    folder = saved(make_policy(), tmp_path / "bundle")
    (folder / WEIGHTS_FILE).write_bytes((folder / WEIGHTS_FILE).read_bytes()[:-7])
    with pytest.raises(InvalidArgument, match="damaged"):
        load(folder)
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(NotFound, match=WEIGHTS_FILE):
        load(folder)


@pytest.mark.parametrize("name", [CARD_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("how", ["folder", "loop", "closed"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, how):
    folder = saved(make_policy(), tmp_path / "bundle")
    path = folder / name
    if how == "closed":
        if os.geteuid() == 0:
            pytest.skip("root reads every file")
        path.chmod(0)
    else:
        path.unlink()
        path.mkdir() if how == "folder" else path.symlink_to(path)
    with pytest.raises(InvalidArgument, match=rf"{name}: cannot be read \(") as refused:
        load(folder)
    assert refused.value.field == name


def test_a_folder_that_may_not_be_entered_is_said(tmp_path, monkeypatch):
    folder = saved(make_policy(), tmp_path / "bundle")

    def closed(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", closed)
    with pytest.raises(InvalidArgument, match=rf"{CARD_FILE}: cannot be read \(Permission denied\)"):
        load(folder)


@pytest.mark.parametrize("depth", [900, 960, 970, 980, 990, 1000, 100_000])
def test_a_card_that_is_nested_too_deep_is_refused(tmp_path, depth):
    folder = saved(make_policy(), tmp_path)
    text = json.dumps({**json.loads((folder / CARD_FILE).read_text()), "observation_size": "deep"})
    (folder / CARD_FILE).write_text(text.replace('"deep"', "[" * depth + "]" * depth))
    with pytest.raises(InvalidArgument, match=r"card\.json"):
        load(folder)


def test_statistics_of_rewards_beyond_all_measure_are_kept(tmp_path):
    # What the trainer writes where a reward's square is beyond double precision.
    description = replace(make_policy().description, statistics={"return_var": math.inf, "return_mean": math.nan})
    save_bundle(tmp_path, weights=make_policy().weights, card=description)
    assert load(tmp_path).description.statistics["return_var"] == math.inf


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda card: card.pop("format"), "format"),
        (lambda card: card["network"].pop("hidden_sizes"), "hidden_sizes"),
        (lambda card: card["network"].update(hidden_sizes=[32, 17]), "tensor pi.1"),
        (lambda card: card["action"].update(low=[2, 2, 2]), "action.low"),
        (lambda card: card["normalization"].update(clip=-1), "normalization.clip"),
        (lambda card: card["normalization"].update(clip=10**400), "normalization.clip"),
        (lambda card: card["action"].update(high=[10**400] * 3), "card.json"),
        (lambda card: card["normalization"]["statistics"].update(discount="x"), "normalization.statistics.*discount"),
        (lambda card: card["normalization"]["statistics"].update(obs_count=None), "normalization.statistics"),
        (lambda card: card["normalization"]["statistics"].update(discount=float("nan")), "normalization.statistics"),
        (lambda card: card["normalization"]["statistics"].update(return_var=True), "normalization.statistics"),
        (lambda card: card["normalization"].update(statistics=None), "malformed"),
        (lambda card: card["normalization"].update(statistics="x"), "malformed"),
    ],
)
def test_bad_cards_are_refused_by_name(tmp_path, change, named):
    folder = saved(make_policy(), tmp_path)
    card = json.loads((folder / CARD_FILE).read_text())
    change(card)
    (folder / CARD_FILE).write_text(json.dumps(card))
    with pytest.raises(InvalidArgument, match=named):
        load(folder)


def test_bad_weights_are_never_written(tmp_path):
    policy = make_policy()
    broken = {**policy.weights, "action.bias": np.array([0.0, np.nan, 0.0])}
    with pytest.raises(InvalidArgument, match=r"action\.bias"):
        save_bundle(tmp_path, weights=broken, card=policy.description)
    assert not list(tmp_path.iterdir())


def test_bad_observation_shape_is_named():
    with pytest.raises(InvalidArgument, match="observation"):
        make_policy().act(np.zeros(D + 1))
