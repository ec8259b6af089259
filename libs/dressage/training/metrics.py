"""Metrics of a training that other parts read: what the numbers of ``metrics.jsonl`` mean."""

from __future__ import annotations

EPISODE_WINDOW = 20
"""Episodes over which ``episode_return``, ``environment_return`` and ``episode_length`` are averaged: the last that ended."""
