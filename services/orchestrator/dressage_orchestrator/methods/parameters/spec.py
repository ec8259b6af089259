"""The settings of the method: defaults, contradictions, and what an iteration uses. Pure."""

from __future__ import annotations

import difflib
import math

from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.errors import InvalidArgument
from dressage.policies.sb3_baselines import BASELINES

from dressage_orchestrator.lifecycle import report
from dressage_orchestrator.lifecycle.method import Estimate
from dressage_orchestrator.lifecycle.report import TRAINING_SEED_LIMIT
from dressage_orchestrator.methods.parameters.defaults import Defaults, defaults_of
from dressage_orchestrator.methods.parameters.form import RANGES, SPREADS, Form
from dressage_orchestrator.methods.parameters.variants import (
    CONTROLS,
    CORRECTED,
    PROFILES,
    SEARCHES,
    VARIANTS,
    Variant,
)
from dressage_orchestrator.models import TEMPLATE

EPISODE_BUDGET = 4000
EPISODES = 20
REPORT_EPISODES = 100
_MAX_ITERATIONS = 1000
_POLICY_SEEDS = {"random_features": 1000, "projected_mlp": 3000}
_TOKENS_PER_CALL = (8_000, 600)


def fill(spec: v1.SessionSpec) -> None:
    """Fill in what is not set."""
    settings, card = spec.parameters, load_card(environment_of(spec))
    settings.profile = settings.profile or CORRECTED.name
    settings.search = settings.search or ("cma_es" if spec.model in ("", TEMPLATE) else "r2po")
    settings.episode_budget = settings.episode_budget or EPISODE_BUDGET
    settings.episodes = settings.episodes or EPISODES
    settings.report_episodes = settings.report_episodes or REPORT_EPISODES
    if not settings.HasField("target") and card.target is not None:
        settings.target = card.target
    _fill_search(spec, defaults_of(settings.profile, environment_of(spec), settings.search), card)
    if not spec.max_iterations:
        spec.max_iterations = _iterations(settings)


def _fill_search(spec: v1.SessionSpec, defaults: Defaults, card: EnvironmentCard) -> None:
    settings, variant = spec.parameters, VARIANTS.get(spec.parameters.search)
    # CMA-ES needs real numbers: a linear policy of one-hot observations instead of a table.
    table = card.num_observations > 0 and card.num_actions > 0 and settings.search != "cma_es"
    baseline = "mlp" if settings.search in BASELINES else ""
    settings.policy = settings.policy or baseline or defaults.policy or ("table" if table else "linear")
    if not settings.HasField("bias"):
        settings.bias = True
    if settings.search not in BASELINES:
        settings.range = settings.range or RANGES.get(settings.policy, 0.0)
    # A first step of CMA-ES is as wide as random candidates, which cover the range.
    wide = SPREADS.get(settings.policy, 1.0) if settings.search == "cma_es" else defaults.step_size
    settings.step_size = settings.step_size or wide
    settings.policy_seed = settings.policy_seed or spec.seed + _POLICY_SEEDS.get(settings.policy, 0)
    if not settings.HasField("warmup"):
        settings.warmup = defaults.warmup if variant is not None else 0
    if not settings.HasField("optimum") and defaults.optimum is not None:
        settings.optimum = defaults.optimum
    if defaults.horizon and not spec.environment_options.HasField("max_episode_steps"):
        spec.environment_options.max_episode_steps = defaults.horizon
    _fill_rule(settings, variant, defaults)


def _fill_rule(settings: v1.ParameterSpec, variant: Variant | None, defaults: Defaults) -> None:
    """Fill in when a revision is limited, and how."""
    limited = variant is not None and variant.limits_revision
    threshold = defaults.revision_threshold
    if limited and threshold is not None and not settings.HasField("revision_threshold"):
        if settings.profile == CORRECTED.name and settings.HasField("target"):
            threshold = max(threshold, settings.target)  # revisions continue until the target is reached
        settings.revision_threshold = threshold
    if not settings.revision_rule:
        applies = limited or settings.HasField("revision_threshold")
        rule = PROFILES[settings.profile].rule if applies and settings.HasField("revision_threshold") else "none"
        settings.revision_rule = rule


def _iterations(settings: v1.ParameterSpec) -> int:
    variant = VARIANTS.get(settings.search)
    if variant is None:
        return 1
    return max(1, min(_MAX_ITERATIONS, settings.episode_budget // (variant.calls * settings.episodes)))


def environment_of(spec: v1.SessionSpec) -> str:
    """Return the id of the environment."""
    return spec.environment.removeprefix("environments/")


def horizon_of(spec: v1.SessionSpec, card: EnvironmentCard) -> int:
    """Return the maximum number of steps of an episode."""
    return int(spec.environment_options.max_episode_steps or card.max_episode_steps)


def candidates_of(settings: v1.ParameterSpec) -> int:
    """Return the number of candidates that the episode budget of a filled spec allows."""
    return int(settings.episode_budget // settings.episodes)


def least_env_steps(spec: v1.SessionSpec, *, episode_steps: int) -> int:
    """Return the environment steps that one candidate of a filled spec, and the random ones before it, may need."""
    return (spec.parameters.warmup + spec.parameters.episodes) * episode_steps


def estimate(spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
    """Return the estimate of an iteration: its calls, and episodes that all last as long as they can."""
    settings, variant = spec.parameters, VARIANTS.get(spec.parameters.search)
    calls = variant.calls if variant is not None else 0
    candidates = calls or candidates_of(settings)
    prompt, reply = _TOKENS_PER_CALL
    return Estimate(
        env_steps=candidates * settings.episodes * episode_steps,
        evaluation_env_steps=0,
        model_calls=calls,
        input_tokens=calls * prompt,
        output_tokens=calls * reply,
        kind=kind_of_run(spec),
    )


def kind_of_run(spec: v1.SessionSpec) -> str:
    """Return the name under which equally fast searches are counted."""
    return f"parameters {environment_of(spec)} {spec.parameters.search}"


def target_of(spec: v1.SessionSpec, card: EnvironmentCard) -> float:
    """Return the mean return required to succeed.

    :raises InvalidArgument: when there is none.
    """
    settings = spec.parameters
    target = settings.target if settings.HasField("target") else None
    return report.target_of(spec, target, card_target=card.target)


# Contradictions.


def validate(spec: v1.SessionSpec) -> None:
    """Reject a filled spec that contradicts itself or its environment.

    :raises InvalidArgument: naming the field and the remedy.
    """
    card = load_card(environment_of(spec))
    _check_environment(spec, card)
    _check_search(spec, card)
    _check_numbers(spec, card)
    _check_policy(spec.parameters, card)
    Form.of(spec, card)
    _check_rule(spec.parameters)
    _check_budget(spec, card)


def _refuse(field: str, value: object, expected: str) -> InvalidArgument:
    return InvalidArgument(field=f"spec.parameters.{field}", value=value, expected=expected)


def _check_environment(spec: v1.SessionSpec, card: EnvironmentCard) -> None:
    if "parameters" not in card.methods:
        expected = "an environment that supports the method parameters; `dressage envs list` shows them"
        raise InvalidArgument(field="spec.environment", value=card.id, expected=expected)
    if spec.judge_source:
        expected = "no judge, because the method parameters scores policies by their mean return"
        raise InvalidArgument(field="spec.judge_source", value=spec.judge_source, expected=expected)


def _check_search(spec: v1.SessionSpec, card: EnvironmentCard) -> None:
    search = spec.parameters.search
    if search not in SEARCHES:
        near = difflib.get_close_matches(search, SEARCHES, n=3, cutoff=0.4)
        hint = f" (near matches: {', '.join(near)})" if near else ""
        raise _refuse("search", search, f"one of {', '.join(SEARCHES)}{hint}")
    if card.pack and (search not in VARIANTS or spec.model in ("", TEMPLATE)):
        expected = (
            f"a search with a model ({', '.join(VARIANTS)}), because {card.id} plays in the environment pack {card.pack}, in "
            "which no other search runs. Choose a model, or use the method code"
        )
        raise _refuse("search", search, expected)
    if search in VARIANTS and spec.model in ("", TEMPLATE):
        expected = (
            f"a search without a model ({', '.join(CONTROLS)}), because no language model is configured. Set the key "
            "of a provider, or choose a model"
        )
        raise _refuse("search", search, expected)
    space = "discrete" if card.num_actions else "continuous"
    if search in BASELINES and not getattr(BASELINES[search], space):
        fitting = [name for name, baseline in BASELINES.items() if getattr(baseline, space)]
        raise _refuse("search", search, f"one of {', '.join(fitting)}, because {card.id} has {space} actions")


def _check_numbers(spec: v1.SessionSpec, card: EnvironmentCard) -> None:
    settings = spec.parameters
    target_of(spec, card)
    for name in ("target", "optimum", "revision_threshold"):
        if settings.HasField(name) and not math.isfinite(getattr(settings, name)):
            raise _refuse(name, getattr(settings, name), "a finite mean return")
    if spec.seed >= TRAINING_SEED_LIMIT:
        expected = f"less than {TRAINING_SEED_LIMIT}, as evaluation seeds begin there"
        raise InvalidArgument(field="spec.seed", value=spec.seed, expected=expected)
    calls = VARIANTS[settings.search].calls if settings.search in VARIANTS else 1
    if settings.episode_budget < calls * settings.episodes:
        expected = f"at least {calls * settings.episodes}, the episodes of one iteration (setting episode_budget)"
        raise _refuse("episode_budget", settings.episode_budget, expected)


def _check_policy(settings: v1.ParameterSpec, card: EnvironmentCard) -> None:
    if settings.policy == "table" and not card.num_observations:
        expected = f"linear, random_features, projected_mlp or mlp, because {card.id} has no discrete observations"
        raise _refuse("policy", settings.policy, expected)
    if settings.policy == "table" and not card.num_actions:
        raise _refuse("policy", settings.policy, f"linear or mlp, because {card.id} has continuous actions")
    if settings.policy == "table" and settings.search == "cma_es":
        raise _refuse(
            "policy", settings.policy, "linear, or hill_climb as the search, because cma_es needs real numbers"
        )
    if not settings.bias and settings.policy != "linear":
        raise _refuse("bias", settings.bias, f"true, because only a linear policy can omit it, not {settings.policy}")
    if settings.search in BASELINES and settings.policy != "mlp":
        raise _refuse("policy", settings.policy, f"mlp, or none, because {settings.search} trains a network")


def _check_rule(settings: v1.ParameterSpec) -> None:
    if settings.revision_rule == "none":
        return
    variant = VARIANTS.get(settings.search)
    if variant is None or variant.second != "critic":
        critics = [name for name, entry in VARIANTS.items() if entry.second == "critic"]
        expected = f"none, because {settings.search} has no critic; searches with one: {', '.join(critics)}"
        raise _refuse("revision_rule", settings.revision_rule, expected)
    if not settings.HasField("revision_threshold"):
        expected = f"a mean return, because the revision rule is {settings.revision_rule} (setting revision_threshold)"
        raise _refuse("revision_threshold", None, expected)


def _check_budget(spec: v1.SessionSpec, card: EnvironmentCard) -> None:
    needed = least_env_steps(spec, episode_steps=horizon_of(spec, card))
    if spec.budget.env_steps and spec.budget.env_steps < needed:
        expected = f"at least {needed}, those of one candidate and of the warm-up, or 0 for no limit"
        raise InvalidArgument(field="spec.budget.env_steps", value=spec.budget.env_steps, expected=expected)
