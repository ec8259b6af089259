"""Pictures of learning curves over runs: a panel for each environment or, of searches over programs, a picture for each.

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
from dressage.experiments.statistics import Interval
from dressage.experiments.successes import Success
from dressage.sdk.texts import counted

_COLUMNS = 3
_PANEL = (4.2, 3.2)


def draw(analysis: Analysis, folder: Path) -> list[Path]:
    """Write `curves-episodes.png` and, if models were called, `curves-tokens.png`; none without matplotlib.

    :return: the files.
    :raises OSError: if a file cannot be written.
    """
    if not _installed():
        return []
    written = []
    for axis in ("episodes", "tokens"):
        lines = [line for line in analysis.curves if line.axis == axis]
        if not lines:
            continue
        path = folder / f"curves-{axis}.png"
        _save(_figure(analysis, lines), path)
        written.append(path)
    return written


def draw_successes(rows: Sequence[Success], folder: Path) -> dict[str, Path]:
    """Write a picture for each environment of searches over programs; none without matplotlib.

    :param rows: see `dressage.experiments.successes`.
    :return: the file of each environment.
    :raises OSError: if a file cannot be written.
    """
    if not _installed():
        return {}
    methods = list(dict.fromkeys(row.method for row in rows))
    written = {}
    for environment in dict.fromkeys(row.environment for row in rows):
        path = folder / f"{file_name(environment)}.png"
        _save(_success_figure([row for row in rows if row.environment == environment], methods), path)
        written[environment] = path
    return written


def file_name(name: str) -> str:
    """Return a name with hyphens for what a file's name should not have."""
    return re.sub("[^A-Za-z0-9_.-]", "-", name)


def _installed() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _save(figure: Any, path: Path) -> None:
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes, which needs no warning
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, format="png", metadata={"Software": None})


def _figure(analysis: Analysis, lines: Sequence[CurveLine]) -> Any:
    """Return a figure with a panel for each environment of the lines."""
    from matplotlib.figure import Figure

    environments = list(dict.fromkeys(line.environment for line in lines))
    columns = min(_COLUMNS, len(environments))
    rows = -(-len(environments) // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.5), dpi=110, layout="constrained")
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


def _success_figure(rows: Sequence[Success], methods: Sequence[str]) -> Any:
    """Return a figure of an environment: reached, solved and best return against programs evaluated.

    :param methods: of all environments, so that each has the same colour everywhere.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL[0] * _COLUMNS, _PANEL[1] + 0.5), dpi=90, layout="constrained")
    panels: Any = figure.subplots(1, _COLUMNS)
    for row in rows:
        # Methods can have the same runs: dashes of different lengths show both.
        number = methods.index(row.method)
        style = {
            "color": f"C{number}",
            "drawstyle": "steps-post",
            "linestyle": "-" if number == 0 else (2 * number, (5, 2 + number)),
        }
        for panel, values in zip(panels, (row.curve.reached, row.curve.solved, row.curve.best), strict=True):
            _draw_line(panel, row, values, style)
    lowest = min(value.low for row in rows for value in row.curve.best)
    labels = ("runs that reach the target", "runs that solve the task", "best return on search states")
    for panel, label in zip(panels, labels, strict=True):
        panel.set_xscale("log")
        panel.set_xlabel("programs evaluated")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        panel.set_ylim(min(-0.03, lowest) if panel is panels[-1] else -0.03, 1.03)
    figure.suptitle(rows[0].environment)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize="small", handlelength=4)
    return figure


def _draw_line(panel: Any, row: Success, values: Sequence[Interval], style: dict[str, Any]) -> None:
    programs = row.curve.programs
    panel.plot(programs, [value.value for value in values], label=f"{row.method} ({counted(row.runs, 'run')})", **style)
    low, high = [value.low for value in values], [value.high for value in values]
    panel.fill_between(programs, low, high, color=style["color"], alpha=0.13, linewidth=0, step="post")
