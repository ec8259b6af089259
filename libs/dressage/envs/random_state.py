"""Each environment's own random stream: seeded as Gymnasium seeds, and kept in snapshots as plain integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dressage.envs.state import Array
from dressage.errors import InvalidArgument

_LOW = (1 << 64) - 1
WIDTH = 6
"""Numbers per stream: two halves of PCG64's state, two of its increment, and its buffered 32-bit half."""


_WORD, _FULL = (1 << 32) - 1, (1 << 128) - 1
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_POOL = 4
"""Words of the pool of numpy's SeedSequence; a seed with at most as many is mixed like one filled up with zeros."""


def generator(seed: int) -> np.random.Generator:
    """Return the generator of Gymnasium's ``env.reset(seed=seed)``.

    :raises InvalidArgument: for a seed that is no non-negative integer.
    """
    _check(seed)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed))))


def generators(seeds: Sequence[int]) -> Iterator[np.random.Generator]:
    """Yield the generator of each seed, as `generator` returns it; it is valid until the next one.

    One generator is set to the state of each seed, because the construction of a generator takes longer than the draws of a
    short episode.

    :raises InvalidArgument: for a seed that is no non-negative integer.
    """
    for seed in seeds:
        _check(seed)
    if any(seed > _FULL for seed in seeds):
        yield from map(generator, seeds)
        return
    bits = np.random.PCG64(0)
    stream = np.random.Generator(bits)
    for high, low, step_high, step_low in _seed_words([int(seed) for seed in seeds]).tolist():
        step = ((step_high << 65) | (step_low << 1) | 1) & _FULL
        value = ((step + ((high << 64) | low)) * _MULTIPLIER + step) & _FULL
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": value, "inc": step},
            "has_uint32": 0,
            "uinteger": 0,
        }
        yield stream


def _check(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidArgument(field="seeds", value=seed, expected="non-negative integers")


def _seed_words(seeds: Sequence[int]) -> Array:
    """Return ``SeedSequence(seed).generate_state(4, uint64)`` for each seed below 2**128, (N, 4) uint64."""
    constant = 0x43B0D7E5

    def mix(value: NDArray[np.uint32], multiplier: int) -> NDArray[np.uint32]:
        nonlocal constant
        value = value ^ np.uint32(constant)
        constant = constant * multiplier & _WORD
        value = value * np.uint32(constant)
        return value ^ (value >> np.uint32(16))

    words = np.array([[(seed >> (32 * place)) & _WORD for place in range(_POOL)] for seed in seeds], np.uint32)
    words = words.reshape(-1, _POOL)
    pool = [mix(words[:, place], 0x931E8875) for place in range(_POOL)]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                mixed = pool[target] * np.uint32(0xCA01F9DD) - mix(pool[source], 0x931E8875) * np.uint32(0x4973F715)
                pool[target] = mixed ^ (mixed >> np.uint32(16))
    constant = 0x8B51F9DD
    state = np.stack([mix(pool[place % _POOL], 0x58F38DED) for place in range(2 * _POOL)], axis=1)
    return np.ascontiguousarray(state, "<u4").view("<u8")


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
