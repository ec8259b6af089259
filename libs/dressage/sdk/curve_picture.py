"""Draws learning curves: returns under the proposed reward, under the environment's reward, and scores of the judge.

Each is a panel over the environment steps; one without values is left out. A colour is a config; bands and bars are the spread
over seeds. matplotlib (extra ``plots``) is imported when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dressage.errors import FailedPrecondition
from dressage.installation import install_command
from dressage.sdk.curve_data import Curve, Returns
from dressage.sdk.curve_file import write_figure
from dressage.training.metrics import EPISODE_WINDOW

_TRAINING = f"training, mean of the last {EPISODE_WINDOW} episodes, sampled actions"
_EVALUATION = "evaluation, deterministic policy"
_PROPOSED = "episode return under the proposed reward"
_STOCK = "episode return under the environment's reward"
_SCORE = "score of the judge"


@dataclass(frozen=True)
class References:
    """Horizontal lines."""

    random: float | None = None
    """Mean return of the random policy under the environment's reward."""
    threshold: float | None = None
    """Score from which the judge passes a policy."""


@dataclass(frozen=True)
class _Panel:
    """What one panel shows."""

    label: str
    curves: tuple[tuple[Curve | None, Curve | None], ...]
    """Line and points of each config."""
    reference: float | None = None
    reference_label: str = ""

    @property
    def drawn(self) -> list[Curve]:
        return [curve for pair in self.curves for curve in pair if curve is not None]


_NO_REFERENCES = References()


def draw(curves: Mapping[str, Returns], path: Path, *, title: str, references: References = _NO_REFERENCES) -> None:
    """Write the picture.

    :raises FailedPrecondition: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = f"a learning curve needs matplotlib: {install_command('plots')}"
        raise FailedPrecondition(message, reason="MISSING_PACKAGE") from error
    panels = [panel for panel in _panels(curves, references) if panel.drawn]
    count = max(len(panels), 1)
    figure = Figure(figsize=(8, 1.8 + 3.2 * count if count > 1 else 5), dpi=120, layout="constrained")
    rows: Any = figure.subplots(count, 1, sharex=True, squeeze=False)
    for axes, panel in zip(rows[:, 0], panels, strict=False):
        _draw_panel(axes, panel)
    rows[-1, 0].set_xlabel("environment steps of each member")
    rows[0, 0].set_title(title, wrap=True)
    # Below the axes, because there is no room next to the lines of nine configs.
    figure.legend(handles=_legend(curves, panels), loc="outside lower center", ncols=2, fontsize="small")
    write_figure(figure, path)


def _panels(curves: Mapping[str, Returns], references: References) -> list[_Panel]:
    configs = curves.values()
    stock = tuple((each.stock_training, each.stock_evaluation) for each in configs)
    return [
        _Panel(_PROPOSED, tuple((each.training, each.evaluation) for each in configs)),
        _Panel(_STOCK, stock, references.random, "random policy"),
        _Panel(_SCORE, tuple((None, each.score) for each in configs), references.threshold, "pass threshold"),
    ]


def _draw_panel(axes: Any, panel: _Panel) -> None:
    for number, (line, points) in enumerate(panel.curves):
        _draw_config(axes, line, points, colour=f"C{number}")
    if panel.reference is not None:
        axes.axhline(panel.reference, color="dimgray", linestyle="-.", linewidth=1)
        # In the panel and not in the legend, because each panel has a reference of its own.
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "xytext": (0, 3)}
        axes.annotate(
            panel.reference_label, (0.99, panel.reference), ha="right", fontsize="small", color="dimgray", **place
        )
    if panel.label == _SCORE:
        axes.set_ylim(-0.03, 1.03)
    spread = "\n(mean ± standard deviation over seeds)" if any(curve.seeds > 1 for curve in panel.drawn) else ""
    axes.set_ylabel(f"{panel.label}{spread}", fontsize="small")
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_config(axes: Any, line: Curve | None, points: Curve | None, *, colour: str) -> None:
    if line is not None:
        axes.plot(line.steps, line.mean, color=colour, marker="s" if len(line.steps) == 1 else None)
        if line.seeds > 1:
            low, high = line.mean - line.deviation, line.mean + line.deviation
            axes.fill_between(line.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    if points is not None:
        axes.errorbar(
            points.steps,
            points.mean,
            yerr=points.deviation if points.seeds > 1 else None,
            color=colour,
            marker="o",
            markeredgecolor="white",
            linestyle="--",
            linewidth=1.2,
            elinewidth=1,
            zorder=3,
        )


def _legend(curves: Mapping[str, Returns], panels: list[_Panel]) -> list[Any]:
    """Return the entries of the legend: a colour for each config, then lines and points."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=f"C{number}", label=f"{name} ({_seeds(returns)})")
        for number, (name, returns) in enumerate(curves.items())
    ]
    pairs = [pair for panel in panels for pair in panel.curves]
    lines = [line for line, _ in pairs if line is not None]
    if lines:
        marker = "s" if all(len(line.steps) == 1 for line in lines) else None
        handles.append(Line2D([], [], color="black", marker=marker, label=_TRAINING))
    if any(points is not None for _, points in pairs):
        point = Line2D([], [], color="black", marker="o", markeredgecolor="white", linestyle="--", label=_EVALUATION)
        handles.append(point)
    return handles


def _seeds(returns: Returns) -> str:
    pair = (returns.training or returns.stock_training, returns.evaluation or returns.stock_evaluation)
    numbers = [curve.seeds for curve in pair if curve is not None]
    if len(set(numbers)) > 1:
        return f"seeds: {numbers[0]} in training, {numbers[1]} in evaluation"
    seeds = numbers[0] if numbers else 1
    return f"{seeds} seed{'s' if seeds > 1 else ''}"
