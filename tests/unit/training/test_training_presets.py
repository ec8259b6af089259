"""Presets: every file is complete and legal, and an environment without one gets the default."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from dressage.envs.cards import REWARD_ENVIRONMENT_IDS, load_card
from dressage.envs.catalogue import catalogue
from dressage.errors import InvalidArgument
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.training import sac
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import DEFAULT, complete_hyperparameters, load_preset, parse_preset, preset_names
from dressage.training.replay_memory import ReplayUse, excess

TABLE = {"steps_per_member": 500_000, "steps_per_second": 5_000, "ppo": {"epochs": 8}}


def test_every_environment_has_a_preset_and_every_preset_an_environment():
    assert preset_names() == {*REWARD_ENVIRONMENT_IDS, DEFAULT}


@pytest.mark.parametrize("name", sorted(preset_names()))
def test_a_preset_is_legal_and_states_its_speed_with_a_source(name):
    preset = load_preset(name)
    assert preset.ppo.validate() and preset.steps_per_member > 0 and preset.steps_per_second > 0
    assert name == DEFAULT or "\n# Speed: " in catalogue()[name].file.read_text("utf-8")


@pytest.mark.parametrize("name", sorted(preset_names() - {DEFAULT}))
def test_a_preset_states_only_what_differs_from_the_default(name):
    table, default = catalogue()[name].table("preset"), load_preset(DEFAULT)
    same = [key for key, value in table.get("ppo", {}).items() if default.ppo.to_dict()[key] == value]
    same += [key for key, value in table.get("sac", {}).items() if sac.DEFAULTS.to_dict()[key] == value]
    assert not same and table.get("steps_per_member") != default.steps_per_member


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
    ("change", "words"),
    [
        ({"ppo": {"gamma": 0.99}}, "ppo.gamma: .*got 0.99.; expected one of"),
        ({"ppo": 1}, "ppo: .*got 1.; expected a table"),
        ({"ppo": {"epochs": 0}}, "ppo.epochs: .*got 0.; expected an integer from 1 to 10000"),
        ({"steps_per_member": None}, "steps_per_member: .*got None.; expected an integer"),
        ({"steps_per_member": 0}, "steps_per_member: .*got 0.; expected an integer"),
        ({"steps_per_member": True}, "steps_per_member: .*got True"),
        ({"steps_per_second": float("inf")}, "steps_per_second: .*got inf.; expected a number above 0"),
        ({"sac": {"clip_range": 0.1}}, "sac.clip_range: .*expected no value, or the algorithm 'ppo'"),
        ({"sac": {"target_rate": 0}}, "sac.target_rate: .*got 0.0.; expected a number above 0"),
    ],
)
def test_a_wrong_table_is_refused_with_its_name_and_key(change, words):
    with pytest.raises(InvalidArgument, match=f"^mine: {words}"):
        parse_preset({**TABLE, **change}, path="mine")


def test_an_unknown_key_is_refused():
    with pytest.raises(InvalidArgument, match=r"^mine: .*got .'td3'.*; expected the keys steps_per_member"):
        parse_preset({**TABLE, "td3": {}}, path="mine")


def test_sac_starts_from_its_table_and_else_from_its_defaults():
    preset = parse_preset({**TABLE, "sac": {"replay_size": 5_000, "entropy_coef": 0.1}}, path="mine")
    assert preset.sac == sac.complete({"replay_size": 5_000, "entropy_coef": 0.1}) and not preset.sac.tune_entropy
    assert sac.complete({"minibatch_size": 8}, base=preset.sac).entropy_coef == 0.1
    assert complete_hyperparameters("sac", {"discount": 0.9}, "Swimmer-v5").discount == 0.9
    assert complete_hyperparameters("sac", {}, "Swimmer-v5").discount == 0.9999


def test_what_a_table_leaves_out_is_that_of_the_default_preset():
    preset = parse_preset({"ppo": {"discount": 0.9}}, path="mine", base=load_preset(DEFAULT))
    assert preset == replace(
        load_preset(DEFAULT), ppo=replace(load_preset(DEFAULT).ppo, discount=0.9), sac=sac.DEFAULTS
    )


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
        "print([n for n in ('jax', 'mujoco', 'gymnasium') if n in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"
