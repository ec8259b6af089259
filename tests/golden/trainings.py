"""Weights of short float64 trainings: PPO of continuous actions in lanes, of discrete ones stacked, and SAC in lanes.

Other tests compare stacked trainings with lanes (`test_trainer_without_speed`), and both with Stable-Baselines3.

Rounding differs between processors, so that weights are compared with a tolerance (`TOLERANCE`), through four fixed sums of
each array: weights, moments of Adam, and statistics of observations and returns, of all members.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from tests.golden.record import Files, lines
from tests.unit.trainer.fake_environment import FakeBatch, FakeReward

TOLERANCE = 1e-9
_PPO: dict[str, Any] = dict(
    num_envs=4, num_steps=16, minibatch_size=24, epochs=3, hidden_sizes=(8, 8), learning_rate=1e-3
)
_SAC: dict[str, Any] = dict(num_envs=4, minibatch_size=16, hidden_sizes=(8, 8), warmup_steps=20, updates_per_step=0.5)


class _Choices(FakeBatch):
    """The fake environment with three discrete actions in place of two continuous ones."""

    action_size, num_actions = 1, 3
    action_low, action_high = np.zeros(1, np.float32), np.full(1, 2.0, np.float32)

    def step(self, actions: np.ndarray) -> Any:
        return super().step(np.stack([actions - 1.0, 0.5 * actions], axis=-1))


class _ChoiceReward(FakeReward):
    def __call__(self, state: Any, action: np.ndarray, next_state: Any) -> Any:
        return super().__call__(state, np.asarray(action)[:, None], next_state)


def _ppo_members(**common: Any) -> list[Any]:
    from dressage.training.hyperparameters import Hyperparameters
    from dressage_trainer.ppo.members import MemberSpec

    base = Hyperparameters(**{**_PPO, **common})
    return [
        MemberSpec("a", base, 1),
        MemberSpec("b", replace(base, epochs=5, discount=0.8, gae_lambda=0.9, entropy_coef=0.01), 2),
        MemberSpec("c", replace(base, learning_rate=1e-2, target_kl=0.003, clip_range=0.1, value_coef=0.9), 3),
        MemberSpec("d", replace(base, max_grad_norm=0.1, reward_clip=2.0, desired_kl=0.01), 4),
    ]


def _ppo(members: list[Any], environment: Any, *, threads: int) -> dict[str, np.ndarray]:
    from dressage_trainer.ppo import snapshot
    from dressage_trainer.ppo.ppo import PPO
    from dressage_trainer.speed.lanes import PpoLanes

    lanes = PpoLanes(members, environment=environment, threads=threads, size=1, dtype=np.float64)
    optimise = lanes if threads > 1 else None
    reward = _ChoiceReward() if isinstance(environment, _Choices) else FakeReward()
    ppo = PPO(members, environment=environment, reward=reward, optimise=optimise, dtype=np.float64)
    for _ in range(3):
        ppo.iterate()
    return snapshot.take(ppo)


def _sac(*, threads: int, **common: Any) -> dict[str, np.ndarray]:
    from dressage.training import sac as settings
    from dressage_trainer.ppo.members import MemberSpec
    from dressage_trainer.sac import snapshot
    from dressage_trainer.sac.sac import SAC
    from dressage_trainer.speed.lanes import SacLanes

    own = ({}, {"learning_rate": 1e-3, "entropy_coef": 0.1}, {"discount": 0.9, "target_rate": 0.05})
    members = [
        MemberSpec(f"m{i}", settings.complete({**_SAC, **common, **more}), i) for i, more in enumerate(own, start=1)
    ]
    environment = FakeBatch(len(members), _SAC["num_envs"])
    lanes = SacLanes(members, environment=environment, threads=threads, dtype=np.float64)
    optimise = lanes if threads > 1 else None
    sac = SAC(members, environment=environment, reward=FakeReward(), steps=60, optimise=optimise, dtype=np.float64)
    while sac.gradient_steps < 20:
        sac.iterate()
    return snapshot.take(sac)


def _sums(arrays: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Return four sums of each array with fixed random signs; of integers, such as generators' states, none."""
    result = {}
    for name, array in sorted(arrays.items()):
        values = np.asarray(array)
        if values.dtype.kind == "f" and values.size:
            signs = np.random.default_rng(values.size).choice([-1.0, 1.0], (4, values.size))
            result[name] = (signs @ values.ravel().astype(np.float64)).tolist()
    return result


def record() -> Files:
    from dressage.training import sac as settings

    report_steps, settings.REPORT_STEPS = settings.REPORT_STEPS, 40
    try:
        ppo, raw = _ppo_members(), _ppo_members(normalize_observation=False, normalize_reward=False)
        trainings = {
            "ppo_lanes": _ppo(ppo, FakeBatch(len(ppo), 4), threads=2),
            "ppo_discrete_stacked": _ppo(raw, _Choices(len(ppo), 4), threads=1),
            "sac_lanes": _sac(threads=2, normalize_observation=True),
        }
    finally:
        settings.REPORT_STEPS = report_steps
    sums = {f"{name} {key}": value for name, arrays in trainings.items() for key, value in _sums(arrays).items()}
    return {"equal/trainings.json": lines(sums)}


def differences(recorded: str, now: str) -> list[str]:
    """Return the names of arrays that are not equal within the tolerance."""
    before, after = json.loads(recorded), json.loads(now)
    unequal = {name for name in before.keys() & after.keys() if not _close(before[name], after[name])}
    return sorted(unequal | (before.keys() ^ after.keys()))


def _close(before: list[float], after: list[float]) -> bool:
    return np.allclose(after, before, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
