"""The learning curve of a session's best training, as a picture beside the policy: one line per config, spread over seeds.

Drawn from the members' ``metrics.jsonl``. matplotlib (extra ``plots``) is imported when a curve is drawn.
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
from dressage.cli.connection import Connection
from dressage.cli.progress import short
from dressage.cli.summary import CURVE_FILE
from dressage.errors import DressageError, FailedPrecondition

_POINTS = 200
_POLICY = re.compile(r"^(?P<members>.+/runs/[^/]+/members)/(?P<member>[^/]+)/policy$")
_METRICS = re.compile(r"/members/(?P<config>[^/]+)-s\d+/metrics\.jsonl$")
_MAX_BYTES = 64 * 2**20

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One config's curve over its seeds, on common steps."""

    steps: Array
    mean: Array
    deviation: Array
    """Standard deviation over seeds; 0 for one seed."""
    seeds: int


def read_rows(text: str) -> tuple[Array, Array]:
    """Steps and mean episode returns of one member; rows without an ended episode are left out, as are cut-off lines."""
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
    """Mean and deviation over seeds, where all of them have points; None where they have none in common."""
    drawn = [(steps, values) for steps, values in members if len(steps)]
    if not drawn:
        return None
    first, last = max(steps[0] for steps, _ in drawn), min(steps[-1] for steps, _ in drawn)
    if first > last:
        return None
    grid = np.linspace(first, last, _POINTS if last > first else 1)
    values = np.stack([np.interp(grid, steps, returns) for steps, returns in drawn])
    return Curve(grid, values.mean(axis=0), values.std(axis=0, ddof=int(len(drawn) > 1)), len(drawn))


def draw(curves: Mapping[str, Curve], path: Path, *, title: str) -> None:
    """Writes the picture.

    :raises FailedPrecondition: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FailedPrecondition(
            "a learning curve needs matplotlib: pip install 'dressage[plots]'", reason="MISSING_PACKAGE"
        ) from error
    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes: Any = figure.add_subplot()
    for name, curve in curves.items():
        label = f"{name} ({curve.seeds} seed{'s' if curve.seeds > 1 else ''})"
        (line,) = axes.plot(curve.steps, curve.mean, label=label, marker="o" if len(curve.steps) == 1 else None)
        if curve.seeds > 1:
            low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
            axes.fill_between(curve.steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel("environment steps of each member")
    axes.set_ylabel("episode return by the trained reward\n(mean ± standard deviation over seeds)")
    axes.set_title(title, wrap=True)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes; that is no concern of the user's
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, format="png")


async def save(session: pb.Session, connection: Connection) -> Path | None:
    """Draws the curves of the training that the best policy is from; None where there is nothing to draw, or to draw with.

    The picture lies beside the policy where the artifacts are on this machine, else in the current folder.
    """
    found = _POLICY.match(session.best_policy)
    if found is None:
        return None
    try:
        curves = await _load(found["members"], connection)
        if not curves:
            return None
        policy = connection.local_path(session.best_policy)
        name = short(session.name)
        path = policy.parent / CURVE_FILE if policy is not None else Path(f"learning-curve-{name}.png").absolute()
        environment = session.spec.environment.removeprefix("environments/")
        draw(curves, path, title=f"{_shortened(session.spec.intent)} · {environment}")
    except FailedPrecondition as error:
        if error.reason != "MISSING_PACKAGE":
            raise
        return None
    except OSError:
        return None  # a folder that cannot be written to is no reason to lose the summary
    return path


def _shortened(text: str, limit: int = 70) -> str:
    line = " ".join(text.split()).replace("$", r"\$")
    return line if len(line) <= limit else line[: limit - 1] + "…"


async def _load(prefix: str, connection: Connection) -> dict[str, Curve]:
    """Curves by config, in the order of their names."""
    members: dict[str, list[tuple[Array, Array]]] = {}
    async for artifact in connection.client.list_artifacts(f"{prefix}/"):
        match = _METRICS.search(artifact.key)
        if match is not None and artifact.size <= _MAX_BYTES:
            members.setdefault(match["config"], []).append(read_rows(await _text(artifact.key, connection)))
    combined = {config: combine(rows) for config, rows in sorted(members.items())}
    return {config: curve for config, curve in combined.items() if curve is not None}


async def _text(key: str, connection: Connection) -> str:
    local = connection.local_path(key)
    if local is not None:
        return local.read_text("utf-8", errors="replace")
    try:
        chunks = [chunk async for chunk in connection.client.read_artifact(key)]
    except DressageError:
        return ""  # one member's file that is gone leaves the others' curves
    return b"".join(chunks).decode("utf-8", errors="replace")
