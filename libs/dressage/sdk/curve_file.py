"""The picture of a learning curve, or the reason why there is none."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CURVE_FILE = "learning_curve.png"
"""Name of the picture, in the parent folder of the policy."""


@dataclass(frozen=True)
class Picture:
    """The result of drawing a learning curve."""

    path: Path | None = None
    missing: str = ""
    """Reason why there is no picture."""


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib as PNG; who may read its folder may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes, which needs no warning
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, format="png")
    path.chmod(path.parent.stat().st_mode & 0o666)  # in the artifact store a private folder
