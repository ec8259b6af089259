"""Stable-Baselines3's PPO and SAC with rl-baselines3-zoo's published hyperparameters, until the policy passes a judge.

The reward is the same as ours, called for one environment at each step; only the fields that it reads are computed. One
environment, as the published hyperparameters have it. Argument as in `support.passing`, with one ``seed``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

from support.passing import progress_of, scorer, written

SOURCE = "https://github.com/DLR-RM/rl-baselines3-zoo/tree/00128b5d46d497b772f3bd891ae9f520919e8971/hyperparams"
"""``ppo.yml`` and ``sac.yml``, the entries of the -v3 environments, which are the latest that were published for MuJoCo."""
_RECTIFIERS = {
    "log_std_init": -2.0,
    "ortho_init": False,
    "activation_fn": "relu",
    "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}
PPO: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": dict(
        batch_size=64, n_steps=512, gamma=0.98, learning_rate=2.0633e-05, ent_coef=0.000401762, clip_range=0.1, n_epochs=20,
        gae_lambda=0.92, max_grad_norm=0.8, vf_coef=0.58096, policy_kwargs=_RECTIFIERS,
    ),
    "Walker2d-v5": dict(
        batch_size=32, n_steps=512, gamma=0.99, learning_rate=5.05041e-05, ent_coef=0.000585045, clip_range=0.1, n_epochs=20,
        gae_lambda=0.95, max_grad_norm=1.0, vf_coef=0.871923,
    ),
    "Ant-v5": {},
    "Humanoid-v5": dict(
        batch_size=256, n_steps=512, gamma=0.95, learning_rate=3.56987e-05, ent_coef=0.00238306, clip_range=0.3, n_epochs=5,
        gae_lambda=0.9, max_grad_norm=2.0, vf_coef=0.431892, policy_kwargs=_RECTIFIERS,
    ),
}  # fmt: skip
"""What differs from Stable-Baselines3's defaults; observations and rewards are normalised in all."""
SAC: dict[str, Any] = {"learning_starts": 10_000}
"""In all four; the rest are Stable-Baselines3's defaults."""
STEPS = {
    "ppo": {"HalfCheetah-v5": 1_000_000, "Walker2d-v5": 1_000_000, "Ant-v5": 1_000_000, "Humanoid-v5": 10_000_000},
    "sac": {"HalfCheetah-v5": 1_000_000, "Walker2d-v5": 1_000_000, "Ant-v5": 1_000_000, "Humanoid-v5": 2_000_000},
}
"""Published lengths of the trainings."""


class RewardedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A stock environment with the reward of a session in place of its own."""

    def __init__(self, environment: str, source: str) -> None:
        from dressage.envs.cards import load_card
        from dressage.envs.stock import source_of

        super().__init__(gymnasium.make(environment))
        names: dict[str, Any] = {}
        exec(source, names)  # the template author's own code
        self._reward, used = names["reward"], set(re.findall(r"state\.(\w+)", source))
        bound = source_of(load_card(environment), self.env).bound
        self._fields = [entry for entry in bound if entry.field.name in used]
        if len(self._fields) != len(used) or any(entry.tracker for entry in self._fields):
            raise ValueError(f"the reward reads fields that one environment does not give: {sorted(used)}")
        self._arrays = sorted({name for entry in self._fields for name in entry.sources})
        self._data = self.env.unwrapped.data
        self._before: Any = None

    def _state(self) -> Any:
        """One row with the fields that the reward reads."""
        raw = {name: np.array(getattr(self._data, name))[None] for name in self._arrays}
        return SimpleNamespace(**{entry.field.name: entry.function(raw) for entry in self._fields})

    def reset(self, **given: Any) -> Any:
        """Remembers the state."""
        result = self.env.reset(**given)
        self._before = self._state()
        return result

    def step(self, action: Any) -> Any:
        """Calls the reward."""
        observation, _, terminated, truncated, info = self.env.step(action)
        after = self._state()
        terms = self._reward(self._before, np.asarray(action)[None], after, SimpleNamespace(), np)
        self._before = after
        return observation, float(sum(value[0] for value in terms.values())), terminated, truncated, info


def build(given: dict[str, Any], reward: str) -> Any:
    """The model with its published hyperparameters."""
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    environment = given["environment"]
    env: Any = DummyVecEnv([lambda: Monitor(RewardedEnv(environment, reward))])
    if given["algorithm"] == "sac":
        return sb3.SAC("MlpPolicy", env, seed=given["seed"], device="cpu", **SAC)
    values = dict(PPO[environment])
    if "policy_kwargs" in values:
        values["policy_kwargs"] = {**values["policy_kwargs"], "activation_fn": torch.nn.ReLU}
    env = VecNormalize(env, gamma=values.get("gamma", 0.99))
    return sb3.PPO("MlpPolicy", env, seed=given["seed"], device="cpu", **values)


def train(given: dict[str, Any], began: float) -> dict[str, Any]:
    """Train until the policy passes."""
    from stable_baselines3.common.callbacks import BaseCallback

    reward, judge = written(given["environment"], given["intent"])
    model = build(given, reward)
    score, progress = scorer(given["environment"], judge), progress_of(given, began)
    normalise = getattr(model.get_env(), "normalize_obs", lambda observation: observation)

    def act(observation: Any) -> Any:
        return model.predict(normalise(observation), deterministic=True)[0]

    class Judge(BaseCallback):
        """Ends the training."""

        def _on_step(self) -> bool:
            return not progress.ended(self.num_timesteps, lambda: score(act))

    model.learn(total_timesteps=int(given["max_steps"]), callback=Judge())
    return progress.result()


def main() -> None:
    """Trains and prints one JSON object."""
    began, given = time.perf_counter(), json.loads(sys.argv[1])
    print(json.dumps(train(given, began)))
