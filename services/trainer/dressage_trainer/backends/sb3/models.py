"""Build Stable-Baselines3's models from our hyperparameters, and our bundle's tensors from its models."""

from __future__ import annotations

import io
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
"""Environment steps of SAC between two reports, approximately; it learns after every step."""
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
_REPLAY = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def complete(algorithm: str, given: Mapping[str, Any], base: Hyperparameters) -> Hyperparameters:
    """Return a member's hyperparameters: PPO's start from the environment's preset, SAC's from its own defaults.

    :raises InvalidArgument: for one that the algorithm does not have, or an invalid value.
    """
    if algorithm == "ppo":
        return Hyperparameters.for_run(given, base=base)
    for name in given:
        if name not in _SAC_USES:
            expected = f"one that sac has: {', '.join(SAC_HYPERPARAMETERS)}"
            raise InvalidArgument(field="hyperparameters", value=name, expected=expected)
    # SAC draws minibatches from the replay buffer, whatever the number of environments.
    size = {"minibatch_size": given.get("minibatch_size", _SAC_BASE.minibatch_size)}
    drawn = Hyperparameters.from_dict(size, base=replace(_SAC_BASE, num_envs=1, num_steps=_SAC_BUFFER))
    whole = Hyperparameters.from_dict({**given, "minibatch_size": 1}, base=_SAC_BASE)
    return replace(whole, minibatch_size=drawn.minibatch_size)


def stated(algorithm: str, h: Hyperparameters, *, tuned_entropy: bool) -> dict[str, Any]:
    """Return the hyperparameters that an algorithm uses, as JSON values."""
    values = h.to_dict()
    if algorithm == "ppo":
        return values
    own = {name: value for name, value in values.items() if name in _SAC_USES}
    return {**own, "entropy_coef": "auto"} if tuned_entropy else own


def chunk_steps(algorithm: str, h: Hyperparameters) -> int:
    """Return the environment steps of a member between two reports."""
    if algorithm == "ppo":
        return h.batch_size
    return max(1, SAC_STEPS // h.num_envs) * h.num_envs


def buffer_size(h: Hyperparameters, steps: int) -> int:
    """Return the size of SAC's replay buffer: all transitions of a run, up to a limit.

    Its memory is reserved at once and counts against the learner's limit. Training continues to the end of the chunk that
    reaches the last step.

    :param steps: environment steps of the run.
    """
    return min(_SAC_BUFFER, steps + chunk_steps("sac", h))


def transition_bytes(observation_size: int, action_size: int) -> int:
    """Return the size of a transition in SAC's replay buffer: two observations, an action and three numbers."""
    return 4 * (2 * observation_size + action_size + 3)


def make_model(
    algorithm: str, h: Hyperparameters, env: VecEnv, *, seed: int, tuned_entropy: bool, steps: int = _SAC_BUFFER
) -> BaseAlgorithm:
    """Create a model.

    :param tuned_entropy: SAC: tune the entropy coefficient, instead of using the given one.
    :param steps: environment steps of the training.
    """
    sac = algorithm == "sac"
    model = _sac(h, env, seed=seed, tuned_entropy=tuned_entropy, steps=steps) if sac else _ppo(h, env, seed=seed)
    silence(model)
    return model


def _sac(h: Hyperparameters, env: VecEnv, *, seed: int, tuned_entropy: bool, steps: int) -> BaseAlgorithm:
    return SAC(
        "MlpPolicy",
        env,
        learning_rate=h.learning_rate,
        buffer_size=buffer_size(h, steps),
        batch_size=h.minibatch_size,
        gamma=h.discount,
        train_freq=1,
        gradient_steps=-1,  # as many as environment steps were taken
        ent_coef="auto" if tuned_entropy else h.entropy_coef,
        policy_kwargs={"net_arch": list(h.hidden_sizes)},
        seed=seed % 2**32,
        device="cpu",
    )


def _ppo(h: Hyperparameters, env: VecEnv, *, seed: int) -> BaseAlgorithm:
    return PPO(
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
        # SB3 refuses to normalise minibatches of one sample, and does not normalise a last one, as our PPO does with all.
        normalize_advantage=h.minibatch_size > 1,
        max_grad_norm=h.max_grad_norm,
        target_kl=h.target_kl,
        policy_kwargs={
            "activation_fn": torch.nn.Tanh,
            "net_arch": {"pi": list(h.hidden_sizes), "vf": list(h.hidden_sizes)},
            "log_std_init": h.initial_log_std,
        },
        seed=seed % 2**32,
        device="cpu",
    )


def loaded(model: BaseAlgorithm, file: io.BytesIO, env: VecEnv, *, buffer: int) -> BaseAlgorithm:
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
        stored = arrays[f"replay/{name}"]
        # In a larger buffer the oldest comes first, and the newest is followed by free places.
        getattr(buffer, name)[:filled] = np.roll(stored, -int(place), axis=0) if grown else stored
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
