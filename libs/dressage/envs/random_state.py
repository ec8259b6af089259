"""Each environment's own random stream: seeded as Gymnasium seeds, and kept in snapshots as plain integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dressage.envs.state import Array
from dressage.errors import InvalidArgument

_LOW = (1 << 64) - 1
WIDTH = 6
"""Numbers per stream: two halves of PCG64's state, two of its increment, and its buffered 32-bit half."""


def generator(seed: int) -> np.random.Generator:
    """Return the generator of Gymnasium's ``env.reset(seed=seed)``.

    :raises InvalidArgument: for a seed that is no non-negative integer.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidArgument(field="seeds", value=seed, expected="non-negative integers")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed))))


def pack(generators: Sequence[np.random.Generator]) -> Array:
    """Return the streams' states, (N, 6) uint64."""
    rows = np.empty((len(generators), WIDTH), dtype=np.uint64)
    for row, stream in zip(rows, generators, strict=True):
        state = stream.bit_generator.state
        value, step = state["state"]["state"], state["state"]["inc"]
        row[:] = (value >> 64, value & _LOW, step >> 64, step & _LOW, state["has_uint32"], state["uinteger"])
    return rows


def unpack(rows: Array) -> list[np.random.Generator]:
    """Return generators that continue from the packed states."""
    streams = []
    for row in rows:
        high, low, step_high, step_low, has_half, half = (int(number) for number in row)
        bits = np.random.PCG64()
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": (high << 64) | low, "inc": (step_high << 64) | step_low},
            "has_uint32": has_half,
            "uinteger": half,
        }
        streams.append(np.random.Generator(bits))
    return streams
