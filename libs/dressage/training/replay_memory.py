"""Whether the replay buffers of a training fit: for the server before a session exists, and for the learner before it begins.

They fill up hours later, and grow with the number of members, so that a training must not find it out by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressage.training.sac import SacHyperparameters, transition_bytes

GIB = 2**30

BESIDES = 3 * GIB // 4
"""Memory that Python, a learning framework and the simulator take: 0.55 GiB once torch is imported."""


@dataclass(frozen=True)
class ReplayUse:
    """The replay buffers of one training.

    :param members: hyperparameters of each member.
    :param observation_size: numbers of an observation.
    :param action_size: numbers of an action.
    :param steps: largest number of environment steps of a member.
    :param backend: ``jax`` or ``sb3``, which trains members one after another.
    """

    members: Sequence[SacHyperparameters]
    observation_size: int
    action_size: int
    steps: int
    backend: str = "jax"

    @property
    def transitions(self) -> list[int]:
        """Transitions of each buffer once it is full, or the training at its end."""
        return [member.buffer_size(self.steps) for member in self.members]

    @property
    def copies(self) -> float:
        """Number of copies of every buffer at the same time, the buffer itself included.

        There are two while a checkpoint is read. The JAX backend copies a buffer that the training overwrites for each
        snapshot, of which one may be in writing. Stable-Baselines3's keeps a copy of each buffer for checkpoints, and of one
        member the previous copy until a new one is complete.
        """
        if self.backend == "sb3":
            return 2.0 + 1.0 / len(self.members)
        return 2.0 if min(self.transitions) > self.steps else 3.0


def excess(use: ReplayUse, *, memory_bytes: int, checkpoint_bytes: int) -> str:
    """Return what is too large, and what fits, as the end of a message; empty if all buffers fit.

    :param memory_bytes: memory of the learner; 0: unknown.
    :param checkpoint_bytes: largest size of a checkpoint's file; 0: unknown.
    """
    transitions, count = use.transitions, len(use.members)
    transition = transition_bytes(use.observation_size, use.action_size)
    limits = [("take", max(0, memory_bytes - BESIDES), use.copies)] if memory_bytes else []
    limits += [("are in a checkpoint of", checkpoint_bytes, 1.0)] if checkpoint_bytes else []
    if not limits:
        return ""
    # The message names the limit that allows the least, so that what it advises fits both.
    does, limit, factor = min(limits, key=lambda entry: entry[1] / entry[2])
    needed = sum(transitions) * transition * factor
    if needed <= limit:
        return ""
    fit = int(limit / (factor * transition * count))
    steps = fit - max(member.report_steps for member in use.members)
    remedy = f"Set replay_size to at most {fit:,}, train at most {steps:,} steps" if steps > 0 else "Train"
    return (
        f"too large for {count} members (the replay buffers {does} {needed / GIB:.1f} GiB once {max(transitions):,} "
        f"transitions are in each); expected at most {limit / GIB:.1f} GiB. {remedy}{' or' if steps > 0 else ''} fewer members."
    )
