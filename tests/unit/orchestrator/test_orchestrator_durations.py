"""The expected duration of an iteration: from environment and backend, or from the speed of earlier runs of the kind."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import list_cards
from dressage_orchestrator.methods.reward import estimates
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.specs import filled_session, reward_session


def seconds(environment="HalfCheetah-v5", *, steps=1_500_000, cores=2, rate=None, **spec):
    given_spec = reward_session(environment=f"environments/{environment}", **spec)
    full = filled_session(given_spec)
    return estimates.iteration_seconds(full, env_steps=steps, evaluation_env_steps=steps // 10, cores=cores, rate=rate)


def test_what_simulates_slowly_and_who_trains_slowly_takes_longer():
    assert seconds("CartPole-v1") < seconds() < seconds("Ant-v5") < seconds("HumanoidStandup-v5")
    assert seconds() < seconds(backend="sb3") < seconds(algorithm="sac") / 10
    assert seconds(algorithm="sac") < seconds(algorithm="sac", backend="sb3") / 4
    fewer = v1.Config(hyperparameters=v1.Hyperparameters(updates_per_step=0.25))
    assert seconds(algorithm="sac", configs=[fewer]) < seconds(algorithm="sac") / 3


@given(
    environment=st.sampled_from([*(card.id for card in list_cards()), "mine.xml"]),
    steps=st.integers(1, 10**8),
    cores=st.integers(1, 64),
)
def test_more_steps_take_longer_and_more_cores_never_do(environment, steps, cores):
    one = seconds(environment, steps=steps, cores=cores)
    assert 0 < one < seconds(environment, steps=2 * steps + 10, cores=cores)
    assert seconds(environment, steps=steps, cores=cores + 1) <= one


def test_recorded_speeds_replace_presets():
    assert seconds("Ant-v5", steps=1000, rate=100.0) == pytest.approx(10 + 10)


def test_kinds_of_runs_depend_on_environment_and_backend():
    specs = [
        v1.SessionSpec(environment="environments/Ant-v5"),
        v1.SessionSpec(environment="environments/Hopper-v5"),
        reward_session(environment="environments/Ant-v5", backend="sb3"),
        reward_session(environment="environments/Ant-v5", algorithm="sac"),
        reward_session(environment="environments/Ant-v5", algorithm="sac", backend="sb3"),
    ]
    full = [filled_session(spec) for spec in specs]
    kinds = [estimates.kind_of_run(spec) for spec in full]
    assert len(set(kinds)) == 5
    again = filled_session(v1.SessionSpec(environment="Ant-v5", intent="jump"))
    assert estimates.kind_of_run(again) == kinds[0]
