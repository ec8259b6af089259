"""The settings of the reward method: defaults, what contradicts itself, what an iteration spends. Pure."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage.limits import MAX_UPDATE_SAMPLES, MAX_UPDATE_VISITS, SAC_HYPERPARAMETERS

from dressage_orchestrator.lifecycle.method import Estimate
from dressage_orchestrator.methods.reward.durations import kind_of_run
from dressage_orchestrator.seeds import TRAINING_SEED_LIMIT

SEEDS = 3
EVALUATIONS = 4
EVALUATION_EPISODES = 10
CHECKPOINT_EPISODES = 3
STEPS_PER_MEMBER = 500_000
DEFAULT_CONFIG = "default"
VARIANTS = ("conservative", "aggressive")
"""Ids of the variants of a base config."""

ENVIRONMENT_STEPS: dict[str, int] = {
    "InvertedPendulum-v5": 60_000,
    "InvertedDoublePendulum-v5": 100_000,
    "Reacher-v5": 150_000,
    "Swimmer-v5": 350_000,
}
"""Environment steps for each member, where the preset of an environment differs from the general one."""

_TOKENS_PER_CALL = (6_000, 2_000)
_REVIEWS = 1
"""Rounds of code review that are expected of what is written."""


def fill(spec: v1.SessionSpec) -> None:
    """Fills in what is not set."""
    reward = spec.reward
    if reward.train_only:
        spec.max_iterations = 1
    reward.algorithm = reward.algorithm or "ppo"
    reward.backend = reward.backend or ("sb3" if reward.algorithm == "sac" else "jax")
    reward.seeds = reward.seeds or SEEDS
    reward.evaluations = reward.evaluations or EVALUATIONS
    reward.evaluation_episodes = reward.evaluation_episodes or EVALUATION_EPISODES
    reward.checkpoint_episodes = reward.checkpoint_episodes or min(CHECKPOINT_EPISODES, reward.evaluation_episodes)
    environment = spec.environment.removeprefix("environments/")
    reward.steps_per_member = reward.steps_per_member or ENVIRONMENT_STEPS.get(environment, STEPS_PER_MEMBER)
    if not reward.configs:
        reward.configs.add(id=DEFAULT_CONFIG)


def members_of(spec: v1.SessionSpec) -> int:
    """How many members the first iteration of a filled spec trains."""
    names = {config.id for config in spec.reward.configs}
    configs = len(names | set(VARIANTS)) if spec.reward.config_variants else len(names)
    return configs * spec.reward.seeds


def env_steps_per_iteration(spec: v1.SessionSpec) -> int:
    """Environment steps that the first iteration of a filled spec trains."""
    return members_of(spec) * spec.reward.steps_per_member


def estimate(spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
    """Two authors or one reviser, a review of each; training and evaluation of every member."""
    reward = spec.reward
    calls = 0 if reward.train_only else int(not reward.reward_source) + int(not spec.judge_source)
    calls = max(calls, 1) if spec.max_iterations > 1 else calls
    calls *= 1 + _REVIEWS
    episodes = (reward.evaluations - 1) * reward.checkpoint_episodes + reward.evaluation_episodes
    sent, received = _TOKENS_PER_CALL
    return Estimate(
        env_steps=env_steps_per_iteration(spec),
        evaluation_env_steps=members_of(spec) * episodes * episode_steps,
        model_calls=calls,
        input_tokens=calls * sent,
        output_tokens=calls * received,
        kind=kind_of_run(spec),
    )


def validate(spec: v1.SessionSpec) -> None:
    """Refuses a filled spec that contradicts itself, before anything is trained.

    :raises InvalidArgument: naming the field.
    """
    reward = spec.reward
    if reward.train_only and not reward.reward_source:
        raise InvalidArgument(field="spec.reward.reward_source", value="", expected="a reward, as train_only is set")
    ids = [config.id for config in reward.configs]
    if len(set(ids)) != len(ids):
        raise InvalidArgument(field="spec.reward.configs", value=ids, expected="configs with different ids")
    if spec.seed + reward.seeds > TRAINING_SEED_LIMIT:
        expected = f"seed + seeds of at most {TRAINING_SEED_LIMIT}, as evaluation seeds begin there"
        raise InvalidArgument(field="spec.seed", value=spec.seed, expected=expected)
    if reward.algorithm == "sac":
        _check_sac(spec)
    else:
        for index, config in enumerate(reward.configs):
            _check_sizes(f"spec.reward.configs[{index}].hyperparameters", config.hyperparameters)
    needed = env_steps_per_iteration(spec)
    if spec.budget.env_steps and spec.budget.env_steps < needed:
        expected = f"at least {needed}, one iteration's (configs × seeds × steps_per_member), or 0 for no bound"
        raise InvalidArgument(field="spec.budget.env_steps", value=spec.budget.env_steps, expected=expected)


def _check_sac(spec: v1.SessionSpec) -> None:
    """Refuses what SAC cannot do."""
    if spec.reward.backend != "sb3":
        raise InvalidArgument(field="spec.reward.algorithm", value="sac", expected="'ppo', or the backend 'sb3'")
    if load_card(spec.environment.removeprefix("environments/")).num_actions:
        expected = f"'ppo', as {spec.environment} has discrete actions"
        raise InvalidArgument(field="spec.reward.algorithm", value="sac", expected=expected)
    for index, config in enumerate(spec.reward.configs):
        for descriptor, value in config.hyperparameters.ListFields():
            if descriptor.name not in SAC_HYPERPARAMETERS:
                field = f"spec.reward.configs[{index}].hyperparameters.{descriptor.name}"
                expected = f"none, or 'ppo': sac has {', '.join(SAC_HYPERPARAMETERS)}"
                raise InvalidArgument(field=field, value=value, expected=expected)


def _check_sizes(field: str, sizes: v1.Hyperparameters) -> None:
    """Refuses sizes that are legal one by one and of which no update can be made.

    Only what is set is compared; with any preset's value for the other, neither ``num_envs`` nor ``num_steps`` is too much.

    :param field: path of the hyperparameters.
    """
    if not (sizes.HasField("num_envs") and sizes.HasField("num_steps")):
        return
    samples = sizes.num_envs * sizes.num_steps
    if samples > MAX_UPDATE_SAMPLES:
        most = MAX_UPDATE_SAMPLES // sizes.num_envs
        expected = f"at most {most} beside num_envs of {sizes.num_envs} (num_envs × num_steps ≤ {MAX_UPDATE_SAMPLES})"
        raise InvalidArgument(field=f"{field}.num_steps", value=sizes.num_steps, expected=expected)
    if samples < 2:
        expected = "at least 2 beside num_envs of 1 (num_envs × num_steps ≥ 2)"
        raise InvalidArgument(field=f"{field}.num_steps", value=sizes.num_steps, expected=expected)
    if samples * sizes.epochs > MAX_UPDATE_VISITS:
        most = MAX_UPDATE_VISITS // samples
        expected = f"at most {most} beside {samples} samples (num_envs × num_steps × epochs ≤ {MAX_UPDATE_VISITS})"
        raise InvalidArgument(field=f"{field}.epochs", value=sizes.epochs, expected=expected)
    if sizes.minibatch_size > samples:
        expected = f"at most {samples} (num_envs × num_steps)"
        raise InvalidArgument(field=f"{field}.minibatch_size", value=sizes.minibatch_size, expected=expected)
