"""Which configs an iteration trains. Pure.

The base config is trained always. With variants, a conservative and an aggressive one stand beside it; they differ in learning
rate, clip range and entropy bonus alone (with SAC in learning rate), so that all members have one shape and train as one batch.
With tuning on, the base of a revision is its parent's winner, and what a model proposes is a config of its own, to be held
against the base. With tuning off every iteration trains the same configs: nothing is inherited, nothing proposed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.defaults import VARIANTS

BASE, PROPOSED = "base", "proposed"
CONSERVATIVE, AGGRESSIVE = VARIANTS

_CLIP_RANGE = 0.2
_FACTOR = 2.0
_MAX_LEARNING_RATE = 1e-2
_MIN_ENTROPY = 0.004
_LEARNING_RATES = {
    "HalfCheetah-v5": 7e-4,
    "InvertedPendulum-v5": 1e-3,
    "Pusher-v5": 1e-3,
    "Reacher-v5": 1e-3,
    "Swimmer-v5": 6e-4,
    "Walker2d-v5": 4e-4,
}
"""Learning rates of the trainer's presets, from which variants move where a config sets none (a test compares)."""
_LEARNING_RATE = 5e-4
_SAC_LEARNING_RATE = 3e-4


def first_configs(spec: v1.SessionSpec) -> list[v1.Config]:
    """The configs of a session's first iteration, from a filled spec."""
    return _with_variants(spec, [_copy(config) for config in spec.reward.configs])


def next_configs(spec: v1.SessionSpec, parent: v1.Iteration, proposed: v1.Hyperparameters | None) -> list[v1.Config]:
    """The configs of a revision.

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
    """The config with the best judgment of an iteration; its first where none was judged."""
    configs = list(iteration.reward.configs) or list(spec.reward.configs)
    return next((config for config in configs if config.id == iteration.reward.best_config), configs[0])


def _with_variants(spec: v1.SessionSpec, configs: Sequence[v1.Config]) -> list[v1.Config]:
    """The configs, and variants of the first one where no config has their names."""
    found = list(configs)
    if not spec.reward.config_variants:
        return found
    taken = {config.id for config in found}
    for variant in (_conservative(found[0], spec), _aggressive(found[0], spec)):
        if variant.id not in taken:
            found.append(variant)
    return found


def _copy(config: v1.Config, ident: str = "") -> v1.Config:
    copied = v1.Config()
    copied.CopyFrom(config)
    copied.id = ident or config.id
    return copied


def _learning_rate(config: v1.Config, spec: v1.SessionSpec) -> float:
    if config.hyperparameters.HasField("learning_rate"):
        return config.hyperparameters.learning_rate
    if spec.reward.algorithm == "sac":
        return _SAC_LEARNING_RATE
    return _LEARNING_RATES.get(spec.environment.removeprefix("environments/"), _LEARNING_RATE)


def _conservative(base: v1.Config, spec: v1.SessionSpec) -> v1.Config:
    config = _copy(base, CONSERVATIVE)
    told = config.hyperparameters
    told.learning_rate = _learning_rate(base, spec) / _FACTOR
    if spec.reward.algorithm != "sac":
        told.clip_range = (told.clip_range if told.HasField("clip_range") else _CLIP_RANGE) / _FACTOR
    return config


def _aggressive(base: v1.Config, spec: v1.SessionSpec) -> v1.Config:
    config = _copy(base, AGGRESSIVE)
    told = config.hyperparameters
    told.learning_rate = min(_FACTOR * _learning_rate(base, spec), _MAX_LEARNING_RATE)
    if spec.reward.algorithm != "sac":  # it tunes its entropy coefficient by itself, and clips nothing
        told.clip_range = 1.5 * (told.clip_range if told.HasField("clip_range") else _CLIP_RANGE)
        told.entropy_coef = max(_FACTOR * told.entropy_coef, _MIN_ENTROPY)
    return config
