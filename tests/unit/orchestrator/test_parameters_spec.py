"""Settings of the method `parameters`: defaults, the paper's profile, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage_orchestrator.methods.parameters import METHOD
from dressage_orchestrator.methods.parameters.defaults import defaults_of
from dressage_orchestrator.methods.parameters.form import Form
from dressage_orchestrator.methods.parameters.spec import estimate
from dressage_orchestrator.methods.parameters.variants import CONTROLS, SEARCHES, VARIANTS
from dressage_orchestrator.service import with_defaults

# Environments of the R2PO paper with the rank and, for the search r2po, horizon, optimum, tau_c and W of its table.
PAPER = {
    "Nim-v0": ("table", 11, None, 1, 0.95, 0),
    "Pong5-v0": ("linear", 18, None, 3, 2.8, 20),
    "Swimmer-v5": ("linear", 18, None, 250, 230, 100),
    "MountainCarContinuous-v0": ("linear", 3, None, 100, 97, 20),
    "MountainCar-v0": ("linear", 9, None, -120, -120, 0),
    "InvertedDoublePendulum-v5": ("linear", 10, None, 500, 450, 20),
    "InvertedPendulum-v5": ("linear", 5, None, 1000, 950, 20),
    "FrozenLake-v1": ("table", 16, None, 1, 0.85, 0),
    "CartPole-v1": ("linear", 10, None, 500, 480, 20),
    "Maze3x3-v0": ("table", 9, 20, 0.9, 0.9, 20),
}


def spec_of(environment: str = "CartPole-v1", *, model: str = "openai/x", **settings: Any) -> v1.SessionSpec:
    spec = v1.SessionSpec(intent="x", environment=f"environments/{environment}", model=model)
    spec.parameters.CopyFrom(v1.ParameterSpec(**settings))
    return spec


def filled(environment: str = "CartPole-v1", *, model: str = "openai/x", **settings: Any) -> v1.SessionSpec:
    spec = spec_of(environment, model=model, **settings)
    full = with_defaults(spec, METHOD, default_model="template/v1", default_pool="local")
    METHOD.validate(full)
    return full


@pytest.mark.parametrize("environment", PAPER)
def test_the_papers_settings_of_r2po(environment: str) -> None:
    policy, rank, horizon, optimum, threshold, warmup = PAPER[environment]
    full = filled(environment, profile="r2po-paper")
    settings, form = full.parameters, Form.of(full, load_card(environment))
    assert (settings.search, settings.policy, form.size) == ("r2po", policy, rank)
    assert (settings.optimum, settings.revision_threshold, settings.warmup) == (optimum, threshold, warmup)
    assert (full.max_iterations, settings.episodes, settings.revision_rule) == (100, 20, "text")
    assert full.environment_options.max_episode_steps == (horizon or 0) and not form.enforced
    step = 0.1 if environment in ("Swimmer-v5", "InvertedDoublePendulum-v5") else 1.0
    assert settings.step_size == step and (form.range if not form.choices else 6) == 6


@pytest.mark.parametrize(
    ("environment", "search", "expected"),
    [
        ("Maze3x3-v0", "props", {"horizon": 100, "optimum": 1.0}),
        ("Maze3x3-v0", "three_traj", {"horizon": 100, "optimum": 0.9}),
        ("InvertedDoublePendulum-v5", "reptraj", {"optimum": 10000.0}),
        ("InvertedDoublePendulum-v5", "three_traj", {"optimum": 200.0}),
        ("Swimmer-v5", "props", {"policy": "projected_mlp", "warmup": 20}),
        ("Swimmer-v5", "props_plus", {"policy": "random_features", "warmup": 20}),
        ("MountainCarContinuous-v0", "props_plus", {"warmup": 0}),
        ("Nim-v0", "props", {"warmup": 20}),
        ("Walker2d-v5", "props", {"warmup": 20, "optimum": None, "step_size": 1.0}),
    ],
)
def test_the_papers_settings_of_other_variants(environment: str, search: str, expected: dict[str, Any]) -> None:
    defaults = defaults_of("r2po-paper", environment, search)
    assert {name: getattr(defaults, name) for name in expected} == expected


@pytest.mark.parametrize("environment", PAPER)
def test_corrected_conditions_are_equal_for_all_variants(environment: str) -> None:
    """All but the number of iterations, which gives all the same episodes, and the revision rule."""
    specs = []
    for search, variant in VARIANTS.items():
        full = filled(environment, search=search)
        settings = full.parameters
        assert full.max_iterations * variant.calls * settings.episodes == settings.episode_budget == 4000
        settings.search, full.max_iterations = "", 0
        for name in ("revision_threshold", "revision_rule"):
            settings.ClearField(name)
        specs.append(full.SerializeToString(deterministic=True))
    assert len(set(specs)) == 1


def test_a_search_is_chosen_by_the_model() -> None:
    assert filled(model="template/v1").parameters.search == "cma_es"
    assert filled(model="").parameters.search == "cma_es"
    assert filled(model="recorded/poles").parameters.search == "r2po"
    for search in CONTROLS:
        full = filled(search=search, model="template/v1")
        assert full.max_iterations == 1 and full.parameters.warmup == 0
        assert estimate(full, episode_steps=500).env_steps == 200 * 20 * 500


def test_the_critic_is_not_limited_below_the_target() -> None:
    assert filled("MountainCar-v0", target=-100.0).parameters.revision_threshold == -100.0
    assert filled("CartPole-v1", target=20.0).parameters.revision_threshold == 480.0
    assert filled(search="reptraj", revision_threshold=240.0).parameters.revision_rule == "skip"
    assert filled(revision_rule="none").parameters.revision_rule == "none"


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("spec.parameters.search", {"search": "r2p0"}, "CartPole-v1", "r2po"),
    ("spec.parameters.search", {"search": "r2po", "model": "template/v1"}, "CartPole-v1", "choose a model"),
    ("spec.parameters.search", {"search": "sb3_sac"}, "CartPole-v1", "sb3_dqn"),
    ("spec.parameters.search", {"search": "sb3_dqn"}, "Swimmer-v5", "sb3_sac"),
    ("spec.parameters.search", {"search": "cma_es", "target": 1.0}, "PointMaze_Large-v3", "environment pack robotics"),
    ("spec.parameters.search", {"search": "r2po", "model": "", "target": 1.0}, "PointMaze_Large-v3", "the method code"),
    ("spec.parameters.policy", {"policy": "table"}, "CartPole-v1", "linear"),
    ("spec.parameters.policy", {"policy": "table", "search": "cma_es"}, "Nim-v0", "hill_climb"),
    ("spec.parameters.policy", {"search": "sb3_ppo", "policy": "linear"}, "CartPole-v1", "mlp"),
    ("spec.parameters.bias", {"policy": "table", "bias": False}, "FrozenLake-v1", "linear"),
    ("spec.parameters.target", {}, "Walker2d-v5", "has no target"),
    ("spec.parameters.target", {"target": float("nan")}, "CartPole-v1", "finite"),
    ("spec.parameters.optimum", {"optimum": float("inf")}, "CartPole-v1", "finite"),
    ("spec.parameters.episode_budget", {"episode_budget": 39}, "CartPole-v1", "40"),
    ("spec.parameters.revision_rule", {"search": "props", "revision_rule": "skip"}, "CartPole-v1", "no critic"),
    ("spec.parameters.revision_threshold", {"revision_rule": "skip", "target": 1.0}, "Walker2d-v5", "threshold"),
]


@pytest.mark.parametrize(("field", "settings", "environment", "words"), REFUSED)
def test_contradictions_name_field_and_remedy(
    field: str, settings: dict[str, Any], environment: str, words: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        filled(environment, **settings)
    assert refused.value.field == field and field in refused.value.message and words in refused.value.message


def test_what_the_method_does_not_support_is_refused() -> None:
    judged = spec_of()
    judged.judge_source = "def judge(): ..."
    small = spec_of()
    small.budget.env_steps = 10
    for spec, field in ((judged, "spec.judge_source"), (small, "spec.budget.env_steps")):
        full = with_defaults(spec, METHOD, default_model="openai/x", default_pool="local")
        with pytest.raises(InvalidArgument) as refused:
            METHOD.validate(full)
        assert refused.value.field == field


def test_policies_of_searches_without_a_model() -> None:
    """CMA-ES has a linear policy of one-hot observations; baselines have their library's networks."""
    frozen_lake = filled("FrozenLake-v1", search="cma_es")
    assert frozen_lake.parameters.policy == "linear" and Form.of(frozen_lake, load_card("FrozenLake-v1")).size == 68
    for search, environment, hidden, activation, squash in (
        ("sb3_dqn", "CartPole-v1", [64, 64], "relu", False),
        ("sb3_ppo", "Swimmer-v5", [64, 64], "tanh", False),
        ("sb3_sac", "MountainCarContinuous-v0", [256, 256], "relu", True),
    ):
        full = filled(environment, search=search)
        policy = Form.of(full, load_card(environment)).policy
        assert (list(policy.hidden_sizes), policy.activation, policy.squash) == (hidden, activation, squash)
        assert full.parameters.range == 0


def test_names_of_searches_are_those_of_the_api() -> None:
    """As the comment of `ParameterSpec.search` lists them."""
    assert set(SEARCHES) == {
        *("props", "props_plus", "r2po", "reptraj", "always_critic", "three_traj", "critic_only", "pure_search"),
        *("actor_second_pass", "random", "hill_climb", "cma_es"),
        *("sb3_dqn", "sb3_a2c", "sb3_ppo", "sb3_trpo", "sb3_ddpg", "sb3_td3", "sb3_sac"),
    }
