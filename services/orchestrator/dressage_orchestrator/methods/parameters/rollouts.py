"""Reads recorded rollouts of candidates from the artifact store."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument, NotFound

FIRST = "first"


def load(store: ArtifactStore, artifact: str) -> Trajectory | None:
    """Return a stored trajectory; None if it was deleted or is damaged."""
    with tempfile.TemporaryDirectory(prefix="dressage-rollout-") as folder:
        path = Path(folder) / "rollout.npz"
        try:
            path.write_bytes(store.get(artifact))
            return Trajectory.load(path)
        except (NotFound, InvalidArgument):
            return None


def labelled(result: v1.CandidateResult, label: str) -> str:
    """Return the artifact of the rollout with a label, or else that of the first rollout; empty if there is none."""
    named = [entry.artifact for entry in result.rollouts if entry.label == label]
    return (named or [entry.artifact for entry in result.rollouts] or [""])[0]
