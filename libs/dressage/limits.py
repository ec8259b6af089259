"""Bounds and names that more than one service goes by: the API before a session begins, and whoever does the work."""

from __future__ import annotations

MAX_UPDATE_SAMPLES = 2**26
"""Samples of one PPO update of a member, num_envs * num_steps, at most."""

MAX_UPDATE_VISITS = 2**30
"""Samples of one PPO update over all its epochs, whose orders are drawn together, at most."""

CHECKPOINT_INDEX = "checkpoints/index.json"
"""Below a run: the keys of its newest checkpoints, the newest first."""

CHECKPOINTS_INDEXED = 3
"""How many the index names at most; older checkpoints are deleted."""

SAC_HYPERPARAMETERS = ("learning_rate", "num_envs", "minibatch_size", "discount", "entropy_coef", "hidden_sizes")
"""Those of a config's hyperparameters that SAC has too; the others are PPO's alone."""
