"""Clamping of the hyperparameters that a model suggests. Pure.

A person may set any value that the algorithm can compute with. A language model's suggestion is clamped to the
recommended range of its rule (`dressage.training.hyperparameters.RULES`), in which training behaves well, and each change
becomes a warning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1
from dressage.training import sac
from dressage.training.hyperparameters import RULES


@dataclass(frozen=True)
class Clamped:
    """A suggestion that was changed."""

    name: str
    suggested: float
    used: float
    """NaN: left out."""

    def __str__(self) -> str:
        return f"{self.name} {self.suggested:g} → {'left out' if math.isnan(self.used) else format(self.used, 'g')}"


def clamp(suggested: v1.Hyperparameters, *, algorithm: str = "ppo") -> tuple[v1.Hyperparameters, list[Clamped]]:
    """Return a copy within the recommended ranges, and the changes.

    Values that are no numbers and hyperparameters that the algorithm does not have are left out.
    """
    allowed = v1.Hyperparameters()
    allowed.CopyFrom(suggested)
    changed = []
    for descriptor, value in suggested.ListFields() if algorithm == "sac" else ():
        if descriptor.name not in sac.HYPERPARAMETERS:
            allowed.ClearField(descriptor.name)  # type: ignore[arg-type]
            changed.append(Clamped(descriptor.name, value, math.nan))
    for name, rule in RULES.items():
        if rule.recommended is None or not allowed.HasField(name):  # type: ignore[arg-type]
            continue
        low, high = rule.recommended
        value = getattr(allowed, name)
        if math.isnan(value):
            allowed.ClearField(name)  # type: ignore[arg-type]
            changed.append(Clamped(name, value, math.nan))
            continue
        used = min(max(value, low), high)
        if used != value:
            setattr(allowed, name, type(value)(used))
            changed.append(Clamped(name, value, used))
    return allowed, changed


def clamped_message(changed: list[Clamped]) -> str:
    """Return one sentence about the changes."""
    return "the model's hyperparameter suggestions were changed to allowed values: " + ", ".join(map(str, changed))
