"""Bounds of the hyperparameters that a model suggests. Pure.

A person may set any value that the algorithm can compute with; what a language model suggests is brought into the range in
which training is known to behave, and what was changed becomes a warning. There is no bound on the number of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1
from dressage.limits import SAC_HYPERPARAMETERS

BOUNDS: dict[str, tuple[float, float]] = {
    "learning_rate": (1e-6, 3e-3),
    "entropy_coef": (1e-4, 0.1),
    "value_coef": (0.1, 2.0),
    "clip_range": (0.1, 0.4),
    "max_grad_norm": (0.1, 5.0),
    "gae_lambda": (0.8, 1.0),
    "discount": (0.95, 0.999),
    # Steps of each of many environments, where others count those of one: 16 x 16 samples are as few as 256 x 1.
    "num_steps": (16, 8192),
    "minibatch_size": (32, 8192),
    "epochs": (3, 20),
    "target_kl": (0.001, 0.05),
}
"""Lowest and highest value of each hyperparameter that a model may change."""


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
    """A copy within the bounds, and what had to be changed. A value that is no number is left out, and so is what the
    algorithm does not have."""
    allowed = v1.Hyperparameters()
    allowed.CopyFrom(suggested)
    changed = []
    for descriptor, value in suggested.ListFields() if algorithm == "sac" else ():
        if descriptor.name not in SAC_HYPERPARAMETERS:
            allowed.ClearField(descriptor.name)  # type: ignore[arg-type]
            changed.append(Clamped(descriptor.name, value, math.nan))
    for name, (low, high) in BOUNDS.items():
        if not allowed.HasField(name):  # type: ignore[arg-type]
            continue
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
    """One sentence about what was changed."""
    return "hyperparameters that the model suggested were brought into what may be set: " + ", ".join(map(str, changed))
