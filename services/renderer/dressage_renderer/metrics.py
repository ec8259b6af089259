"""Prometheus metrics of the renderer."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

FRAMES = Counter("dressage_render_frames_total", "Rendered frames.")
SECONDS = Histogram(
    "dressage_render_seconds",
    "Seconds that rendering and encoding one video took.",
    buckets=(0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600),
)
