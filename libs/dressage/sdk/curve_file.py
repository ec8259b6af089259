"""The file of a session's learning curve, and why there may be none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CURVE_FILE = "learning_curve.png"
"""Picture of the learning curve, in the folder that has the policy's folder."""


@dataclass(frozen=True)
class Picture:
    """A learning curve that was to be drawn just now."""

    path: Path | None = None
    missing: str = ""
    """Why there is none."""
