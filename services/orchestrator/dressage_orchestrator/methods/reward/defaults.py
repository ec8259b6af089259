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


def filled(spec: v1.SessionSpec, *, default_model: str, default_pool: str) -> v1.SessionSpec:
    """A copy of the spec with every default filled in."""
    full = v1.SessionSpec()
    full.CopyFrom(spec)
    environment = full.environment.removeprefix("environments/")
    full.method = full.method or v1.METHOD_REWARD
    full.model = full.model or default_model
    full.pool = full.pool or default_pool
    full.algorithm = full.algorithm or "ppo"
    full.backend = full.backend or ("sb3" if full.algorithm == "sac" else "jax")
    full.max_iterations = 1 if full.train_only else full.max_iterations or MAX_ITERATIONS
    full.pass_threshold = full.pass_threshold or PASS_THRESHOLD
    full.seeds = full.seeds or SEEDS
    full.evaluations = full.evaluations or EVALUATIONS
    full.evaluation_episodes = full.evaluation_episodes or EVALUATION_EPISODES
    full.steps_per_member = full.steps_per_member or ENVIRONMENT_STEPS.get(environment, STEPS_PER_MEMBER)
    full.video_judging = full.video_judging or v1.VIDEO_JUDGING_DECIDING
    if not full.configs:
        full.configs.add(id=DEFAULT_CONFIG)
    return full


def members_of(spec: v1.SessionSpec) -> int:
    """How many members the first iteration of a filled spec trains."""
    return configs_of(spec) * spec.seeds


def configs_of(spec: v1.SessionSpec) -> int:
    """How many configs the first iteration of a filled spec trains: variants stand beside those that were given."""
    names = {config.id for config in spec.configs}
    return len(names | set(VARIANTS)) if spec.config_variants else len(names)


def env_steps_per_iteration(spec: v1.SessionSpec) -> int:
    """Environment steps that the first iteration of a filled spec trains."""
    return members_of(spec) * spec.steps_per_member
