"""Trajectories as messages of the sandbox pipe, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dressage.envs.trajectory import Trajectory


def pack_trajectory(trajectory: Trajectory) -> dict[str, Any]:
    """Return the trajectory as a message part (arrays stay arrays)."""
    return {
        "environment": trajectory.environment,
        "seed": trajectory.seed,
        "fields": dict(trajectory.fields),
        "action": trajectory.action,
        "reward": trajectory.reward,
        "terminated": bool(trajectory.terminated),
        "truncated": bool(trajectory.truncated),
        "qpos": trajectory.qpos,
        "qvel": trajectory.qvel,
    }


def unpack_trajectory(message: Mapping[str, Any]) -> Trajectory:
    """Return the trajectory that `pack_trajectory` packed."""
    return Trajectory(**message)
