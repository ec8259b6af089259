"""The picture of a learning curve, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CURVE_FILE = "learning_curve.png"
"""Name of the picture, in the parent folder of the policy."""


@dataclass(frozen=True)
class Picture:
    """The result of drawing a learning curve."""

    path: Path | None = None
    missing: str = ""
    """Reason why there is no picture."""
