"""The array library behind an array, so that one definition of a field serves numpy on the CPU and JAX on a device.

Fields, outcomes and trackers write into no array and use what numpy and ``jax.numpy`` share: operators, methods, and functions
of the library that `library_of` returns. Constants are plain numbers, which take the precision of the arrays that they meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.envs.state import Array


def library_of(array: Array) -> Any:
    """Return the library of an array: ``numpy`` or ``jax.numpy``, also for JAX's abstract values."""
    # The method of numpy's arrays imports numpy each time, which takes as long as a small operation.
    return np if isinstance(array, np.ndarray) else array.__array_namespace__()


def never(like: Array) -> Array:
    """Return False for each row of ``like`` (N,)."""
    rows: Array = library_of(like).zeros(like.shape, dtype=bool)
    return rows


def clip_to(array: Array, bound: float) -> Array:
    """Return the array with every number limited to ±``bound``."""
    xp = library_of(array)
    limited: Array = xp.minimum(xp.maximum(array, -bound), bound)
    return limited
