"""Stable-Baselines3's PPO as Prompt2Policy runs it: one process per member, `SubprocVecEnv`, `VecNormalize`, a Python
reward called for every step, its preset for the environment; and plain SB3 with its defaults.

Argument: one JSON object with ``environment``, ``setting`` ("preset" or "sb3_defaults"), ``num_envs``, ``seed`` and
one of ``seconds`` (steady rate), ``memory_updates``, or ``record_steps`` (a learning curve).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

# Hyperparameters for one environment (prompt2policy a84c76f): learning rate, rollout, minibatches, epochs, discount,
# lambda, clip range, entropy and value coefficients, gradient norm.
PRESETS: dict[str, tuple[float, int, int, int, float, float, float, float, float, float]] = {
    "HalfCheetah-v5": (2.06e-5, 512, 8, 20, 0.98, 0.92, 0.1, 4.0e-4, 0.581, 0.8),
    "Ant-v5": (1.91e-5, 512, 16, 10, 0.98, 0.8, 0.1, 5.0e-7, 0.677, 0.6),
    "Hopper-v5": (9.81e-5, 512, 16, 5, 0.999, 0.99, 0.2, 2.3e-3, 0.836, 0.7),
    "Walker2d-v5": (5.05e-5, 512, 16, 20, 0.99, 0.95, 0.1, 5.9e-4, 0.872, 1.0),
}


def stacked_preset(environment: str) -> dict[str, Any]:
    """The peer's preset for one environment, for a stacked training with the same hyperparameters."""
    rate, steps, batches, epochs, gamma, lam, clip, entropy, value, norm = PRESETS[environment]
    return dict(
        num_envs=1, num_steps=steps, minibatch_size=round(steps / batches), epochs=epochs, learning_rate=rate,
        discount=gamma, gae_lambda=lam, clip_range=clip, entropy_coef=entropy, value_coef=value, max_grad_norm=norm,
        hidden_sizes=[256, 256], initial_log_std=0.0, normalize_observation=True, normalize_reward=True,
    )  # fmt: skip


def reward_fn(obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """The user guide's reward, per step."""
    speed = float(info.get("x_velocity", 0.0))
    effort = -0.1 * float(np.sum(np.square(action)))
    return speed + effort, {"speed": speed, "effort": effort}


class RewardWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replaces the environment's reward, one step at a time."""

    def reset(self, **given: Any) -> Any:
        """Remembers the observation."""
        self.before, info = self.env.reset(**given)
        return self.before, info

    def step(self, action: Any) -> Any:
        """Calls the reward."""
        after, _, terminated, truncated, info = self.env.step(action)
        total, terms = reward_fn(self.before, action, after, info)
        self.before = after
        return after, total, terminated, truncated, {**info, "terms": terms}


def make_env(environment: str, seed: int, *, own_reward: bool) -> Any:
    """One environment, made in its worker."""

    def make() -> Any:
        env = gymnasium.make(environment)
        if own_reward:
            env = RewardWrapper(env)
        env.reset(seed=seed)
        return env

    return make


def build(given: dict[str, Any]) -> Any:
    """The model on its vectorised environment."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

    if os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    environment, seed, count = given["environment"], int(given["seed"]), int(given["num_envs"])
    # A recorded curve is of the stock reward, so that its return is comparable.
    own = "record_steps" not in given
    makers = [make_env(environment, seed * 1000 + i, own_reward=own) for i in range(count)]
    rate, steps, batches, epochs, gamma, lam, clip, entropy, value, norm = PRESETS[environment]
    env = VecNormalize(SubprocVecEnv(makers), gamma=gamma)
    if given["setting"] == "sb3_defaults":
        return PPO("MlpPolicy", env, device="cpu", seed=seed)
    ratio = float(count)
    size = min(steps * count, round(steps / batches * ratio**0.5))
    return PPO(
        "MlpPolicy", env, learning_rate=rate * ratio**0.25, n_steps=steps, batch_size=size, n_epochs=epochs, gamma=gamma,
        gae_lambda=lam, clip_range=clip, ent_coef=entropy, vf_coef=value, max_grad_norm=norm, seed=seed, device="cpu",
        policy_kwargs={"net_arch": [256, 256]},
    )  # fmt: skip


def rate(model: Any, seconds: float) -> dict[str, float]:
    """Steady steps per second, over whole rollouts with their updates."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """Notes when each rollout begins."""

        starts: list[float]

        def _on_training_start(self) -> None:
            self.starts = []

        def _on_rollout_start(self) -> None:
            self.starts.append(time.perf_counter())

        def _on_step(self) -> bool:
            return len(self.starts) < 3 or self.starts[-1] - self.starts[1] < seconds

    clock = Clock()
    model.learn(total_timesteps=10**9, callback=clock)
    spent = clock.starts[-1] - clock.starts[1]
    return {"rate": model.n_steps * model.n_envs * (len(clock.starts) - 2) / spent}


def memory(model: Any, updates: int) -> dict[str, float]:
    """Resident memory of this process and its workers in MiB; shared pages count once by their share (PSS) besides."""
    model.learn(total_timesteps=updates * model.n_steps * model.n_envs)
    processes = [os.getpid(), *_children(os.getpid())]
    resident = proportional = 0
    for process in processes:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            resident += int(line.split()[1]) if line.startswith("Rss:") else 0
            proportional += int(line.split()[1]) if line.startswith("Pss:") else 0
    return {"mebibytes": resident / 1024, "pss_mebibytes": proportional / 1024, "processes": len(processes)}


def _children(process: int) -> list[int]:
    children = []
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            children += [child, *_children(child)]
    return children


def record(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """A whole training on the stock reward: the deterministic policy's return at its end, and how long it took."""
    began = time.perf_counter()
    model.learn(total_timesteps=int(given["record_steps"]))
    seconds = time.perf_counter() - began
    normalizer, returns = model.get_env(), []
    env = gymnasium.make(given["environment"])
    for episode in range(int(given["episodes"])):
        observation, done, total = env.reset(seed=1_000_000 + episode)[0], False, 0.0
        while not done:
            action, _ = model.predict(normalizer.normalize_obs(observation), deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return {"seconds": seconds, "steps": int(model.num_timesteps), "returns": returns}


def main() -> None:
    """Measures and prints one JSON object."""
    given = json.loads(sys.argv[1])
    model = build(given)
    if "record_steps" in given:
        result = record(model, given)
    elif "memory_updates" in given:
        result = memory(model, given["memory_updates"])
    else:
        result = rate(model, given["seconds"])
    model.get_env().close()
    print(json.dumps(result))
