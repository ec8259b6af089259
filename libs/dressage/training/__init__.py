"""Training settings that the service and the trainer share: hyperparameters with their rules, and presets by environment.

Importing this package loads no simulator and no learning framework.
"""

EPISODE_WINDOW = 20
"""Episodes over which ``episode_return``, ``environment_return`` and ``episode_length`` are averaged: the last that ended."""
