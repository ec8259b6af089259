"""Build Stable-Baselines3's models from our hyperparameters, and our bundle's tensors from its models."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from dressage.policies import PolicyCard
from dressage.policies.bundle import tensor_shapes
from dressage.policies.sb3_export import sb3_name
from dressage.training import sac
from dressage.training.hyperparameters import SB3_NAMES, Hyperparameters
from dressage.training.sac import SacHyperparameters
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from dressage_trainer.ppo.members import next_rate

ALGORITHMS = ("ppo", "sac")
_REPLAY = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def chunk_steps(h: Hyperparameters) -> int:
    """Return the environment steps of a member between two reports."""
    return h.report_steps if isinstance(h, SacHyperparameters) else h.batch_size


def make_model(h: Hyperparameters, env: VecEnv, *, seed: int, steps: int = sac.DEFAULTS.replay_size) -> BaseAlgorithm:
    """Create a model: of SAC for its hyperparameters, otherwise of PPO.

    :param steps: environment steps of the training.
    """
    model = _sac(h, env, seed=seed, steps=steps) if isinstance(h, SacHyperparameters) else _ppo(h, env, seed=seed)
    silence(model)
    return model


def _sac(h: SacHyperparameters, env: VecEnv, *, seed: int, steps: int) -> BaseAlgorithm:
    return SAC(
        "MlpPolicy",
        env,
        learning_rate=h.learning_rate,
        # Its memory is reserved at once and counts against the learner's limit.
        buffer_size=h.buffer_size(steps),
        learning_starts=h.warmup_steps,
        tau=h.target_rate,
        batch_size=h.minibatch_size,
        gamma=h.discount,
        train_freq=1,
        gradient_steps=h.gradient_steps,
        ent_coef="auto" if h.tune_entropy else h.entropy_coef,
        policy_kwargs={"net_arch": list(h.hidden_sizes)},
        seed=seed % 2**32,
        device="cpu",
    )


def _ppo(h: Hyperparameters, env: VecEnv, *, seed: int) -> BaseAlgorithm:
    return PPO(
        "MlpPolicy",
        env,
        **{argument: getattr(h, name) for name, argument in SB3_NAMES.items()},
        # SB3 refuses to normalise minibatches of one sample, and does not normalise a last one, as our PPO does with all.
        normalize_advantage=h.minibatch_size > 1,
        policy_kwargs={
            "activation_fn": torch.nn.Tanh,
            "net_arch": {"pi": list(h.hidden_sizes), "vf": list(h.hidden_sizes)},
            "log_std_init": h.initial_log_std,
        },
        seed=seed % 2**32,
        device="cpu",
    )


def load_model(model: BaseAlgorithm, file: io.BytesIO, env: VecEnv, *, buffer: int) -> BaseAlgorithm:
    """Load the model of a file in place of a new one, which must not be used afterwards.

    :param buffer: SAC: size of the replay buffer, whatever it was in the file; it is empty.
    """
    more: dict[str, Any] = {}
    if isinstance(model, SAC):
        # Two large buffers at once may exceed the learner's memory.
        model.replay_buffer = None
        more["buffer_size"] = buffer
    restored = type(model).load(file, env=env, device="cpu", force_reset=False, **more)
    silence(restored)
    return restored


def replay_arrays(model: BaseAlgorithm) -> dict[str, np.ndarray]:
    """Return the filled part of SAC's replay buffer, for a snapshot; nothing for PPO."""
    buffer: Any = getattr(model, "replay_buffer", None)
    if buffer is None:
        return {}
    filled = buffer.buffer_size if buffer.full else buffer.pos
    arrays = {f"replay/{name}": getattr(buffer, name)[:filled].copy() for name in _REPLAY}
    return {**arrays, "replay/place": np.array([buffer.pos, buffer.full])}


def fill_replay(model: BaseAlgorithm, arrays: Mapping[str, np.ndarray]) -> None:
    """Fill the replay buffer from `replay_arrays`; it may be larger than the buffer that they were taken from."""
    buffer: Any = getattr(model, "replay_buffer", None)
    if buffer is None:
        return
    (place, full), filled = arrays["replay/place"], len(arrays[f"replay/{_REPLAY[0]}"])
    grown = bool(full) and filled < buffer.buffer_size
    for name in _REPLAY:
        rows = arrays[f"replay/{name}"]
        # In a larger buffer the oldest comes first, and the newest is followed by free places.
        getattr(buffer, name)[:filled] = np.roll(rows, -int(place), axis=0) if grown else rows
    buffer.pos, buffer.full = (filled, False) if grown else (int(place), bool(full))


def silence(model: BaseAlgorithm) -> None:
    """Give the model a logger without output, which `figures` reads after each update."""
    model.set_logger(Logger(folder=None, output_formats=[]))


def network(algorithm: str) -> dict[str, Any]:
    """Return the entries of a policy's card that describe how an algorithm's network acts."""
    return {"squash": True, "activation": "relu"} if algorithm == "sac" else {}


def tensors(model: BaseAlgorithm, card: PolicyCard) -> dict[str, np.ndarray]:
    """Return the bundle's tensors except for the observations' statistics."""
    module = model.actor if isinstance(model, SAC) else model.policy
    state = module.state_dict()
    names = [name for name in tensor_shapes(card) if not name.startswith("obs_")]
    return {name: state[sb3_name(name, card)].detach().cpu().numpy().copy() for name in names}


_PPO_FIGURES = {
    "policy_loss": "train/policy_gradient_loss",
    "value_loss": "train/value_loss",
    "approx_kl": "train/approx_kl",
    "clip_fraction": "train/clip_fraction",
    "explained_variance": "train/explained_variance",
    "std": "train/std",
    "learning_rate": "train/learning_rate",
}
"""SB3's KL is the mean over the last epoch's minibatches, and thus larger; the stacked PPO's is over all epochs."""
_SAC_FIGURES = {
    "policy_loss": "train/actor_loss",
    "value_loss": "train/critic_loss",
    "entropy_coefficient": "train/ent_coef",
}


def forget_figures(model: BaseAlgorithm) -> None:
    """Clear the figures before a chunk, so that one which ends early does not report those of the chunk before."""
    model.logger.dump()


def adapt_rate(model: BaseAlgorithm, h: Hyperparameters) -> None:
    """Adapt PPO's learning rate after an update, by the rule of the stacked PPO; its mean divergence is over all epochs."""
    kl = model.logger.name_to_value.get("train/approx_kl")
    if h.desired_kl == 0 or kl is None:
        return
    model.learning_rate = float(next_rate(model.learning_rate, kl, desired=h.desired_kl, first=h.learning_rate))
    model._setup_lr_schedule()


def figures(model: BaseAlgorithm) -> dict[str, float | None]:
    """Return what SB3 logged of the chunk's last update, under our names; the entropy is positive for uncertain policies."""
    logged: Mapping[str, Any] = model.logger.name_to_value
    names = _SAC_FIGURES if isinstance(model, SAC) else _PPO_FIGURES
    row = {ours: _number(logged.get(theirs)) for ours, theirs in names.items() if theirs in logged}
    if "train/entropy_loss" in logged:
        row["entropy"] = _number(-logged["train/entropy_loss"])
    return row


def _number(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
