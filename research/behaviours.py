"""The report of trained behaviours: for each intent how many sessions passed, with which score, after how long."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dressage.experiments import report
from dressage.experiments.analysis import Analysis
from dressage.experiments.pictures import file_name
from dressage.experiments.records import Record
from dressage.experiments.report import table
from dressage.sdk.texts import duration
from dressage.statistics import CONFIDENCE, Summary, summary

_GAP = 2
_QUALITY = 80
REWARD = "reward"
"""Name of the method of the API."""
_TERMS = (
    "**Passed**: sessions that ended with a policy that passed its judgment and passed again on fresh seeds. **Score**: the "
    "judge's score on fresh seeds or, where no policy came that far, that of the best iteration; mean over sessions with a "
    f"{CONFIDENCE:.0%} percentile bootstrap interval. **Time**: from the start of a session to its end, video and exports "
    "included. Medians are over all sessions; one that did not pass counts as longer than all others."
)


@dataclass(frozen=True)
class Behaviour:
    """The sessions of a method for an intent."""

    environment: str
    """Name in the experiment."""
    environment_id: str
    intent: str
    method: str
    runs: int
    passed: int
    score: Summary | None
    seconds: float
    """Median over sessions until a confirmed policy; infinite if fewer than half passed."""
    fastest: float
    slowest: float
    """Seconds of the fastest and the slowest session that passed; not a number without one."""
    env_steps: float
    """Median of the environment steps of sessions that passed; not a number without one."""
    shortfalls: Sequence[str]
    """Why each of the others ended."""
    shown: str
    """Cell whose pictures stand for all: the first that passed, or the first."""


def are_behaviours(records: Sequence[Record]) -> bool:
    """Return whether all results are those of trained rewards."""
    return bool(records) and all(record.settings.get("method") == REWARD for record in records)


def behaviours(analysis: Analysis) -> list[Behaviour]:
    """Return each method for each intent, in the order of the results."""
    results = analysis.results
    groups = [results.of(environment, method) for environment in results.environments for method in results.methods]
    return [_behaviour(sorted(runs, key=lambda run: run.run)) for runs in groups if runs]


def strip_name(row: Behaviour) -> str:
    """Return the name of the file with a row's pictures."""
    return f"{file_name(f'{row.environment}-{row.method}')}.jpg"


def _behaviour(runs: Sequence[Record]) -> Behaviour:
    passed = [run for run in runs if run.state == "succeeded"]
    scores = [run.score for run in runs if run.score is not None]
    seconds = [run.seconds for run in passed if run.seconds is not None]
    failing = [run for run in runs if run.state != "succeeded"]
    return Behaviour(
        environment=runs[0].environment,
        environment_id=runs[0].environment_id or runs[0].environment,
        intent=runs[0].intent,
        method=runs[0].method,
        runs=len(runs),
        passed=len(passed),
        score=summary(scores) if scores else None,
        seconds=statistics.median([*seconds, *[math.inf] * (len(runs) - len(seconds))]),
        fastest=min(seconds, default=math.nan),
        slowest=max(seconds, default=math.nan),
        env_steps=statistics.median(run.env_steps for run in passed) if passed else math.nan,
        shortfalls=[f"seed {run.seed}: {run.reason or run.state}" for run in failing],
        shown=(passed or runs)[0].cell,
    )


def markdown(analysis: Analysis, *, strips: Mapping[str, str], title: bool = True) -> str:
    """Return the report.

    :param strips: the strip of pictures of each cell that has one, as a link from the report.
    :param title: begin with a title.
    """
    rows = behaviours(analysis)
    experiments = dict.fromkeys(record.experiment for record in analysis.results.records)
    lines = [f"# {', '.join(experiments)}", ""] if title else []
    lines += [*report.facts(analysis), "", _TERMS, "", *_overview(rows)]
    for row in rows:
        lines += _section(row, several=len(analysis.results.methods) > 1, link=strips.get(row.shown, ""))
    return "\n".join(lines)


def _overview(rows: Sequence[Behaviour]) -> list[str]:
    head = ["environment", "intent", "passed", "score", "time, median", "fastest, slowest", "steps, median"]
    several = len({row.method for row in rows}) > 1
    lines = [
        [
            row.environment_id,
            f"{row.intent} ({row.method})" if several else row.intent,
            f"{row.passed}/{row.runs}",
            "–" if row.score is None else f"{row.score.mean:.2f} [{row.score.low:.2f}, {row.score.high:.2f}]",
            "not passed" if math.isinf(row.seconds) else duration(row.seconds),
            "–" if math.isnan(row.fastest) else f"{duration(row.fastest)}, {duration(row.slowest)}",
            "–" if math.isnan(row.env_steps) else f"{row.env_steps:,.0f}",
        ]
        for row in rows
    ]
    return [*table(head, lines), ""]


def _section(row: Behaviour, *, several: bool, link: str) -> list[str]:
    name = f"{row.environment_id}: {row.intent}" + (f" ({row.method})" if several else "")
    if not link and not row.shortfalls:
        return []
    lines = [f"## {name}", ""]
    if link:
        lines += [f"![Frames of an episode, in order: {row.intent}]({link})", ""]
    if row.shortfalls:
        lines += [*(f"- {text}" for text in row.shortfalls), ""]
    return lines


def strip(video: bytes, *, count: int = 8, height: int = 120) -> bytes:
    """Return a JPEG with frames at equal distances from the first to the last one.

    :param video: an MP4 file.
    :param count: number of frames; a shorter video has fewer.
    :param height: of the picture, in pixels.
    :raises ValueError: if the video cannot be read or has no frame.
    """
    import av

    try:
        with av.open(io.BytesIO(video), "r") as container:
            frames = [_small(frame, height) for frame in container.decode(video=0)]
    except av.FFmpegError as error:
        raise ValueError(f"the video cannot be read: {error}") from error
    if not frames:
        raise ValueError("the video has no frame")
    chosen = sorted({round(index * (len(frames) - 1) / max(1, count - 1)) for index in range(count)})
    return _joined([frames[index] for index in chosen])


def _small(frame: Any, height: int) -> Any:
    picture = frame.to_image()
    return picture.resize((max(1, round(picture.width * height / picture.height)), height))


def _joined(pictures: list[Any]) -> bytes:
    from PIL import Image

    width = sum(picture.width for picture in pictures) + _GAP * (len(pictures) - 1)
    whole = Image.new("RGB", (width, pictures[0].height), "white")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width + _GAP
    data = io.BytesIO()
    whole.save(data, "JPEG", quality=_QUALITY, optimize=True)
    return data.getvalue()
