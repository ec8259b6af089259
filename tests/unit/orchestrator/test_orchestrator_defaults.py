"""What a spec gets where it sets nothing, by its method."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument
from dressage_orchestrator.lifecycle.registry import Methods

from tests.fakes.specs import filled_session, reward_session


def test_a_spec_without_a_method_gets_reward_and_its_defaults() -> None:
    full = filled_session(v1.SessionSpec(environment="environments/InvertedPendulum-v5"))
    assert full.WhichOneof("method_spec") == "reward"
    assert (full.model, full.pool, full.max_iterations, full.pass_threshold) == ("template/v1", "local", 5, 0.7)
    assert full.video_judging == v1.VIDEO_JUDGING_DECIDING
    assert full.reward == v1.RewardSpec(
        seeds=3,
        steps_per_member=60_000,
        configs=[v1.Config(id="default")],
        evaluations=8,
        evaluation_episodes=10,
        checkpoint_episodes=3,
        backend="jax",
        algorithm="ppo",
        tune_hyperparameters=False,
        max_steps_per_member=240_000,
        patience=2,
        from_parent=v1.FROM_PARENT_AUTO,
    )
    assert filled_session(full) == full


@pytest.mark.parametrize(
    ("model", "given", "tunes"),
    [
        ("openai/gpt-4.1", {}, True),
        ("openai/gpt-4.1", {"tune_hyperparameters": False}, False),
        ("template/v1", {}, False),
        ("recorded/pole", {}, False),
        ("template/v1", {"tune_hyperparameters": True}, True),
    ],
)
def test_a_language_model_tunes_hyperparameters_unless_told(model: str, given: dict[str, bool], tunes: bool) -> None:
    assert filled_session(reward_session(model=model, **given)).reward.tune_hyperparameters is tunes


@pytest.mark.parametrize(
    ("given", "last", "earlier"), [((0, 0), 10, 3), ((2, 0), 2, 2), ((2, 5), 2, 5), ((0, 7), 10, 7)]
)
def test_earlier_evaluations_play_three_episodes_or_fewer(given: tuple[int, int], last: int, earlier: int) -> None:
    reward = filled_session(reward_session(evaluation_episodes=given[0], checkpoint_episodes=given[1])).reward
    assert (reward.evaluation_episodes, reward.checkpoint_episodes) == (last, earlier)


def test_what_is_set_stays_and_training_alone_has_one_iteration() -> None:
    full = filled_session(reward_session(algorithm="sac", seeds=1, train_only=True, max_iterations=4, pool="gpu"))
    assert (full.max_iterations, full.pool) == (1, "gpu")
    assert (full.reward.backend, full.reward.algorithm, full.reward.seeds) == ("jax", "sac", 1)


def test_a_method_that_is_not_installed_is_refused() -> None:
    spec = v1.SessionSpec(environment="environments/Hopper-v5")
    spec.program.SetInParent()
    expected = r"spec\.method_spec: .*got program.*expected reward"
    with pytest.raises(InvalidArgument, match=expected) as error:
        Methods({"reward": Methods.load().of(v1.SessionSpec())}).of(spec)
    assert (error.value.field, error.value.reason) == ("spec.method_spec", "METHOD_NOT_AVAILABLE")


def test_settings_of_an_unknown_plug_in_are_refused_by_their_type() -> None:
    spec = v1.SessionSpec()
    spec.custom.Pack(v1.Budget())
    with pytest.raises(InvalidArgument, match=r"spec\.custom: .*got dressage\.v1\.Budget") as error:
        Methods.load().of(spec)
    assert error.value.field == "spec.custom"


def test_the_reward_method_refuses_an_environment_without_it() -> None:
    spec = filled_session(reward_session(environment="environments/FrozenLake-v1"))
    with pytest.raises(InvalidArgument) as error:
        Methods.load().of(spec).validate(spec)
    assert error.value.field == "spec.environment"
    assert error.value.message == (
        "spec.environment: not supported by the method reward (got 'FrozenLake-v1'); expected an environment whose card "
        "lists the method. Use `--method parameters` or `--method code` with FrozenLake-v1."
    )
