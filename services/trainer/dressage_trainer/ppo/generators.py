"""Random streams: one seed per member gives all of its streams, whoever trains beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


_WORD = 2**64


def pack_generator(generator: np.random.Generator) -> np.ndarray:
    """The state of a PCG64 generator as six uint64 words."""
    state = generator.bit_generator.state
    inner = state["state"]
    words = [inner["state"] // _WORD, inner["state"] % _WORD, inner["inc"] // _WORD, inner["inc"] % _WORD]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def unpack_generator(words: np.ndarray) -> np.random.Generator:
    """The inverse of `pack_generator`."""
    high, low, inc_high, inc_low, has_uint32, uinteger = (int(word) for word in words)
    generator = np.random.Generator(np.random.PCG64())
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * _WORD + low, "inc": inc_high * _WORD + inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return generator
