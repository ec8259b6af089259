"""Pictures of learning curves over runs, with a panel for each environment.

matplotlib (extra ``plots``) is imported on use.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dressage.experiments.analysis import Analysis, CurveLine

_COLUMNS = 3
PANEL = (4.2, 3.2)


def draw(analysis: Analysis, folder: Path) -> list[Path]:
    """Write `curves-episodes.png` and, if models were called, `curves-tokens.png`; none without matplotlib.

    :return: the files.
    :raises OSError: if a file cannot be written.
    """
    if not is_installed():
        return []
    written = []
    for axis in ("episodes", "tokens"):
        lines = [line for line in analysis.curves if line.axis == axis]
        if not lines:
            continue
        path = folder / f"curves-{axis}.png"
        save(_figure(analysis, lines), path)
        written.append(path)
    return written


def file_name(name: str) -> str:
    """Return a name with hyphens for what a file's name should not have."""
    return re.sub("[^A-Za-z0-9_.-]", "-", name)


def is_installed() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG."""
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes, which needs no warning
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, format="png", metadata={"Software": None})


def _figure(analysis: Analysis, lines: Sequence[CurveLine]) -> Any:
    """Return a figure with a panel for each environment of the lines."""
    from matplotlib.figure import Figure

    environments = list(dict.fromkeys(line.environment for line in lines))
    columns = min(_COLUMNS, len(environments))
    rows = -(-len(environments) // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows + 0.5), dpi=110, layout="constrained")
    panels: Any = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, environment in zip(panels, environments, strict=False):
        _draw_panel(panel, analysis, environment, [line for line in lines if line.environment == environment])
    for panel in panels[len(environments) :]:
        panel.axis("off")
    panels[0].set_ylabel("best score so far")
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=4, fontsize="small")
    return figure


def _draw_panel(panel: Any, analysis: Analysis, environment: str, lines: Sequence[CurveLine]) -> None:
    colours = {method: f"C{number}" for number, method in enumerate(analysis.results.methods)}
    for line in lines:
        panel.plot(line.positions, line.mean, color=colours[line.method], label=line.method)
        panel.fill_between(line.positions, line.low, line.high, color=colours[line.method], alpha=0.2, linewidth=0)
    targets = [row.target for row in analysis.rows if row.environment == environment and row.target is not None]
    if targets:
        panel.axhline(targets[0], color="grey", linestyle=":")
    panel.set_title(environment)
    panel.set_xlabel(lines[0].axis)
    panel.grid(alpha=0.3)
