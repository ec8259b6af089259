"""The settings of the reward method: defaults, what contradicts itself, what an iteration spends. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage.contracts.footage import Footage
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage.training import sac
from dressage.training.hyperparameters import STEP_FACTORS, Hyperparameters, check_sizes
from dressage.training.measured import MeasuredSession, measured_session, unlikely_session
from dressage.training.preset import load_preset

from dressage_orchestrator.lifecycle.method import Estimate, Load
from dressage_orchestrator.lifecycle.report import TRAINING_SEED_LIMIT
from dressage_orchestrator.methods.reward.course import PATIENCE
from dressage_orchestrator.methods.reward.estimates import kind_of_run, load_of, model_calls
from dressage_orchestrator.models import is_language_model, model_of

SEEDS = 3
EVALUATIONS = 4
EVALUATIONS_TO_STOP = 8
"""Evaluations of a training that may end early: it ends at one of them."""
MOST_FACTOR = round(STEP_FACTORS[1])
"""Largest length of a training that continues while it improves, as a factor of the preset's: what a reviser may ask for."""
EVALUATION_EPISODES = 10
CHECKPOINT_EPISODES = 3
DEFAULT_CONFIG = "default"
VARIANTS = ("conservative", "aggressive")
"""Ids of the variants of a base config."""

_OPTIONS_OF_AUTHOR = ("max_episode_steps", "terminate_when_unhealthy")


def fill(spec: v1.SessionSpec) -> None:
    """Fill in what is not set."""
    reward = spec.reward
    if reward.train_only:
        spec.max_iterations = 1
    reward.algorithm = reward.algorithm or "ppo"
    reward.backend = reward.backend or "jax"
    reward.seeds = reward.seeds or SEEDS
    configs = len(reward.configs) + (len(VARIANTS) if reward.config_variants else 0)
    stops = may_stop_early(spec, configs or 1)
    reward.evaluations = reward.evaluations or (EVALUATIONS_TO_STOP if stops else EVALUATIONS)
    reward.evaluation_episodes = reward.evaluation_episodes or EVALUATION_EPISODES
    reward.checkpoint_episodes = reward.checkpoint_episodes or min(CHECKPOINT_EPISODES, reward.evaluation_episodes)
    environment = spec.environment.removeprefix("environments/")
    _fill_steps(reward, load_preset(environment).steps_per_member, by_progress=stops)
    reward.patience = reward.patience or PATIENCE
    if reward.from_parent == v1.FROM_PARENT_UNSPECIFIED:
        reward.from_parent = v1.FROM_PARENT_AUTO
    if not reward.configs:
        reward.configs.add(id=DEFAULT_CONFIG)
    if not reward.HasField("tune_hyperparameters"):
        reward.tune_hyperparameters = is_language_model(model_of(spec, "reviser").model)


def _fill_steps(reward: v1.RewardSpec, preset: int, *, by_progress: bool) -> None:
    """Fill in the expected and the largest length of a training.

    :param by_progress: whether judgments decide when it ends.
    """
    if not by_progress:  # one number is the length
        reward.steps_per_member = reward.steps_per_member or reward.max_steps_per_member or preset
        reward.max_steps_per_member = reward.steps_per_member
        return
    most = reward.max_steps_per_member
    expected = reward.steps_per_member or (min(preset, most) if most else preset)
    reward.max_steps_per_member = most or (expected if reward.steps_per_member else MOST_FACTOR * preset)
    reward.steps_per_member = expected


def most_steps(spec: v1.SessionSpec, iteration: v1.Iteration, *, affordable: int) -> int:
    """Return the largest number of environment steps of each member of an iteration: its expected steps, or more.

    Marks closer than an update share an evaluation, so that a decision at each is not possible: the length is then fixed.

    :param affordable: largest number for which the budget suffices; 0: no limit.
    """
    reward = spec.reward
    expected = iteration.reward.steps_per_member or reward.steps_per_member
    if not may_stop_early(spec, len(iteration.reward.configs)):
        return expected
    most = max(expected, reward.max_steps_per_member)
    if affordable:
        most = min(most, affordable)
    if expected // reward.evaluations < max(update_steps(spec, config) for config in iteration.reward.configs):
        return expected
    return max(expected, most)


def continues(spec: v1.SessionSpec) -> bool:
    """Whether a training of the spec's backend and algorithm can continue from a policy."""
    return spec.reward.backend == "jax" and spec.reward.algorithm == "ppo"


def update_steps(spec: v1.SessionSpec, config: v1.Config) -> int:
    """Return the environment steps of a member between two of its updates."""
    if spec.reward.algorithm == "sac":
        return sac_hyperparameters(spec, config).report_steps
    return hyperparameters(spec, config).batch_size


def hyperparameters(spec: v1.SessionSpec, config: v1.Config) -> Hyperparameters:
    """Return what PPO trains a config with: the environment's preset, overridden."""
    base = load_preset(spec.environment.removeprefix("environments/")).ppo
    return Hyperparameters.for_run(_values(config.hyperparameters), base=base)


def sac_hyperparameters(spec: v1.SessionSpec, config: v1.Config) -> sac.SacHyperparameters:
    """Return what SAC trains a config with: the environment's preset, overridden."""
    base = load_preset(spec.environment.removeprefix("environments/")).sac
    return sac.complete(_values(config.hyperparameters), base=base)


def _values(hyperparameters: v1.Hyperparameters) -> dict[str, Any]:
    """Return the hyperparameters that are set, by name."""
    return {
        descriptor.name: list(value) if descriptor.name == "hidden_sizes" else value
        for descriptor, value in hyperparameters.ListFields()
    }


def has_code_judge(spec: v1.SessionSpec) -> bool:
    """Whether code judges the session's rollouts."""
    return not spec.reward.train_only and spec.video_judging != v1.VIDEO_JUDGING_ONLY


def judges_checkpoints(spec: v1.SessionSpec) -> bool:
    """Whether code judges the checkpoints of a training while it runs."""
    return has_code_judge(spec) and not spec.reward.judge_last_checkpoint_only


def may_stop_early(spec: v1.SessionSpec, configs: int) -> bool:
    """Whether a training may end early: its checkpoints are judged, and it has no other config to be compared with.

    :param configs: number of configs that the iteration trains.
    """
    enabled = spec.reward.early_stop if spec.reward.HasField("early_stop") else True
    return enabled and configs == 1 and judges_checkpoints(spec)


def members_of(spec: v1.SessionSpec) -> int:
    """Return the number of members of a filled spec's first iteration."""
    names = {config.id for config in spec.reward.configs}
    configs = len(names | set(VARIANTS)) if spec.reward.config_variants else len(names)
    return configs * spec.reward.seeds


def env_steps_per_iteration(spec: v1.SessionSpec) -> int:
    """Return the environment steps of a filled spec's first iteration."""
    return members_of(spec) * spec.reward.steps_per_member


def estimate(spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
    """Return the estimate of an iteration: model calls by role, training and evaluation of every member."""
    reward = spec.reward
    episodes = (reward.evaluations - 1) * reward.checkpoint_episodes + reward.evaluation_episodes
    measured = _comparable_session(spec)
    return Estimate(
        most_env_steps=members_of(spec) * reward.max_steps_per_member,
        measured_env_steps=reward.seeds * measured.steps if measured else 0,
        measured_core_seconds=measured.core_seconds * reward.seeds / measured.seeds if measured else 0.0,
        measured=measured.text() if measured else "",
        env_steps=env_steps_per_iteration(spec),
        evaluation_env_steps=members_of(spec) * episodes * episode_steps,
        kind=kind_of_run(spec),
        load=_load(spec),
        calls=model_calls(spec),
        options_of_author=_options_of_author(spec),
    )


def _load(spec: v1.SessionSpec) -> Load:
    """Return the load of the first iteration. Variants of a config have its number of environments."""
    environment, configs = spec.environment.removeprefix("environments/"), spec.reward.configs
    places = range(members_of(spec) // spec.reward.seeds)
    hyperparameters = [configs[min(place, len(configs) - 1)].hyperparameters for place in places]
    return load_of(environment, hyperparameters * spec.reward.seeds, spec.reward.steps_per_member)


def _comparable_session(spec: v1.SessionSpec) -> MeasuredSession | None:
    """Return the measured session of the intent's class, if the spec trains as that did: until it passes."""
    reward, environment = spec.reward, spec.environment.removeprefix("environments/")
    session = measured_session(environment, spec.intent)
    if session is None or not continues(spec) or not may_stop_early(spec, len(reward.configs)):
        return None
    if reward.config_variants or reward.reward_source or reward.max_steps_per_member < session.steps:
        return None
    return session


def note(spec: v1.SessionSpec) -> str:
    """Return that most measured sessions of the intent's class did not pass; empty if there are none or more passed."""
    session = unlikely_session(spec.environment.removeprefix("environments/"), spec.intent)
    if session is None or spec.reward.reward_source:
        return ""
    return f"most measured sessions of this kind did not pass: {session.text()} ({session.source})"


def _options_of_author(spec: v1.SessionSpec) -> tuple[str, ...]:
    """Return the options of the environment that the author of the first reward may ask for."""
    if spec.reward.reward_source or not is_language_model(model_of(spec, "reward_author").model):
        return ()
    card = load_card(spec.environment.removeprefix("environments/"))
    chosen = {field.name for field, _ in spec.environment_options.ListFields()}
    return tuple(name for name in _OPTIONS_OF_AUTHOR if name in card.options and name not in chosen)


def validate(spec: v1.SessionSpec) -> None:
    """Refuse a filled spec that contradicts itself, before anything is trained.

    :raises InvalidArgument: naming the field.
    """
    _check_environment(spec)
    _check_video(spec)
    reward = spec.reward
    if reward.train_only and not reward.reward_source:
        raise InvalidArgument(field="spec.reward.reward_source", value="", expected="a reward, as train_only is set")
    ids = [config.id for config in reward.configs]
    if len(set(ids)) != len(ids):
        raise InvalidArgument(field="spec.reward.configs", value=ids, expected="configs with different ids")
    if spec.seed + reward.seeds > TRAINING_SEED_LIMIT:
        expected = f"seed + seeds of at most {TRAINING_SEED_LIMIT}, as evaluation seeds begin there"
        raise InvalidArgument(field="spec.seed", value=spec.seed, expected=expected)
    _check_checkpoints(spec)
    _check_lengths(spec)
    if reward.algorithm == "sac":
        _check_sac(spec)
    for index, config in enumerate(reward.configs):
        _check_hyperparameters(spec, config, f"spec.reward.configs[{index}].hyperparameters")
    needed = env_steps_per_iteration(spec)
    if spec.budget.env_steps and spec.budget.env_steps < needed:
        expected = f"at least {needed}, one iteration's (configs × seeds × steps), or 0 for no bound"
        raise InvalidArgument(field="spec.budget.env_steps", value=spec.budget.env_steps, expected=expected)


def chooses_checkpoints(spec: v1.SessionSpec) -> bool:
    """Whether an earlier checkpoint may replace the last one: where all are judged, or a training has no judge."""
    comparable = judges_checkpoints(spec) or spec.reward.train_only
    return comparable and spec.reward.checkpoint != v1.CHECKPOINT_CHOICE_LAST


def _check_checkpoints(spec: v1.SessionSpec) -> None:
    """Refuse what depends on judgments of checkpoints where there are none."""
    reward = spec.reward
    judges = judges_checkpoints(spec)
    if reward.early_stop and (not judges or members_of(spec) > reward.seeds):
        problem = "a training ends early by the judgments of its checkpoints, and not where configs are compared"
        expected = "false, or one config and a code judge of all checkpoints"
        raise InvalidArgument(field="spec.reward.early_stop", problem=problem, value=True, expected=expected)
    if reward.checkpoint == v1.CHECKPOINT_CHOICE_BEST and not chooses_checkpoints(spec):
        expected = "last, or a code judge of all checkpoints"
        raise InvalidArgument(field="spec.reward.checkpoint", value="best", expected=expected)


def _check_lengths(spec: v1.SessionSpec) -> None:
    """Refuse a bound below the expected steps, and a continuation that the backend cannot do."""
    reward = spec.reward
    if reward.max_steps_per_member < reward.steps_per_member:
        expected = f"at least steps_per_member, {reward.steps_per_member}"
        raise InvalidArgument(
            field="spec.reward.max_steps_per_member", value=reward.max_steps_per_member, expected=expected
        )
    if reward.from_parent == v1.FROM_PARENT_ALWAYS and not continues(spec):
        problem = f"{reward.algorithm} of the backend {reward.backend!r} cannot continue from a policy"
        raise InvalidArgument(
            field="spec.reward.from_parent", problem=problem, value="always", expected="auto or never"
        )


def _check_environment(spec: v1.SessionSpec) -> None:
    """Refuse an environment that the method cannot train in."""
    card = load_card(spec.environment.removeprefix("environments/"))
    if "reward" not in card.methods:
        raise InvalidArgument(
            field="spec.environment",
            problem="not supported by the method reward",
            value=card.id,
            expected="an environment whose card lists the method",
            remedy=f"Use {' or '.join(f'`--method {method}`' for method in card.methods)} with {card.id}.",
        )


def _check_video(spec: v1.SessionSpec) -> None:
    """Refuse a window of too many frames, an unknown camera, and video alone without a vision model or with a judge."""
    Footage.of(spec.video_options, field="spec.video_options")
    _check_camera(spec)
    if spec.video_judging != v1.VIDEO_JUDGING_ONLY:
        return
    field = "spec.video_judging"
    if not is_language_model(spec.model):
        raise InvalidArgument(
            field=field, value="only", expected=f"a session with a vision model, because {spec.model} sees no video"
        )
    if spec.judge_source:
        raise InvalidArgument(field=field, value="only", expected="deciding or all, because the session has a judge")


def _check_camera(spec: v1.SessionSpec) -> None:
    """Refuse a camera that the environment's model does not have; the card lists them, so that no simulator is needed."""
    camera = spec.video_options.camera
    card = load_card(spec.environment.removeprefix("environments/"))
    if not camera or camera in card.cameras:
        return
    near = difflib.get_close_matches(camera, card.cameras, n=1)
    raise InvalidArgument(
        field="spec.video_options.camera",
        problem=f"{card.id} has no such camera",
        value=camera,
        expected=f"{' or '.join(card.cameras) if card.cameras else 'none'}, or empty for a camera that follows the robot",
        remedy=f"Did you mean {near[0]}?" if near else "",
    )


def _check_sac(spec: v1.SessionSpec) -> None:
    """Refuse what SAC cannot do."""
    if load_card(spec.environment.removeprefix("environments/")).num_actions:
        expected = f"'ppo', as {spec.environment} has discrete actions"
        raise InvalidArgument(field="spec.reward.algorithm", value="sac", expected=expected)


def _check_warmup(hyperparameters: sac.SacHyperparameters, steps: int) -> None:
    """Refuse a training that ends before its first gradient step."""
    if hyperparameters.warmup_steps >= steps:
        problem = "actions are random until the training ends"
        expected = f"less than steps_per_member, {steps}"
        raise InvalidArgument(
            field="warmup_steps", problem=problem, value=hyperparameters.warmup_steps, expected=expected
        )


def _check_ppo(hyperparameters: dict[str, Any]) -> None:
    """Refuse hyperparameters that only SAC has, and sizes that contradict each other."""
    for name, value in hyperparameters.items():
        if name in sac.OWN:
            raise InvalidArgument(field=name, value=value, expected="no value, or the algorithm 'sac'")
    check_sizes(hyperparameters)


def _check_hyperparameters(spec: v1.SessionSpec, config: v1.Config, path: str) -> None:
    """Refuse values that are legal one by one and with which the algorithm cannot train."""
    try:
        if spec.reward.algorithm == "sac":
            _check_warmup(sac_hyperparameters(spec, config), spec.reward.steps_per_member)
        else:
            _check_ppo(_values(config.hyperparameters))
    except InvalidArgument as error:
        raise error.rename(lambda field: f"{path}.{field}") from None
