"""Names and bounds that more than one service uses."""

from __future__ import annotations

CHECKPOINT_INDEX = "checkpoints/index.json"
"""Below a run: the keys of its newest checkpoints, the newest first."""

CHECKPOINTS_INDEXED = 3
"""How many the index names at most; older checkpoints are deleted."""
