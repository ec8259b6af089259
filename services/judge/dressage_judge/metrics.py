"""Prometheus metrics of the judge."""

from __future__ import annotations

from dressage.serving.metrics import sandbox_kills

SANDBOX_KILLS = sandbox_kills()
