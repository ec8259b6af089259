"""Random streams: one seed per member gives all of its streams, whoever trains beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dressage.envs import random_state

_FIRST_TRAINING_SEED = 2**30
"""Environments train on seeds from here to 2**31; evaluation uses seeds below, so the two never meet."""


@dataclass(frozen=True)
class MemberStreams:
    """A member's generators and its environments' seeds."""

    weights: np.random.Generator
    noise: np.random.Generator
    order: np.random.Generator
    env_seeds: list[int]


def member_streams(seed: int, num_envs: int) -> MemberStreams:
    """Independent streams derived from one seed.

    :param seed: 0 .. 2**63 - 1.
    """
    weights, noise, order, environment = np.random.SeedSequence(seed).spawn(4)
    raw = environment.generate_state(num_envs, np.uint64)
    return MemberStreams(
        weights=np.random.default_rng(weights),
        noise=np.random.default_rng(noise),
        order=np.random.default_rng(order),
        env_seeds=[int(value % _FIRST_TRAINING_SEED) + _FIRST_TRAINING_SEED for value in raw],
    )


def pack_generator(generator: np.random.Generator) -> np.ndarray:
    """The state of a PCG64 generator as six uint64 words, see `dressage.envs.random_state`."""
    words: np.ndarray = random_state.pack([generator])[0]
    return words


def unpack_generator(words: np.ndarray) -> np.random.Generator:
    """The inverse of `pack_generator`."""
    return random_state.unpack(words[None])[0]
