"""Draws learning curves as PNG files.

The curves of a training are panels over the environment steps: returns under the proposed reward, under the environment's
reward, and scores of the judge; one without values is left out. A colour is a config; bands and bars are the spread over seeds.
matplotlib (extra ``plots``) is imported when a picture is drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressage.api.v1 import session_pb2 as pb
from dressage.errors import FailedPrecondition
from dressage.installation import install_command
from dressage.local.connection import Connection
from dressage.sdk.curves import Returns, load_points, load_returns
from dressage.sdk.progress import is_search
from dressage.sdk.scores import CURVE_FILE, LearningCurve, SearchPoint, SearchSeries, Series
from dressage.sdk.texts import short
from dressage.training import EPISODE_WINDOW

_TRAINING = f"training, mean of the last {EPISODE_WINDOW} episodes, sampled actions"
_EVALUATION = "evaluation, deterministic policy"
_PROPOSED = "episode return under the proposed reward"
_STOCK = "episode return under the environment's reward"
_SCORE = "score of the judge"
_MISSING_PACKAGE = "MISSING_PACKAGE"
_TITLE_LENGTH = 70


async def learning_curve(
    session: pb.Session, connection: Connection, *, path: Path | None = None
) -> LearningCurve | None:
    """Load the learning curve of a session and draw it; None without a policy, or one that no training made.

    :param path: of the picture; by default next to the policy if the artifacts are on this machine, else in the current folder.
    """
    if not session.best_policy:
        return None
    policy = connection.local_path(session.best_policy)
    if path is None and policy is not None:
        path = policy.parent / CURVE_FILE
    path = path or Path(f"learning-curve-{short(session.name)}.png").absolute()
    if is_search(session):
        points = await load_points(session, connection)
        missing = draw_search(points, path, session)
        picture = None if missing else path
        return LearningCurve({}, {}, picture, search=SearchSeries.of(points), missing=missing)
    curves = await load_returns(session, connection)
    if curves is None:
        return None
    missing = draw_training(curves, path, session)
    return LearningCurve(
        training={config: returns.training for config, returns in curves.items() if returns.training is not None},
        evaluation={config: returns.evaluation for config, returns in curves.items() if returns.evaluation is not None},
        picture=None if missing else path,
        missing=missing,
    )


def draw_training(curves: Mapping[str, Returns], path: Path, session: pb.Session) -> str:
    """Draw the curves of a training into a file; return why there is no picture, empty if there is one."""
    if not curves:
        return "no episode ended and nothing was evaluated"
    random = session.returns.random_mean if session.HasField("returns") else None
    judged = session.HasField("best_judgment") and session.spec.pass_threshold > 0
    references = References(random, session.spec.pass_threshold if judged else None)
    return _draw_or_explain(lambda: draw_returns(curves, path, title=_title(session), references=references))


def draw_search(points: Sequence[SearchPoint], path: Path, session: pb.Session) -> str:
    """Draw the curve of a search into a file; return why there is no picture, empty if there is one."""
    if not points:
        return "no candidate was evaluated"
    report = session.report.mean if session.HasField("report") else None
    programs = session.method == "program"
    return _draw_or_explain(lambda: draw_points(points, path, title=_title(session), report=report, programs=programs))


def _draw_or_explain(draw: Callable[[], None]) -> str:
    """Draw, and return why that is not possible, because a result is printed also without its picture."""
    try:
        draw()
    except FailedPrecondition as error:
        if error.reason != _MISSING_PACKAGE:
            raise
        return error.message
    except OSError as error:
        return f"the file cannot be written: {error}"
    return ""


def _title(session: pb.Session) -> str:
    line = " ".join(session.spec.intent.split()).replace("$", r"\$")
    intent = line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"
    return f"{intent} · {session.spec.environment.removeprefix('environments/')}"


def _figure(*, height: float) -> Any:
    """Make a figure.

    :param height: in inches.
    :raises FailedPrecondition: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        message = f"a learning curve needs matplotlib: {install_command('plots')}"
        raise FailedPrecondition(message, reason=_MISSING_PACKAGE) from error
    return Figure(figsize=(8, height), dpi=120, layout="constrained")


def _write(figure: Any, path: Path) -> None:
    """Write a figure as PNG; who may read its folder may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes, which needs no warning
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, format="png")
    path.chmod(path.parent.stat().st_mode & 0o666)  # in the artifact store a private folder


def draw_points(
    curve: Sequence[SearchPoint], path: Path, *, title: str, report: float | None, programs: bool = False
) -> None:
    """Write the picture: a point for each iteration, a line for the best so far, and the score on report seeds.

    :param programs: whether the candidates are programs, of which there are up to millions: the axis is logarithmic.
    :raises FailedPrecondition: if matplotlib is not installed.
    """
    figure = _figure(height=5)
    axes: Any = figure.add_subplot()
    episodes = [point.episodes for point in curve]
    axes.plot(episodes, [point.score for point in curve], ".", color="C0", alpha=0.5, label="chosen candidate")
    axes.step(episodes, [point.best for point in curve], where="post", color="C0", label="best so far")
    if report is not None:
        axes.axhline(report, color="C1", linestyle="--", label="score on report seeds")
    axes.set_xlabel("programs evaluated" if programs else "episodes of the search")
    if programs:
        axes.set_xscale("log")
    axes.set_ylabel("mean return on search seeds")
    axes.set_title(title, wrap=True)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    _write(figure, path)


# Trainings.


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
    curves: tuple[tuple[Series | None, Series | None], ...]
    """Line and points of each config."""
    reference: float | None = None
    reference_label: str = ""

    @property
    def series(self) -> list[Series]:
        return [curve for pair in self.curves for curve in pair if curve is not None]


_NO_REFERENCES = References()


def draw_returns(
    curves: Mapping[str, Returns], path: Path, *, title: str, references: References = _NO_REFERENCES
) -> None:
    """Write the picture.

    :raises FailedPrecondition: if matplotlib is not installed.
    """
    panels = [panel for panel in _panels(curves, references) if panel.series]
    count = max(len(panels), 1)
    figure = _figure(height=1.8 + 3.2 * count if count > 1 else 5)
    rows: Any = figure.subplots(count, 1, sharex=True, squeeze=False)
    for axes, panel in zip(rows[:, 0], panels, strict=False):
        _draw_panel(axes, panel)
    rows[-1, 0].set_xlabel("environment steps of each member")
    rows[0, 0].set_title(title, wrap=True)
    # Below the axes, because there is no room next to the lines of nine configs.
    figure.legend(handles=_legend(curves, panels), loc="outside lower center", ncols=2, fontsize="small")
    _write(figure, path)


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
    spread = "\n(mean ± standard deviation over seeds)" if any(curve.seeds > 1 for curve in panel.series) else ""
    axes.set_ylabel(f"{panel.label}{spread}", fontsize="small")
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_config(axes: Any, line: Series | None, points: Series | None, *, colour: str) -> None:
    if line is not None:
        axes.plot(line.steps, line.mean, color=colour, marker="s" if len(line.steps) == 1 else None)
        if line.seeds > 1:
            low, high = np.subtract(line.mean, line.deviation), np.add(line.mean, line.deviation)
            axes.fill_between(line.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    if points is not None:
        axes.errorbar(
            np.array(points.steps),
            np.array(points.mean),
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
