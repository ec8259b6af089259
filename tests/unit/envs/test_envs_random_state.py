"""Generators of many seeds at once equal numpy's own."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.envs import random_state
from dressage.errors import InvalidArgument

EDGES = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64, 2**96 + 5, 2**128 - 1]


def _same(seeds: list[int]) -> None:
    count = 0
    for seed, stream in zip(seeds, random_state.generators(seeds), strict=True):
        reference = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        assert stream.bit_generator.state == reference.bit_generator.state, seed
        np.testing.assert_array_equal(stream.random(5), reference.random(5))
        # An odd number of 32-bit draws leaves a buffered half, which must not reach the next seed.
        assert stream.integers(0, 100, dtype=np.uint32) == reference.integers(0, 100, dtype=np.uint32)
        count += 1
    assert count == len(seeds)


def test_generators_equal_numpy_at_word_boundaries() -> None:
    _same(EDGES)


def test_generators_equal_numpy_for_random_seeds() -> None:
    chosen = np.random.Generator(np.random.PCG64(7))
    _same([int(seed) for seed in chosen.integers(0, 2**63, 500)] + list(range(500)))


def test_generators_of_seeds_longer_than_the_pool() -> None:
    _same([3, 2**128, 2**200 + 1])


def test_generators_take_numpy_integers_and_no_seeds() -> None:
    (stream,) = random_state.generators([np.int64(9)])
    assert stream.random() == random_state.generator(9).random()
    assert list(random_state.generators([])) == []


@pytest.mark.parametrize("seed", [-1, True, 1.5])
def test_generators_refuse_what_is_no_seed(seed: int) -> None:
    with pytest.raises(InvalidArgument, match="seeds"):
        list(random_state.generators([1, seed]))
