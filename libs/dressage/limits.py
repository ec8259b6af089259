"""Bounds that more than one service checks: the API before a session begins, and whoever does the work before it starts."""

from __future__ import annotations

MAX_UPDATE_SAMPLES = 2**26
"""Samples of one PPO update of a member, num_envs * num_steps, at most."""

SAC_HYPERPARAMETERS = ("learning_rate", "num_envs", "minibatch_size", "discount", "entropy_coef", "hidden_sizes")
"""Those of a config's hyperparameters that SAC has too; the others are PPO's alone."""
