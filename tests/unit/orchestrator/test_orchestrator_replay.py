"""Replay buffers that a trainer cannot hold are refused when a session is created."""

from __future__ import annotations

import re

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.sandbox.machine import UNKNOWN, Machine
from dressage.training.preset import load_preset
from dressage.training.replay_memory import ReplayUse, excess
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.methods.reward.method import RewardMethod

from tests.fakes.specs import reward_session

GIB = 2**30
METHOD = RewardMethod()


def whole_observations(replay_size: int) -> v1.Hyperparameters:
    """105 numbers of an observation of Ant, where the preset has 27."""
    return v1.Hyperparameters(replay_size=replay_size, observation_inputs=0)


def filled(
    environment: str = "Ant-v5", *, algorithm: str = "sac", replay_size: int = 0, **more: object
) -> v1.SessionSpec:
    spec = reward_session(environment=f"environments/{environment}", algorithm=algorithm, **more)
    if replay_size:
        spec.reward.configs.add(id="large", hyperparameters=whole_observations(replay_size))
    METHOD.fill(spec)
    METHOD.validate(spec)
    return spec


def refusal(spec: v1.SessionSpec, machine: Machine = UNKNOWN) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        METHOD.check_machine(spec, machine)
    assert caught.value.reason == "REPLAY_TOO_LARGE"
    return caught.value


def test_a_buffer_that_is_too_large_names_its_field_and_what_fits() -> None:
    error = refusal(filled(replay_size=1_000_000, seeds=3))
    assert error.field == "spec.reward.configs[0].hyperparameters.replay_size"
    words = "too large for 3 members (the replay buffers are in a checkpoint of 2.5 GiB"
    assert error.message.startswith(f"{error.field}: {words}")
    fits = int(re.search(r"Set replay_size to at most ([\d,]+),", error.message)[1].replace(",", ""))
    METHOD.check_machine(filled(replay_size=fits, seeds=3), UNKNOWN)
    refusal(filled(replay_size=fits + 1, seeds=3))


def test_the_largest_of_several_configs_is_named_and_all_count() -> None:
    spec = filled(replay_size=300_000, seeds=3)
    METHOD.check_machine(spec, UNKNOWN)
    spec.reward.configs.add(id="larger", hyperparameters=whole_observations(600_000))
    error = refusal(spec)
    assert error.field == "spec.reward.configs[1].hyperparameters.replay_size" and "6 members" in error.message


def test_variants_of_a_config_count_as_members() -> None:
    METHOD.check_machine(filled(replay_size=300_000, seeds=3), UNKNOWN)
    assert "9 members" in refusal(filled(replay_size=300_000, seeds=3, config_variants=True)).message


def test_a_buffer_of_fewer_inputs_takes_less() -> None:
    spec = filled(replay_size=1_000_000, seeds=3)
    refusal(spec)
    spec.reward.configs[0].hyperparameters.observation_inputs = 27
    METHOD.check_machine(spec, UNKNOWN)


def test_the_memory_of_the_pool_counts() -> None:
    pool = Pool(image="trainer:1", resources={"limits": {"memory": "4Gi"}}, scratch_size="4Gi")
    assert pool.machine == Machine(memory_bytes=4 * GIB, scratch_bytes=4 * GIB)
    spec = filled("HalfCheetah-v5", seeds=6)
    METHOD.check_machine(spec, UNKNOWN)
    assert "expected at most 2.2 GiB" in refusal(spec, pool.machine).message
    assert "a checkpoint of" in refusal(spec, Machine(scratch_bytes=GIB)).message


@pytest.mark.parametrize("backend", ["jax", "sb3"])
@pytest.mark.parametrize("environment", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "HumanoidStandup-v5"])
def test_presets_fit_with_the_default_number_of_seeds(environment: str, backend: str) -> None:
    METHOD.check_machine(filled(environment, backend=backend), UNKNOWN)


def test_ppo_has_no_replay_buffer() -> None:
    METHOD.check_machine(filled("Humanoid-v5", algorithm="ppo", seeds=50), Machine(memory_bytes=GIB))


def test_a_training_of_random_actions_only_is_refused() -> None:
    words = r"configs\[0\]\.hyperparameters\.warmup_steps: actions are random .*got 10000.; expected less than .* 9000"
    with pytest.raises(InvalidArgument, match=words):
        filled("HalfCheetah-v5", steps_per_member=9_000)
    filled("HalfCheetah-v5", steps_per_member=10_001)


@pytest.mark.parametrize(("backend", "copies"), [("jax", 3.0), ("sb3", 2.5)])
def test_the_copies_of_a_buffer_depend_on_who_trains(backend: str, copies: float) -> None:
    """A buffer that is overwritten is copied for a snapshot; Stable-Baselines3 trains one member at a time."""
    card, preset = load_card("Ant-v5"), load_preset("Ant-v5")
    use = ReplayUse([preset.sac] * 2, card.observation_size, card.action_size, steps=2_000_000, backend=backend)
    needed = 2 * 800_000 * 884 * copies
    room = {"checkpoint_bytes": LEARNER_LIMITS.file_bytes}
    assert not excess(use, memory_bytes=int(needed) + 3 * GIB // 4, **room)
    assert "the replay buffers take" in excess(use, memory_bytes=int(needed) + 3 * GIB // 4 - 1, **room)
