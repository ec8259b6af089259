"""Prometheus metrics of the judge."""

from __future__ import annotations

from dressage.serving.metrics import sandbox_kills
from prometheus_client import Counter

SANDBOX_KILLS = sandbox_kills()

DISAGREEMENTS = Counter(
    "dressage_judge_disagreements_total", "Rollouts on which code and video differed by more than 0.2."
)
