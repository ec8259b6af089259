"""Ids of the trainings of an iteration."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1

TRAINING = "train"
"""Id of an iteration's first training, and how the ids of the others begin."""


def trainings(iteration: v1.Iteration) -> list[str]:
    """Return the names of an iteration's trainings, in order."""
    return [name for name in iteration.assignments if name.rpartition("/")[2].startswith(TRAINING)]
