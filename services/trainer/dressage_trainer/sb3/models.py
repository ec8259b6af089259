"""Stable-Baselines3's models from our hyperparameters, and our bundle's tensors from its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from dressage.errors import InvalidArgument
from dressage.limits import SAC_HYPERPARAMETERS
from dressage.policies import PolicyCard
from dressage.policies.bundle import tensor_shapes
from dressage.policies.sb3_export import sb3_name
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from dressage_trainer.ppo.hyperparameters import Hyperparameters

ALGORITHMS = ("ppo", "sac")
SAC_STEPS = 1_000
"""Environment steps of SAC between two reports, about; it learns after every step."""
_SAC_BUFFER = 1_000_000
_SAC_BASE = Hyperparameters(
    learning_rate=3e-4,
    num_envs=8,
    num_steps=128,
    minibatch_size=256,
    hidden_sizes=(256, 256),
    normalize_observation=False,
    normalize_reward=False,
)
_SAC_USES = {*SAC_HYPERPARAMETERS, "normalize_observation"}


def complete(algorithm: str, given: Mapping[str, Any], base: Hyperparameters) -> Hyperparameters:
    """A member's hyperparameters for an algorithm: PPO starts from the environment's preset, SAC from its own defaults.

    :raises InvalidArgument: for one that the algorithm does not have, or an impossible value.
    """
    if algorithm == "ppo":
        return Hyperparameters.for_run(given, base=base)
    for name in given:
        if name not in _SAC_USES:
            expected = f"one that sac has: {', '.join(SAC_HYPERPARAMETERS)}"
            raise InvalidArgument(field="hyperparameters", value=name, expected=expected)
    # Its minibatches are of the replay buffer, whatever the number of environments.
    size = {"minibatch_size": given.get("minibatch_size", _SAC_BASE.minibatch_size)}
    drawn = Hyperparameters.from_dict(size, base=replace(_SAC_BASE, num_envs=1, num_steps=_SAC_BUFFER))
    whole = Hyperparameters.from_dict({**given, "minibatch_size": 1}, base=_SAC_BASE)
    return replace(whole, minibatch_size=drawn.minibatch_size)


def make_model(algorithm: str, h: Hyperparameters, env: VecEnv, *, seed: int, tuned_entropy: bool) -> BaseAlgorithm:
    """A new model.

    :param tuned_entropy: SAC: tune the entropy coefficient, instead of using the given one.
    """
    sizes = list(h.hidden_sizes)
    model: BaseAlgorithm
    if algorithm == "sac":
        model = SAC(
            "MlpPolicy",
            env,
            learning_rate=h.learning_rate,
            buffer_size=_SAC_BUFFER,
            batch_size=h.minibatch_size,
            gamma=h.discount,
            train_freq=1,
            gradient_steps=-1,  # as many as environment steps were taken
            ent_coef="auto" if tuned_entropy else h.entropy_coef,
            policy_kwargs={"net_arch": sizes},
            seed=seed % 2**32,
            device="cpu",
        )
    else:
        model = PPO(
            "MlpPolicy",
            env,
            learning_rate=h.learning_rate,
            n_steps=h.num_steps,
            batch_size=h.minibatch_size,
            n_epochs=h.epochs,
            gamma=h.discount,
            gae_lambda=h.gae_lambda,
            clip_range=h.clip_range,
            ent_coef=h.entropy_coef,
            vf_coef=h.value_coef,
            max_grad_norm=h.max_grad_norm,
            target_kl=h.target_kl,
            policy_kwargs={
                "activation_fn": torch.nn.Tanh,
                "net_arch": {"pi": sizes, "vf": sizes},
                "log_std_init": h.initial_log_std,
            },
            seed=seed % 2**32,
            device="cpu",
        )
    silence(model)
    return model


def silence(model: BaseAlgorithm) -> None:
    """A logger without output: figures are read off it after each update."""
    model.set_logger(Logger(folder=None, output_formats=[]))


def network(algorithm: str) -> dict[str, Any]:
    """The entries of a policy's card that say how an algorithm's network acts."""
    return {"squash": True, "activation": "relu"} if algorithm == "sac" else {}


def tensors(model: BaseAlgorithm, card: PolicyCard) -> dict[str, np.ndarray]:
    """The bundle's tensors but for the observations' statistics."""
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
}
"""SB3's KL is the mean over the last epoch's minibatches, and thus the larger; the stacked PPO's is over all epochs'."""
_SAC_FIGURES = {
    "policy_loss": "train/actor_loss",
    "value_loss": "train/critic_loss",
    "entropy_coefficient": "train/ent_coef",
}


def figures(model: BaseAlgorithm) -> dict[str, float | None]:
    """What SB3 logged of the last update, under our names; entropy with its own sign."""
    logged: Mapping[str, Any] = model.logger.name_to_value
    names = _SAC_FIGURES if isinstance(model, SAC) else _PPO_FIGURES
    row = {ours: _number(logged.get(theirs)) for ours, theirs in names.items() if theirs in logged}
    if "train/entropy_loss" in logged:
        row["entropy"] = _number(-logged["train/entropy_loss"])
    return row


def _number(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
