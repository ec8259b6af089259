"""Clamping of the hyperparameters that a model suggests. Pure.

A person may set any value that the algorithm can compute with. A language model's suggestion is clamped to the
recommended range of its rule (`dressage.training.hyperparameters.RULES`), in which training behaves well, and each change
becomes a warning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.training import sac
from dressage.training.hyperparameters import HIDDEN_SIZE, RECOMMENDED_HIDDEN_LAYERS, RULES, STEP_FACTORS


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
    return allowed, changed + _clamp_sizes(allowed)


def _clamp_sizes(allowed: v1.Hyperparameters) -> list[Clamped]:
    """Limit the number and the sizes of hidden layers in place; return the changes."""
    assert HIDDEN_SIZE.recommended is not None
    low, high = (round(bound) for bound in HIDDEN_SIZE.recommended)
    sizes = list(allowed.hidden_sizes)
    used = [min(max(size, low), high) for size in sizes[:RECOMMENDED_HIDDEN_LAYERS]]
    allowed.hidden_sizes[:] = used
    changed = [
        Clamped("hidden_sizes", before, after) for before, after in zip(sizes, used, strict=False) if before != after
    ]
    return changed + [Clamped("hidden_sizes", size, math.nan) for size in sizes[RECOMMENDED_HIDDEN_LAYERS:]]


def step_range(spec: v1.SessionSpec, *, members: int, left: int) -> tuple[int, int]:
    """Return the lowest and the highest number of environment steps per member that a revision may choose.

    :param members: members of the next training, at most.
    :param left: environment steps left of the budget; 0: no limit.
    """
    low, high = (max(1, round(factor * spec.reward.steps_per_member)) for factor in STEP_FACTORS)
    if spec.reward.max_steps_per_member > spec.reward.steps_per_member:
        high = min(high, spec.reward.max_steps_per_member)
    if left:
        high = min(high, max(1, left // members))
    return min(low, high), high


def steps(suggested: int, task: agent_pb.ReviserTask, before: int) -> tuple[int, list[Clamped]]:
    """Return the environment steps per member of a revision, within the range of its task, and the change if there is one.

    :param suggested: the revision's; 0: as before.
    """
    if not suggested or not task.highest_steps:
        return before, []
    used = min(max(suggested, task.lowest_steps), task.highest_steps)
    return used, [] if used == suggested else [Clamped("steps_per_member", suggested, used)]


def clamped_message(changed: list[Clamped]) -> str:
    """Return one sentence about the changes."""
    return "the model's hyperparameter suggestions were changed to allowed values: " + ", ".join(map(str, changed))
