"""Refuses replay buffers that a trainer cannot hold, when a session is created.

The numbers of observations and actions, members and steps are known then. The learner checks again: a reviser may add a config.
"""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.sandbox.machine import Machine
from dressage.training.replay_memory import ReplayUse, excess

from dressage_orchestrator.methods.reward.configs import first_configs
from dressage_orchestrator.methods.reward.spec import sac_hyperparameters


def check(spec: v1.SessionSpec, machine: Machine) -> None:
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
