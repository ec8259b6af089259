"""Returns of the stored episodes under rewards, with numpy and compiled by JAX, compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dressage.contracts.device import DeviceReward
from dressage.contracts.reward import load_reward
from dressage.contracts.segments import Segments, whole_episodes
from dressage.contracts.transitions import evaluate
from dressage.envs.cards import load_card
from dressage.envs.state import State
from dressage.envs.trajectory import load_check_trajectories

NEAR = 1e-4
"""Relative distance of two returns below which their order in single precision is open."""


def returns_on_both(environment: str, sources: Sequence[str]) -> None:
    """Assert that each reward's terms are equal in double precision, and that it ranks the episodes alike in single."""
    card = load_card(environment)
    episodes = [episode for group in load_check_trajectories(environment).values() for episode in group]
    segments = whole_episodes(episodes, card)
    modules = [load_reward(source, card) for source in sources]
    expected = [evaluate(module, card, segments) for module in modules]
    rewards = [DeviceReward(module, segments.rows) for module in modules]
    with jax.enable_x64(True):
        for source, here, there in zip(sources, expected, _evaluated(rewards, segments, np.float64), strict=True):
            np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-9, err_msg=source)
    for source, here, there in zip(sources, expected, _evaluated(rewards, segments, np.float32), strict=True):
        _ranked_alike(here.sum((0, 1)), there.sum((0, 1), dtype=np.float64), source)


def _evaluated(rewards: Sequence[DeviceReward], segments: Segments, dtype: Any) -> list[np.ndarray]:
    """The terms (L, K, R) of each reward, from one compiled loop over the steps; 0 past the end of an episode."""

    def step(memories: Any, given: Any) -> Any:
        before, action, after = given
        results = [
            reward(memory, State(before), action, State(after))
            for reward, memory in zip(rewards, memories, strict=True)
        ]
        return [memory for memory, _ in results], [terms for _, terms in results]

    @jax.jit
    def run(fields: Any, actions: Any) -> Any:
        before = {name: array[:-1] for name, array in fields.items()}
        after = {name: array[1:] for name, array in fields.items()}
        return jax.lax.scan(step, [reward.init(dtype) for reward in rewards], (before, actions, after))[1]

    fields = {name: jnp.asarray(array, dtype) for name, array in segments.fields.items()}
    discrete = segments.action.ndim == 2
    terms = jax.device_get(run(fields, jnp.asarray(segments.action, np.int32 if discrete else dtype)))
    running = np.arange(segments.steps)[:, None, None] < segments.lengths
    return [np.where(running, array, 0.0) for array in terms]


def _ranked_alike(here: np.ndarray, there: np.ndarray, source: str) -> None:
    for one, other in combinations(range(len(here)), 2):
        apart = here[one] - here[other]
        if abs(apart) > NEAR * max(1.0, np.abs(here).max()):
            assert np.sign(apart) == np.sign(there[one] - there[other]), source
