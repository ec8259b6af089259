"""Names and bounds that more than one service uses."""

from __future__ import annotations

CHECKPOINT_INDEX = "checkpoints/index.json"
"""Below a run: the keys of its newest checkpoints, the newest first."""

REWARD_NOT_TRACEABLE = "REWARD_NOT_TRACEABLE"
"""Reason with which a training on a device fails whose reward cannot be compiled for it; on CPU cores it can train."""

CHECKPOINTS_INDEXED = 3
"""How many the index names at most; older checkpoints are deleted."""
