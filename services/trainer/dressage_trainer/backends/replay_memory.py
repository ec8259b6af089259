"""Whether the replay buffers of a run fit, checked before it begins: they fill up hours later."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.errors import ResourceExhausted
from dressage.sandbox.limits import GIB
from dressage.training.sac import SacHyperparameters, transition_bytes

from dressage_trainer.backends.group import MemberSetup
from dressage_trainer.ppo.members import MemberSpec

_BESIDES = 3 * GIB // 4
"""Memory that Python, a learning framework and the simulator take: 0.55 GiB once torch is imported."""


def check_memory(setup: MemberSetup, members: Sequence[MemberSpec], *, copies: float | None = None) -> None:
    """Refuse a run whose replay buffers would outgrow the learner's memory, or a checkpoint.

    :param copies: of every buffer at the same time, the buffer itself included. None: as `sac.ReplayBuffer` makes them. There
        are two while a checkpoint is read; a buffer that the training overwrites is copied for each snapshot, of which one may
        be in writing.
    :raises ResourceExhausted: with the transitions that fit.
    """
    spec, card = setup.spec, setup.card
    kept = [_settings(member).buffer_size(spec.last_step) for member in members]
    transition = transition_bytes(card.observation_size, card.action_size)
    needed = sum(kept) * transition
    if copies is None:
        copies = 2.0 if min(kept) > spec.last_step else 3.0
    for use, limit, factor in (
        ("take", spec.memory_bytes - _BESIDES if spec.memory_bytes else 0, copies),
        ("are in a checkpoint of", spec.checkpoint_bytes, 1.0),
    ):
        if not limit or needed * factor <= limit:
            continue
        fit = int(max(0, limit) / (factor * transition * len(members)))
        steps = fit - max(_settings(member).report_steps for member in members)
        remedy = f"Set replay_size to at most {fit:,}, train at most {steps:,} steps" if steps > 0 else "Train"
        raise ResourceExhausted(
            f"replay_size: too large for {len(members)} members (the replay buffers {use} "
            f"{needed * factor / GIB:.1f} GiB once {max(kept):,} transitions are in each); "
            f"expected at most {max(limit, 0) / GIB:.1f} GiB. {remedy}{' or' if steps > 0 else ''} fewer members.",
            reason="REPLAY_TOO_LARGE",
        )


def _settings(member: MemberSpec) -> SacHyperparameters:
    assert isinstance(member.hyperparameters, SacHyperparameters)
    return member.hyperparameters
