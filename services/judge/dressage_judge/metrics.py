"""Prometheus metrics of the judge."""

from __future__ import annotations

from prometheus_client import Counter

SANDBOX_KILLS = Counter(
    "dressage_sandbox_kills_total", "Generated code that had to be ended in the sandbox, by reason.", ["reason"]
)

DISAGREEMENTS = Counter(
    "dressage_judge_disagreements_total", "Rollouts on which code and video differed by more than 0.2."
)
