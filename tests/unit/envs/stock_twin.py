"""Stock Gymnasium environments compared with a batch, step by step: equal to the bit, except for what `TOLERANCE` names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from dressage.envs import BatchStep, EnvOptions, load_card, make_batch, reference
from dressage.envs.layout import body_names

from tests.unit.envs.trained import trained_policy

# Stock computes these on scalars by libm's pow and BLAS' dot, and Humanoid's centre of mass by einsum where MuJoCo's own is
# taken here; an array operation need not share their last bits.
TOLERANCE = {
    "InvertedDoublePendulum-v5": 1e-12,
    "Reacher-v5": 1e-12,
    "Pusher-v5": 1e-12,
    "Humanoid-v5": 1e-11,
}

OBSERVE_CONTACTS = ("Ant-v5", "Humanoid-v5", "HumanoidStandup-v5")
PARAMETERS = ("random", "trained", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("untrained", "swinging")))
"""Kinds of actions, see `actor`."""
EPISODES = 20

Actor = Callable[[np.ndarray], np.ndarray]


class StockVector:
    """Stock environments stepped one by one, restarted without a seed as a user of Gymnasium would."""

    def __init__(self, env_id: str, count: int, **options: Any) -> None:
        # The checker looks at spaces and types and changes nothing, but takes a fifth of the time.
        self.envs = [gymnasium.make(env_id, disable_env_checker=True, **options) for _ in range(count)]

    def reset(self, seeds: list[int]) -> np.ndarray:
        return np.stack([env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)])

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        rows: dict[str, list[Any]] = {}
        for env, action in zip(self.envs, actions, strict=True):
            final, reward, terminated, truncated, info = env.step(action)
            row = {"final": final, "reward": reward, "terminated": terminated, "truncated": truncated}
            row |= {f"info/{name}": value for name, value in info.items()}
            row |= {name: np.array(getattr(env.unwrapped.data, name)) for name in self._arrays(env)}
            row["observation"] = env.reset()[0] if terminated or truncated else final
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
        return {name: np.array(values) for name, values in rows.items()}

    def _arrays(self, env: Any) -> tuple[str, ...]:
        return ("xpos",) if hasattr(env.unwrapped, "data") else ()


def random_actions(env_id: str, rng: np.random.Generator, count: int, dtype: str = "float32") -> np.ndarray:
    card = load_card(env_id)
    if card.action_kind == "discrete":
        return rng.integers(card.num_actions, size=count)
    low, high = [part.low for part in card.action], [part.high for part in card.action]
    # A little beyond the bounds: the simulator clamps, the stock control cost does not.
    return (1.1 * rng.uniform(low, high, size=(count, card.action_size))).astype(dtype)


def actor(env_id: str, kind: str, count: int, seed: int) -> Actor:
    """Noise, a network's answer to the observation, trained or not, or slow swings of all joints that keep it moving."""
    card, rng = load_card(env_id), np.random.default_rng(seed)
    if kind == "untrained":
        return reference.untrained_policy(env_id, seed)
    if kind == "trained":
        return trained_policy(env_id)
    if kind == "random" or card.action_kind == "discrete":
        return lambda _: random_actions(env_id, rng, count)
    high = np.array([part.high for part in card.action])
    phase, clock = rng.uniform(0, 2 * np.pi, size=(count, card.action_size)), iter(range(10**6))
    rate = rng.uniform(1, 12, size=(count, 1))
    return lambda _: (0.8 * high * np.sin(phase + rate * next(clock) * card.time_step)).astype(np.float32)


@dataclass
class Ends:
    """How many episodes of each row ended, and how: one that does both at once counts as terminated."""

    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def of_rows(self) -> np.ndarray:
        """Episodes of each row that ended in any way."""
        return self.terminated + self.truncated


def run_alike(
    env_id: str, act: Actor, *, seeds: list[int], steps: int | None = None, after: int = 0, **options: Any
) -> Ends:
    """Steps stock environments and a batch alike and compares all that they say.

    :param steps: so many; None: until the first episode of every row has ended, and ``after`` more.
    """
    count = len(seeds)
    stock = StockVector(env_id, count, **options)
    batch = make_batch(env_id, count, num_threads=2, options=EnvOptions(**options))
    observation = batch.reset(seeds)
    assert np.array_equal(stock.reset(seeds), observation)
    ends, left = Ends(np.zeros(count, int), np.zeros(count, int)), steps
    while left is None or left > 0:
        actions = act(observation)
        expected, got = stock.step(actions), batch.step(actions)
        compare(env_id, expected, got)
        assert np.array_equal(expected["final"], got.next_state.observation)
        if "xpos" in expected:
            body = body_names(stock.envs[0].unwrapped.model)[1]
            assert np.array_equal(expected["xpos"][:, 1], got.next_state.fields[f"xpos_{body}"])
        ends.terminated += got.terminated
        ends.truncated += got.truncated & ~got.terminated
        observation = got.observation
        if left is not None:
            left -= 1
        elif ends.of_rows.all():
            left = after
    assert batch.divergences == 0
    return ends


def compare(env_id: str, expected: dict[str, np.ndarray], got: BatchStep) -> None:
    assert np.array_equal(expected["final"], got.final_observation)
    assert np.array_equal(expected["observation"], got.observation)
    assert np.array_equal(expected["terminated"], got.terminated)
    assert np.array_equal(expected["truncated"], got.truncated)
    names = {name.removeprefix("info/") for name in expected if name.startswith("info/")}
    assert names == set(got.info)
    tolerance = TOLERANCE.get(env_id, 0.0)
    pairs = {"reward": got.reward} | {f"info/{name}": got.info[name] for name in names}
    for name, value in pairs.items():
        # Stock takes a norm by BLAS' dot.
        bound = 1e-12 if name == "info/distance_from_origin" else tolerance
        assert np.abs(np.asarray(expected[name], np.float64) - value).max() <= bound, name


def compare_full_episodes(env_id: str, kind: str, *, episodes: int = EPISODES) -> None:
    """Compare episodes at once, each to its end at the stock time limit or before, and some steps of the next ones.

    :param kind: of actions, see `actor`.
    """
    seeds = [*(101 * row for row in range(episodes - 1)), 2**40 + 3]
    ends = run_alike(env_id, actor(env_id, kind, episodes, 3), seeds=seeds, after=10)
    if not load_card(env_id).can_terminate:
        assert not ends.terminated.any() and (ends.truncated == 1).all()
    elif kind == "random":  # who is trained may last to the time limit
        assert ends.terminated.any()
