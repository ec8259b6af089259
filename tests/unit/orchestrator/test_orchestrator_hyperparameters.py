"""Hyperparameters that are legal one by one and cannot be trained together are refused before anything is begun."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument
from dressage.serving.validation import MessageValidator
from dressage.training import sac
from dressage.training.hyperparameters import MAX_UPDATE_SAMPLES, Hyperparameters
from dressage.training.preset import load_preset, preset_names
from dressage_orchestrator.methods.reward.spec import validate

from tests.fakes.specs import filled_session


def with_defaults(**values: int) -> v1.SessionSpec:
    spec = v1.SessionSpec(intent="run", environment="environments/HalfCheetah-v5")
    spec.reward.configs.add(id="plain")
    spec.reward.configs.add(id="wide", hyperparameters=v1.Hyperparameters(**values))
    MessageValidator()(spec)
    return filled_session(spec)


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"num_envs": 4096, "num_steps": 65_536}, "num_steps", "got 65536.; expected at most 16384 .*num_envs of 4096"),
        ({"num_envs": 1025, "num_steps": 65_536}, "num_steps", "got 65536.; expected at most 65472"),
        ({"num_envs": 1, "num_steps": 1}, "num_steps", "got 1.; expected at least 2 with num_envs of 1"),
        ({"num_envs": 1, "num_steps": 2, "minibatch_size": 3}, "minibatch_size", r"got 3.; expected at most 2 "),
        (
            {"num_envs": 2048, "num_steps": 64, "epochs": 10_000},
            "epochs",
            "got 10000.; expected at most 8192 with 131072",
        ),
    ],
)
def test_what_no_update_can_hold_is_refused_by_the_api_as_by_the_trainer(
    values: dict[str, int], field: str, words: str
) -> None:
    path = rf"spec\.reward\.configs\[1\]\.hyperparameters\.{field}"
    with pytest.raises(InvalidArgument, match=f"{path}: .*{words}") as error:
        validate(with_defaults(**values))
    assert error.value.field == path.replace("\\", "")
    with pytest.raises(InvalidArgument, match=f"^{field}: .*{words}"):
        Hyperparameters.from_dict({"minibatch_size": 2, **values})


@pytest.mark.parametrize(
    "values",
    [
        {"num_envs": 1024, "num_steps": 65_536},
        {"num_envs": 4096, "num_steps": MAX_UPDATE_SAMPLES // 4096, "minibatch_size": 1_048_576},
        {"num_envs": 1, "num_steps": 2, "minibatch_size": 2},
        {"num_envs": 2, "num_steps": 1, "minibatch_size": 1},
    ],
)
def test_what_an_update_can_hold_is_taken_by_both(values: dict[str, int]) -> None:
    validate(with_defaults(**values))
    Hyperparameters.from_dict({"minibatch_size": 2, **values})


@pytest.mark.parametrize("values", [{"num_envs": 4096}, {"num_steps": 65_536}, {"num_envs": 1}, {"num_steps": 1}])
def test_one_alone_is_never_too_much_or_too_little_for_any_preset(values: dict[str, int]) -> None:
    validate(with_defaults(**values))
    for name in preset_names():
        Hyperparameters.from_dict({"minibatch_size": 2, **values}, base=load_preset(name).ppo)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"clip_range": 0.1},
            "clip_range: invalid value .got 0.1.; expected no value, or the algorithm 'ppo'",
        ),
        ({"minibatch_size": 2_000_000}, "minibatch_size: .*got 2000000.; expected at most 1000000"),
    ],
)
def test_what_sac_cannot_use_is_refused_before_anything_is_begun(values: dict[str, float], words: str) -> None:
    spec = with_defaults()
    spec.reward.algorithm = "sac"
    spec.reward.configs.add(id="third", hyperparameters=v1.Hyperparameters(**values))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=rf"^spec\.reward\.configs\[2\]\.hyperparameters\.{words}"):
        validate(spec)


@pytest.mark.parametrize("name", sac.OWN)
def test_what_only_sac_has_is_refused_for_ppo(name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"hyperparameters\.{name}.*expected no value, or the algorithm 'sac'"):
        validate(with_defaults(**{name: 1}))
