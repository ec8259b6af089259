"""Exports a policy in the format of Stable-Baselines3: ``policy.zip`` and ``vecnormalize.pkl``.

SB3 itself writes both, so that its loaders and the scripts of rl-zoo read them. Only this module of the package imports
torch and SB3.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from dressage.errors import FailedPrecondition
from dressage.installation import install_command
from dressage.policies.bundle import Policy
from dressage.policies.card import PolicyCard

POLICY_FILE = "policy.zip"
NORMALIZER_FILE = "vecnormalize.pkl"


def to_sb3(policy: Policy, directory: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write ``policy.zip`` (for ``PPO.load``, or ``SAC.load``) and ``vecnormalize.pkl`` (for ``VecNormalize.load``).

    A bundle of SAC, or of a search, has the actor only. The critics in its ``policy.zip`` are untrained, so that it can act,
    but training cannot continue from it.

    :returns: the two paths.
    :raises FailedPrecondition: for a policy that is not an MLP, or if torch or Stable-Baselines3 is not installed.
    """
    if policy.description.kind != "mlp":
        raise FailedPrecondition(
            f"format: Stable-Baselines3 has no policy of kind {policy.description.kind}; expected an mlp. Export it to ONNX "
            "(--format onnx), or act with dressage.policies.load(folder).act(observation), which needs numpy and safetensors.",
            reason="KIND_NOT_EXPORTABLE",
            metadata={"kind": policy.description.kind, "format": "sb3"},
        )
    try:
        import gymnasium
        import torch  # noqa: F401  # `_model` needs it
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
    except ImportError as error:
        raise FailedPrecondition(
            f"exporting for Stable-Baselines3 needs torch and stable-baselines3: {install_command('sb3')}",
            reason="MISSING_PACKAGE",
        ) from error
    card = policy.description
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    env = DummyVecEnv([lambda: _spaces_only(gymnasium, policy)])
    _model(policy, env).save(folder / POLICY_FILE)
    normalizer = VecNormalize(
        env,
        training=False,
        norm_obs=card.normalize_observation,
        norm_reward=False,
        clip_obs=card.clip,
        clip_reward=card.statistics.get("reward_clip", 10.0),
        gamma=_discount(card),
        epsilon=card.epsilon,
    )
    _fill_statistics(normalizer, policy)
    normalizer.save(str(folder / NORMALIZER_FILE))
    return folder / POLICY_FILE, folder / NORMALIZER_FILE


def _discount(card: PolicyCard) -> float:
    return card.statistics.get("discount", 0.99)


def _model(policy: Policy, env: Any) -> Any:
    """Return a model of SB3 with the weights of the policy."""
    import torch
    from stable_baselines3 import PPO, SAC

    card = policy.description
    sizes = list(card.hidden_sizes)
    activation = torch.nn.Tanh if card.activation == "tanh" else torch.nn.ReLU
    critic = "qf" if card.squash else "vf"
    network: dict[str, Any] = {"activation_fn": activation, "net_arch": {"pi": sizes, critic: sizes}}
    model: Any
    if card.squash:
        model = SAC("MlpPolicy", env, device="cpu", gamma=_discount(card), buffer_size=1, policy_kwargs=network)
        target = model.actor
    else:
        model = PPO("MlpPolicy", env, device="cpu", gamma=_discount(card), policy_kwargs=network)
        target = model.policy
    tensors = {sb3_name(name, card): torch.as_tensor(np.asarray(value)) for name, value in _network(policy).items()}
    if card.actor_only:  # tensors that the bundle lacks stay as initialised
        tensors = {**target.state_dict(), **tensors}
    target.load_state_dict(tensors, strict=True)
    return model


def _network(policy: Policy) -> dict[str, Any]:
    return {name: value for name, value in policy.weights.items() if not name.startswith("obs_")}


def sb3_name(name: str, card: PolicyCard) -> str:
    """Return the name of a tensor in the policy of SB3, or in the actor of SAC.

    ``pi.1.weight`` is ``mlp_extractor.policy_net.2.weight``: SB3 counts activations as layers.
    """
    parts = name.split(".")
    if card.squash:
        layers = {"action": "mu", "log_std": "log_std"}
        head = f"latent_pi.{2 * int(parts[1])}" if parts[0] == "pi" else layers[parts[0]]
        return f"{head}.{parts[-1]}"
    towers = {"pi": "policy_net", "vf": "value_net"}
    if parts[0] in towers:
        return f"mlp_extractor.{towers[parts[0]]}.{2 * int(parts[1])}.{parts[2]}"
    if parts[0] in ("action", "value"):
        return f"{parts[0]}_net.{parts[1]}"
    return name


def _fill_statistics(normalizer: Any, policy: Policy) -> None:
    statistics = policy.description.statistics
    if policy.description.normalize_observation:
        normalizer.obs_rms.mean = np.asarray(policy.weights["obs_mean"], np.float64)
        normalizer.obs_rms.var = np.asarray(policy.weights["obs_var"], np.float64)
        normalizer.obs_rms.count = statistics.get("obs_count", 1e-4)
    normalizer.ret_rms.mean = np.float64(statistics.get("return_mean", 0.0))
    normalizer.ret_rms.var = np.float64(statistics.get("return_var", 1.0))
    normalizer.ret_rms.count = statistics.get("return_count", 1e-4)


def _spaces_only(gymnasium: Any, policy: Policy) -> Any:
    """Return an environment that only has spaces, which SB3 requires."""
    card = policy.description

    class SpacesOnly(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (card.observation_size,), np.float64)
        action_space = (
            gymnasium.spaces.Discrete(card.num_actions)
            if card.action_kind == "discrete"
            else gymnasium.spaces.Box(np.asarray(card.action_low, np.float32), np.asarray(card.action_high, np.float32))
        )

    return SpacesOnly()
