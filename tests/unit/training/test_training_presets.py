"""Presets: every file is complete and legal, and an environment without one gets the default."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import pytest
from dressage.envs.cards import REWARD_ENVIRONMENT_IDS, load_card
from dressage.errors import InvalidArgument
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.training import sac
from dressage.training.algorithms import complete
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import DEFAULT, load_preset, parse_preset, preset_names
from dressage.training.replay_memory import ReplayUse, excess

TEXT = (
    resources.files("dressage.training")
    .joinpath("presets", "default.toml")
    .read_text("utf-8")
    .partition("\n[sac]\n")[0]
    + "\n"
)


def test_every_environment_has_a_preset_and_every_preset_an_environment():
    assert preset_names() == {*REWARD_ENVIRONMENT_IDS, DEFAULT}


@pytest.mark.parametrize("name", sorted(preset_names()))
def test_a_preset_is_legal_and_its_file_begins_with_its_name_and_sources(name):
    preset = load_preset(name)
    assert preset.ppo.validate() and preset.steps_per_member > 0 and preset.steps_per_second > 0
    text = resources.files("dressage.training").joinpath("presets", f"{name}.toml").read_text("utf-8")
    assert name == DEFAULT or text.startswith(f"# {name}\n")
    assert "# Hyperparameters" in text and "# Speed" in text


@pytest.mark.parametrize("environment", ["mjcf:dog", "gymnasium:Pendulum-v1", "Unknown-v0", "", "../presets/Ant-v5"])
def test_an_environment_without_a_preset_gets_the_default(environment):
    assert load_preset(environment) is load_preset(DEFAULT)


def test_known_values():
    cheetah, pendulum = load_preset("HalfCheetah-v5"), load_preset("InvertedPendulum-v5")
    assert cheetah.ppo == Hyperparameters(
        learning_rate=7e-4, num_envs=64, num_steps=32, minibatch_size=512, epochs=8, discount=0.98, gae_lambda=0.92,
        entropy_coef=0.002, initial_log_std=-1.0,
    )  # fmt: skip
    assert (cheetah.steps_per_member, cheetah.steps_per_second) == (500_000, 11_000.0)
    assert (pendulum.steps_per_member, pendulum.ppo.learning_rate) == (60_000, 1e-3)
    assert cheetah.sac == sac.complete({"warmup_steps": 10_000}) and pendulum.sac == sac.DEFAULTS
    small = {"learning_rate": 1e-3, "minibatch_size": 128, "hidden_sizes": [64, 64]}
    assert load_preset("gymnasium:Pendulum-v1").sac == sac.complete(small)
    assert load_preset("Reacher-v5").sac == sac.complete({**small, "warmup_steps": 2_000, "discount": 0.95})


@pytest.mark.parametrize("name", sorted(preset_names()))
def test_sac_with_a_preset_fits_the_limits_of_a_learner_with_three_seeds(name):
    if name == DEFAULT or load_card(name).num_actions:
        pytest.skip("SAC does not train in it, or its sizes are unknown")
    preset, card = load_preset(name), load_card(name)
    use = ReplayUse([preset.sac] * 3, card.observation_size, card.action_size, steps=4 * preset.steps_per_member)
    limits = LEARNER_LIMITS
    assert excess(use, memory_bytes=limits.memory_bytes, checkpoint_bytes=limits.file_bytes) == ""
    assert preset.sac.warmup_steps < preset.steps_per_member / 10


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("discount = 0.99\n", "", "ppo: missing keys: discount; unknown keys: none"),
        ("discount = 0.99", "gamma = 0.99", "ppo: missing keys: discount; unknown keys: gamma"),
        ("steps_per_member", "steps", "missing keys: steps_per_member; unknown keys: steps"),
        ("steps_per_member = 500_000", "steps_per_member = 0", "steps_per_member: .*got 0.; expected an integer"),
        ("steps_per_member = 500_000", "steps_per_member = true", "steps_per_member: .*got True"),
        (
            "steps_per_second = 5_000",
            "steps_per_second = inf",
            "steps_per_second: .*got inf.; expected a number above 0",
        ),
        ("epochs = 8", "epochs = 0", "ppo.epochs: .*got 0.; expected an integer from 1 to 10000"),
        ("epochs = 8", "epochs = ", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_key(old, new, words):
    assert old in TEXT
    with pytest.raises(InvalidArgument, match=f"^presets/mine.toml: {words}"):
        parse_preset(TEXT.replace(old, new), name="mine")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[sac]\nclip_range = 0.1", "sac.clip_range: .*expected no value, or the algorithm 'ppo'"),
        ("[sac]\ntarget_rate = 0", "sac.target_rate: .*got 0.0.; expected a number above 0"),
        ("[td3]\n", "missing keys: none; unknown keys: td3"),
    ],
)
def test_a_wrong_table_of_sac_is_refused_with_its_name_and_key(table, words):
    with pytest.raises(InvalidArgument, match=f"^presets/mine.toml: {words}"):
        parse_preset(f"{TEXT}{table}\n", name="mine")


def test_sac_starts_from_its_table_and_else_from_its_defaults():
    preset = parse_preset(f"{TEXT}[sac]\nreplay_size = 5_000\nentropy_coef = 0.1\n", name="mine")
    assert preset.sac == sac.complete({"replay_size": 5_000, "entropy_coef": 0.1}) and not preset.sac.tune_entropy
    assert sac.complete({"minibatch_size": 8}, base=preset.sac).entropy_coef == 0.1
    assert complete("sac", {"discount": 0.9}, "Swimmer-v5").discount == 0.9
    assert complete("sac", {}, "Swimmer-v5").discount == 0.9999


def test_target_kl_is_none_where_it_is_missing():
    assert parse_preset(TEXT, name="mine").ppo.target_kl is None
    assert parse_preset(f"{TEXT}target_kl = 0.02\n", name="mine").ppo.target_kl == 0.02


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"clip_range": 0.2}, "clip_range"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"minibatch_size": 2**21}, "mini"),
    ],
)
def test_sac_refuses_what_it_does_not_have_or_cannot_use(values, field):
    with pytest.raises(InvalidArgument, match=f"^{field}"):
        sac.complete(values)


def test_sac_minibatches_may_be_larger_than_a_rollout():
    assert sac.complete({"minibatch_size": 4096}).minibatch_size == 4096
    assert sac.complete({}) == sac.DEFAULTS


def test_the_package_loads_no_simulator_and_no_learning_framework():
    code = (
        "import sys, dressage.training.preset, dressage.training.sac; "
        "print([n for n in ('numpy', 'jax', 'mujoco', 'gymnasium', 'google.protobuf') if n in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"
