"""Hyperparameters that reach a good return fast on two cores, by environment.

They differ from the textbook's in what a stacked update makes cheap: many environments, short rollouts, large
minibatches. What is not listed uses `DEFAULT`.
"""

from __future__ import annotations

from dressage_trainer.ppo.hyperparameters import Hyperparameters

DEFAULT = Hyperparameters(
    learning_rate=5e-4,
    num_envs=16,
    num_steps=128,
    minibatch_size=256,
    epochs=8,
    discount=0.99,
    gae_lambda=0.95,
)

PRESETS: dict[str, Hyperparameters] = {
    "HalfCheetah-v5": DEFAULT,
    "Hopper-v5": DEFAULT,
    "InvertedPendulum-v5": DEFAULT,
}


def preset(environment: str) -> Hyperparameters:
    """The preset of an environment; `DEFAULT` where it has none of its own."""
    return PRESETS.get(environment, DEFAULT)
