"""Disjoint ranges of seeds: seeds of training and search are never used for evaluation or confirmation."""

from __future__ import annotations

TRAINING_SEED_LIMIT = 1_000_000
"""Upper bound of seeds for training and search."""
EVALUATION_SEED = 1_000_000
"""First seed of evaluations."""
CONFIRMATION_SEED = 2_000_000
"""First seed of confirmations and reported scores."""
