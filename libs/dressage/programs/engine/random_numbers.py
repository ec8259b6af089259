"""Random numbers by counter: candidate n of a search draws from its own stream, whatever thread draws it.

A stream is SplitMix64 from a state that mixes the seed and n. Bounded integers are off by at most 2**-32 in probability.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.episodes.compiling import allocation_free

_STEP = np.uint64(0x9E3779B97F4A7C15)


@allocation_free(inline=True)
def mix(value: Any) -> Any:
    """Return SplitMix64's finalizer of a uint64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@allocation_free(inline=True)
def begin_stream(stream: Any, seed: int, n: int) -> None:
    """Set ``stream`` (uint64[1]) to the beginning of stream n of a seed."""
    stream[0] = mix(mix(np.uint64(seed) + _STEP) ^ (np.uint64(n) * np.uint64(0xD1342543DE82EF95) + _STEP))


@allocation_free(inline=True)
def below(stream: Any, bound: int) -> Any:
    """Draw an integer from 0 to ``bound`` - 1; ``bound`` is at most 2**32."""
    stream[0] += _STEP
    return np.int64(((mix(stream[0]) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@allocation_free(inline=True)
def pick(stream: Any, weights: Any) -> int:
    """Draw an index in proportion to ``weights`` (int64[n], not negative)."""
    total = 0
    for weight in weights:
        total += weight
    left = below(stream, total)
    index = 0
    while left >= weights[index]:
        left -= weights[index]
        index += 1
    return index
