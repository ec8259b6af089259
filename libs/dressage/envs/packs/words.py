"""The part of the card of a pack's environment that the environment cannot report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """The part of a card that no environment can report.

    :param observation: name, unit and meaning of each number of the flat observation, in order.
    :param action: name, unit and meaning of each component of the action.
    :param target: mean return from which it counts as solved; None: searches need a target from the caller.
    """

    title: str
    description: str
    observation: Sequence[tuple[str, str, str]]
    action: Sequence[tuple[str, str, str]]
    stock_reward: str
    termination: str
    intents: tuple[str, ...]
    time_step: float
    target: float | None
