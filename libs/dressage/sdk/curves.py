"""Draws the learning curve of a session's best training: a colour for each config, with the spread over seeds.

Lines show training episodes, from ``metrics.jsonl`` of the members. Points show evaluations, which also exist if training was
too short for an episode to end. Both are returns under the proposed reward. matplotlib (extra ``plots``) is imported when a
curve is drawn.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.api.v1 import session_pb2 as pb
from dressage.errors import DressageError, FailedPrecondition
from dressage.installation import install_command
from dressage.local.connection import Connection
from dressage.sdk.curve_file import CURVE_FILE, Picture
from dressage.sdk.progress import short

_POINTS = 200
_POLICY = re.compile(r"^(?P<members>.+/assignments/[^/]+/members)/(?P<member>[^/]+)/policy$")
_METRICS = re.compile(r"/members/(?P<config>[^/]+)-s\d+/metrics\.jsonl$")
_MAX_BYTES = 64 * 2**20
_TRAINING = "training episodes, sampled actions"
_EVALUATION = "evaluation, deterministic policy"
_NOTHING = "no episode ended and nothing was evaluated"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One config's returns over its seeds, on common steps."""

    steps: Array
    mean: Array
    deviation: Array
    """Standard deviation over seeds; 0 for one seed."""
    seeds: int


@dataclass(frozen=True)
class Returns:
    """The curves of one config; either may be missing."""

    training: Curve | None = None
    evaluation: Curve | None = None


def read_rows(text: str) -> tuple[Array, Array]:
    """Return steps and mean episode returns of one member; rows without an ended episode and incomplete lines are skipped."""
    points = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        step, value = row.get("step"), row.get("episode_return")
        if isinstance(step, int | float) and isinstance(value, int | float):
            points.append((float(step), float(value)))
    table = np.array(points, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def combine(members: Sequence[tuple[Array, Array]]) -> Curve | None:
    """Return mean and deviation over seeds, at steps where all of them have points; None if there are none."""
    drawn = [(steps, values) for steps, values in members if len(steps)]
    if not drawn:
        return None
    first, last = max(steps[0] for steps, _ in drawn), min(steps[-1] for steps, _ in drawn)
    if first > last:
        return None
    grid = np.linspace(first, last, _POINTS if last > first else 1)
    return _over_seeds(grid, np.stack([np.interp(grid, steps, returns) for steps, returns in drawn]))


def combine_evaluations(members: Sequence[pb.Member]) -> Curve | None:
    """Return mean and deviation over seeds of the mean proposed return of evaluations, at the steps that all evaluated
    members have; None if there are none."""
    returns = [
        {e.env_step: float(np.mean(e.proposed_returns)) for e in m.evaluations if e.proposed_returns} for m in members
    ]
    evaluated = [by_step for by_step in returns if by_step]
    steps = sorted(set.intersection(*(set(by_step) for by_step in evaluated))) if evaluated else []
    if not steps:
        return None
    values = np.array([[by_step[step] for step in steps] for by_step in evaluated])
    return _over_seeds(np.array(steps, dtype=np.float64), values)


def _over_seeds(steps: Array, values: Array) -> Curve:
    """Return the curve of (seeds, steps) values."""
    return Curve(steps, values.mean(axis=0), values.std(axis=0, ddof=int(len(values) > 1)), len(values))


def draw(curves: Mapping[str, Returns], path: Path, *, title: str) -> None:
    """Write the picture.

    :raises FailedPrecondition: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FailedPrecondition(
            f"a learning curve needs matplotlib: {install_command('plots')}", reason="MISSING_PACKAGE"
        ) from error
    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes: Any = figure.add_subplot()
    for number, returns in enumerate(curves.values()):
        _draw_config(axes, returns, colour=f"C{number}")
    drawn = [
        curve for returns in curves.values() for curve in (returns.training, returns.evaluation) if curve is not None
    ]
    spread = "\n(mean ± standard deviation over seeds)" if any(curve.seeds > 1 for curve in drawn) else ""
    axes.set_xlabel("environment steps of each member")
    axes.set_ylabel(f"episode return under the proposed reward{spread}")
    axes.set_title(title, wrap=True)
    axes.grid(alpha=0.3)
    # Below the axes, because there is no room next to the lines of nine configs.
    figure.legend(handles=_legend(curves), loc="outside lower center", ncols=2, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes, which needs no warning
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, format="png")


def _draw_config(axes: Any, returns: Returns, *, colour: str) -> None:
    line, points = returns.training, returns.evaluation
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
            linestyle="none" if line is not None else ":",  # without a line, connect the points
            elinewidth=1,
            zorder=3,
        )


def _legend(curves: Mapping[str, Returns]) -> list[Any]:
    """Return the entries of the legend: a colour for each config, then lines and points."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=f"C{number}", label=f"{name} ({_seeds(returns)})")
        for number, (name, returns) in enumerate(curves.items())
    ]
    lines = [returns.training for returns in curves.values() if returns.training is not None]
    if lines:
        marker = "s" if all(len(line.steps) == 1 for line in lines) else None
        handles.append(Line2D([], [], color="black", marker=marker, label=_TRAINING))
    if any(returns.evaluation is not None for returns in curves.values()):
        point = Line2D([], [], color="black", marker="o", markeredgecolor="white", linestyle="none", label=_EVALUATION)
        handles.append(point)
    return handles


def _seeds(returns: Returns) -> str:
    numbers = [curve.seeds for curve in (returns.training, returns.evaluation) if curve is not None]
    if len(set(numbers)) > 1:
        return f"seeds: {numbers[0]} in training, {numbers[1]} in evaluation"
    return f"{numbers[0]} seed{'s' if numbers[0] > 1 else ''}"


async def load_curves(session: pb.Session, connection: Connection) -> dict[str, Returns] | None:
    """Load the curves of the training that the best policy is from, by config; None where there is no such training."""
    match = _POLICY.match(session.best_policy)
    return None if match is None else await _load(match["members"], connection)


def title(session: pb.Session) -> str:
    """The title of the picture."""
    environment = session.spec.environment.removeprefix("environments/")
    return f"{_shortened(session.spec.intent)} · {environment}"


async def save(session: pb.Session, connection: Connection) -> Picture | None:
    """Draw the curves of the training of the best policy; None if there is no such training.

    The picture is written next to the policy if the artifacts are on this machine, else to the current folder.
    """
    curves = await load_curves(session, connection)
    if curves is None:
        return None
    policy = connection.local_path(session.best_policy)
    name = f"learning-curve-{short(session.name)}.png"
    return draw_to(curves, policy.parent / CURVE_FILE if policy is not None else Path(name).absolute(), session)


def draw_to(curves: Mapping[str, Returns], path: Path, session: pb.Session) -> Picture:
    """Draw the picture into a file; why there is none is in the result."""
    if not curves:
        return Picture(missing=_NOTHING)
    try:
        draw(curves, path, title=title(session))
    except FailedPrecondition as error:
        if error.reason != "MISSING_PACKAGE":
            raise
        return Picture(missing=error.message)
    except OSError as error:  # the summary is printed even if the picture cannot be written
        return Picture(missing=f"the file cannot be written: {error}")
    return Picture(path)


def _shortened(text: str, limit: int = 70) -> str:
    line = " ".join(text.split()).replace("$", r"\$")
    return line if len(line) <= limit else line[: limit - 1] + "…"


async def _load(prefix: str, connection: Connection) -> dict[str, Returns]:
    """Return the curves by config, in the order of their names."""
    rows: dict[str, list[tuple[Array, Array]]] = {}
    async for artifact in connection.client.list_artifacts(f"{prefix}/"):
        match = _METRICS.search(artifact.key)
        if match is not None and artifact.size <= _MAX_BYTES:
            rows.setdefault(match["config"], []).append(read_rows(await _text(artifact.key, connection)))
    evaluated: dict[str, list[pb.Member]] = {}
    for member in await _members(prefix, connection):
        evaluated.setdefault(member.config, []).append(member)
    curves = {
        config: Returns(combine(rows.get(config, [])), combine_evaluations(evaluated.get(config, [])))
        for config in sorted({*rows, *evaluated})
    }
    return {config: returns for config, returns in curves.items() if returns != Returns()}


async def _members(prefix: str, connection: Connection) -> Sequence[pb.Member]:
    try:
        assignment = await connection.client.get_assignment(prefix.removesuffix("/members"))
    except DressageError:
        return []  # the training curves can be drawn without the evaluations
    return assignment.members


async def _text(key: str, connection: Connection) -> str:
    local = connection.local_path(key)
    if local is not None:
        return local.read_text("utf-8", errors="replace")
    try:
        chunks = [chunk async for chunk in connection.client.read_artifact(key)]
    except DressageError:
        return ""  # the curves of the other members can be drawn
    return b"".join(chunks).decode("utf-8", errors="replace")
