"""Members by name, and their groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dressage.training.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class MemberSpec:
    """One member: a name, what it trains with, and the seed of all its randomness."""

    name: str
    hyperparameters: Hyperparameters
    seed: int


def group_members(members: Sequence[MemberSpec]) -> list[list[MemberSpec]]:
    """Split members into groups of equal shape, in order of first appearance."""
    groups: dict[Any, list[MemberSpec]] = {}
    for member in members:
        groups.setdefault(member.hyperparameters.shape_key, []).append(member)
    return list(groups.values())
