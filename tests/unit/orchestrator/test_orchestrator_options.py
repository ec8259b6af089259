"""Options of the environment on their way: from the command line through the spec to the simulation."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2
from dressage.envs import EnvOptions, make_batch
from dressage.errors import InvalidArgument
from dressage_orchestrator.service import _check_options
from dressage_trainer.assignments.requests import options_of, train_spec

from tests.fakes.options import spec_of


def test_options_arrive_in_the_simulation() -> None:
    texts = ["max_episode_steps=6", "terminate_when_unhealthy=false", "reset_noise_scale=0"]
    spec = spec_of(intent="hop", env="Hopper-v5", env_options=texts)
    _check_options("Hopper-v5", spec.environment_options)
    task = run_service_pb2.TrainAssignment(environment="Hopper-v5", options=spec.environment_options)
    session_spec = train_spec(task).options
    assert session_spec == {"max_episode_steps": 6, "terminate_when_unhealthy": False, "reset_noise_scale": 0.0}
    batch = make_batch("Hopper-v5", 2, num_threads=1, options=EnvOptions.from_dict(session_spec))
    observation = batch.reset([1, 2])
    assert np.array_equal(observation[0], observation[1])  # no noise
    ends = [batch.step(np.ones((2, 3))).truncated.all() for _ in range(6)]
    assert ends == [False] * 5 + [True]


def test_options_that_are_not_set_keep_the_environments_defaults() -> None:
    assert options_of(spec_of(intent="hop", env="Hopper-v5").environment_options) == {}


def test_an_unsupported_environment_option_is_rejected_at_creation() -> None:
    spec = spec_of(intent="run", env="HalfCheetah-v5", env_options=["terminate_when_unhealthy=false"])
    expected = (
        r"spec\.environment_options\.terminate_when_unhealthy: .*got False.*HalfCheetah-v5, which has max_episode"
    )
    with pytest.raises(InvalidArgument, match=expected) as error:
        _check_options("HalfCheetah-v5", spec.environment_options)
    assert error.value.field == "spec.environment_options.terminate_when_unhealthy"
