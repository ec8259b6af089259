"""Refuses a training whose replay buffers do not fit before it begins.

The server refuses it when the session is created. It does not know of the members that a reviser adds, or of a machine that has
less memory than its pool states.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressage.errors import ResourceExhausted
from dressage.training.replay_memory import ReplayUse, excess
from dressage.training.sac import SacHyperparameters

from dressage_trainer.backends.group import MemberSetup
from dressage_trainer.ppo.members import MemberSpec


def check_memory(setup: MemberSetup, members: Sequence[MemberSpec]) -> None:
    """Refuse a run whose replay buffers would outgrow the learner's memory, or a checkpoint.

    :raises ResourceExhausted: with the transitions that fit.
    """
    spec, card = setup.spec, setup.card
    use = ReplayUse(
        [_settings(member) for member in members],
        observation_size=max(member.hyperparameters.inputs(card.observation_size) for member in members),
        action_size=card.action_size,
        steps=spec.last_step,
        backend=spec.backend,
    )
    problem = excess(use, memory_bytes=spec.memory_bytes, checkpoint_bytes=spec.checkpoint_bytes)
    if problem:
        raise ResourceExhausted(f"replay_size: {problem}", reason="REPLAY_TOO_LARGE")


def _settings(member: MemberSpec) -> SacHyperparameters:
    assert isinstance(member.hyperparameters, SacHyperparameters)
    return member.hyperparameters
