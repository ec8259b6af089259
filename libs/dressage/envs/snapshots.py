"""Common parts of all batches' snapshots: plain arrays, checked before use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dressage.envs.state import Array
from dressage.errors import InvalidArgument


def environment_bytes(env_id: str) -> Array:
    """Return an id as the array of a snapshot."""
    return np.frombuffer(env_id.encode(), dtype=np.uint8).copy()


def check_snapshot(snapshot: Mapping[str, Array], env_id: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a snapshot of another environment, size or options.

    :param shapes: the required arrays and their shapes, without ``environment``.
    :raises InvalidArgument: naming the array.
    """
    for name, shape in {"environment": (len(env_id.encode()),), **shapes}.items():
        if name not in snapshot:
            raise InvalidArgument(field=f"snapshot.{name}", value=None, expected="an array; it is missing")
        if np.shape(snapshot[name]) != shape:
            raise InvalidArgument(field=f"snapshot.{name}", value=np.shape(snapshot[name]), expected=f"shape {shape}")
    if bytes(np.asarray(snapshot["environment"], dtype=np.uint8)) != env_id.encode():
        raise InvalidArgument(field="snapshot.environment", value="another", expected=env_id)
