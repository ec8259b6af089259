"""Ranges of seeds, apart from each other: what is trained or searched on is never what a score is confirmed on."""

from __future__ import annotations

TRAINING_SEED_LIMIT = 1_000_000
"""Training seeds, and a search's, are below this."""
EVALUATION_SEED = 1_000_000
"""First seed of evaluations."""
CONFIRMATION_SEED = 2_000_000
"""First seed of what confirms or reports a score."""
