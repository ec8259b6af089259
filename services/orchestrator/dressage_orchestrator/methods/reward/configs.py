"""Which configs an iteration trains. Pure.

The base config is always trained. With variants, a conservative and an aggressive config train as well; they differ only in
learning rate, clip range and entropy bonus (with SAC in learning rate), so that all members have one shape and train as
one batch. With tuning on, the base of a revision is its parent's winner, and a model's proposal is a config of its own,
which is compared with the base. With tuning off every iteration trains the same configs: nothing is inherited, nothing
proposed.

Replay buffers that a trainer cannot hold are refused when a session is created, since the numbers of observations and actions,
members and steps are known then. The learner checks again: a reviser may add a config.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.sandbox.machine import Machine
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import load_preset
from dressage.training.replay_memory import ReplayUse, excess

from dressage_orchestrator.methods.reward.spec import VARIANTS, sac_hyperparameters

BASE, PROPOSED = "base", "proposed"
CONSERVATIVE, AGGRESSIVE = VARIANTS

_FACTOR = 2.0
_MAX_LEARNING_RATE = 1e-2
_MIN_ENTROPY = 0.004


def first_configs(spec: v1.SessionSpec) -> list[v1.Config]:
    """Return the configs of a session's first iteration, from a filled spec."""
    return _with_variants(spec, [_copy(config) for config in spec.reward.configs])


def next_configs(spec: v1.SessionSpec, parent: v1.Iteration, proposed: v1.Hyperparameters | None) -> list[v1.Config]:
    """Return the configs of a revision.

    :param parent: the iteration that it starts from.
    :param proposed: the model's changes to the parent's winner; None or empty: none.
    """
    if not spec.reward.tune_hyperparameters:
        return first_configs(spec)
    winner = winner_of(parent, spec)
    base = v1.Config(id=BASE, hyperparameters=winner.hyperparameters)
    if not spec.reward.config_variants:
        base.id = winner.id if winner.id != PROPOSED else BASE
    configs = _with_variants(spec, [base])
    if proposed is not None and proposed.ByteSize():
        config = v1.Config(id=PROPOSED, hyperparameters=base.hyperparameters)
        if proposed.hidden_sizes:  # repeated fields are appended by MergeFrom; a proposal replaces them
            config.hyperparameters.ClearField("hidden_sizes")
        config.hyperparameters.MergeFrom(proposed)
        if config.hyperparameters != base.hyperparameters:
            configs.append(config)
    return configs


def winner_of(iteration: v1.Iteration, spec: v1.SessionSpec) -> v1.Config:
    """Return the config with the best judgment of an iteration; its first where none was judged."""
    configs = list(iteration.reward.configs) or list(spec.reward.configs)
    return next((config for config in configs if config.id == iteration.reward.best_config), configs[0])


def _with_variants(spec: v1.SessionSpec, configs: Sequence[v1.Config]) -> list[v1.Config]:
    """Return the configs, and variants of the first one where no config has their names."""
    if not spec.reward.config_variants:
        return list(configs)
    ids = {config.id for config in configs}
    variants = (_conservative(configs[0], spec), _aggressive(configs[0], spec))
    return [*configs, *(variant for variant in variants if variant.id not in ids)]


def _copy(config: v1.Config, ident: str = "") -> v1.Config:
    copied = v1.Config()
    copied.CopyFrom(config)
    copied.id = ident or config.id
    return copied


def _defaults(spec: v1.SessionSpec) -> Hyperparameters:
    """Return the values that a config trains with where it sets none."""
    preset = load_preset(spec.environment.removeprefix("environments/"))
    return preset.sac if spec.reward.algorithm == "sac" else preset.ppo


def _learning_rate(config: v1.Config, spec: v1.SessionSpec) -> float:
    values = config.hyperparameters
    return values.learning_rate if values.HasField("learning_rate") else _defaults(spec).learning_rate


def _clip_range(config: v1.Config, spec: v1.SessionSpec) -> float:
    values = config.hyperparameters
    return values.clip_range if values.HasField("clip_range") else _defaults(spec).clip_range


def _conservative(base: v1.Config, spec: v1.SessionSpec) -> v1.Config:
    config = _copy(base, CONSERVATIVE)
    changed = config.hyperparameters
    changed.learning_rate = _learning_rate(base, spec) / _FACTOR
    if spec.reward.algorithm != "sac":
        changed.clip_range = _clip_range(base, spec) / _FACTOR
    return config


def _aggressive(base: v1.Config, spec: v1.SessionSpec) -> v1.Config:
    config = _copy(base, AGGRESSIVE)
    changed = config.hyperparameters
    changed.learning_rate = min(_FACTOR * _learning_rate(base, spec), _MAX_LEARNING_RATE)
    if spec.reward.algorithm != "sac":  # SAC tunes its entropy coefficient by itself, and clips nothing
        changed.clip_range = 1.5 * _clip_range(base, spec)
        changed.entropy_coef = max(_FACTOR * changed.entropy_coef, _MIN_ENTROPY)
    return config


def check_replay_memory(spec: v1.SessionSpec, machine: Machine) -> None:
    """Refuse the first training of a filled spec if its replay buffers outgrow the learner's memory or a checkpoint.

    :param machine: memory and scratch space of a trainer.
    :raises InvalidArgument: with the reason REPLAY_TOO_LARGE, naming the config with the largest buffer and what fits.
    """
    reward = spec.reward
    if reward.algorithm != "sac":
        return
    card = load_card(spec.environment.removeprefix("environments/"))
    configs = [sac_hyperparameters(spec, config) for config in first_configs(spec)]
    use = ReplayUse(
        [config for config in configs for _ in range(reward.seeds)],
        observation_size=max(config.inputs(card.observation_size) for config in configs),
        action_size=card.action_size,
        steps=reward.max_steps_per_member,
        backend=reward.backend,
    )
    limits = machine.fit(LEARNER_LIMITS)
    problem = excess(use, memory_bytes=limits.memory_bytes, checkpoint_bytes=limits.file_bytes)
    if not problem:
        return
    sizes = [config.replay_size for config in configs[: len(reward.configs)]]  # a variant has its base's
    field = f"spec.reward.configs[{sizes.index(max(sizes))}].hyperparameters.replay_size"
    raise InvalidArgument(f"{field}: {problem}", field=field, reason="REPLAY_TOO_LARGE")
