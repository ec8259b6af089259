"""What a session gets where its spec says nothing; recorded in the spec at creation."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1

TEMPLATE_MODEL = "template/v1"
"""The built-in author's name among models."""
RECORDED = "recorded/"
"""Begins the names of recorded sessions that stand for models."""
MAX_ITERATIONS = 5
PASS_THRESHOLD = 0.7
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

TRAINING_SEED_LIMIT = 1_000_000
EVALUATION_SEED = 1_000_000
CONFIRMATION_SEED = 2_000_000
"""First seeds of evaluation and confirmation: apart from each other and, below the limit, from training seeds."""


def is_language_model(model: str) -> bool:
    """Whether a provider is asked, and paid: not for the built-in author's and for recorded replies."""
    return model not in ("", TEMPLATE_MODEL) and not model.startswith(RECORDED)


def method_name(spec: v1.SessionSpec) -> str:
    """The name of a spec's method: `reward` where none is set."""
    return spec.WhichOneof("method_spec") or "reward"


def filled(spec: v1.SessionSpec, *, default_model: str, default_pool: str) -> v1.SessionSpec:
    """A copy of the spec with every default filled in."""
    full = v1.SessionSpec()
    full.CopyFrom(spec)
    full.model = full.model or default_model
    full.pool = full.pool or default_pool
    full.pass_threshold = full.pass_threshold or PASS_THRESHOLD
    full.video_judging = full.video_judging or v1.VIDEO_JUDGING_DECIDING
    if method_name(full) == "reward":
        full.max_iterations = 1 if full.reward.train_only else full.max_iterations or MAX_ITERATIONS
        _fill_reward(full.reward, environment=full.environment.removeprefix("environments/"))
    return full


def _fill_reward(reward: v1.RewardSpec, *, environment: str) -> None:
    reward.algorithm = reward.algorithm or "ppo"
    reward.backend = reward.backend or ("sb3" if reward.algorithm == "sac" else "jax")
    reward.seeds = reward.seeds or SEEDS
    reward.evaluations = reward.evaluations or EVALUATIONS
    reward.evaluation_episodes = reward.evaluation_episodes or EVALUATION_EPISODES
    reward.checkpoint_episodes = reward.checkpoint_episodes or min(CHECKPOINT_EPISODES, reward.evaluation_episodes)
    reward.steps_per_member = reward.steps_per_member or ENVIRONMENT_STEPS.get(environment, STEPS_PER_MEMBER)
    if not reward.configs:
        reward.configs.add(id=DEFAULT_CONFIG)


def members_of(spec: v1.SessionSpec) -> int:
    """How many members the first iteration of a filled spec trains."""
    return configs_of(spec) * spec.reward.seeds


def configs_of(spec: v1.SessionSpec) -> int:
    """How many configs the first iteration of a filled spec trains: variants stand beside those that were given."""
    names = {config.id for config in spec.reward.configs}
    return len(names | set(VARIANTS)) if spec.reward.config_variants else len(names)


def env_steps_per_iteration(spec: v1.SessionSpec) -> int:
    """Environment steps that the first iteration of a filled spec trains."""
    return members_of(spec) * spec.reward.steps_per_member
