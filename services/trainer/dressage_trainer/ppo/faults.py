"""Members that cannot go on, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Stop:
    """Why a member was stopped."""

    member: int
    step: int
    """The member's environment steps at that moment."""
    cause: str
    """"reward", "observation" or "gradient"."""
    term: str
    """The reward term that was not finite; empty for other causes, and where it was what became of finite rewards."""
    message: str


@dataclass
class Faults:
    """Which members are stopped and why."""

    stops: dict[int, Stop] = field(default_factory=dict)

    def mask(self, members: int) -> np.ndarray:
        """(M,) True where stopped."""
        mask = np.zeros(members, bool)
        mask[list(self.stops)] = True
        return mask
