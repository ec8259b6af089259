"""Values of a session's result: judgments, reports, costs and learning curves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dressage.api.v1 import session_pb2 as pb
from dressage.sdk.texts import quantity


@dataclass(frozen=True)
class Judgment:
    """A judge's result. The fields are those of the JSON output, in its order."""

    score: float
    """0 to 1; the mean over seeds where there are several."""
    passed: bool
    samples: tuple[float, ...]
    """Score of each seed."""
    spread: float | None
    """Standard deviation of the samples; None for fewer than two."""
    interval: tuple[float, float] | None
    """95 % interval of the score; None without samples."""
    criteria: Mapping[str, float]
    """Score of each criterion, 0 to 1."""
    diagnosis: str
    judged: str
    """What judged, as text: ``code and video (3 of 9 rollouts by video)``; empty if that is not known."""
    judged_by: str
    """``code``, ``code and video`` or ``video``."""
    without_video: str
    """Why no video judge took part; empty if one did."""
    rollouts: int
    """Number of judged rollouts."""
    video_rollouts: int
    """Number of them that video judged."""
    unjudged_rollouts: int
    """Number of recorded rollouts that the score leaves out, because nothing judged them."""
    video_left_out: int
    """Number of deciding rollouts that video did not judge."""

    @classmethod
    def of(cls, message: pb.Judgment) -> Judgment:
        """Return the judgment of a message."""
        samples = tuple(message.samples)
        return cls(
            score=message.score,
            passed=message.passed,
            samples=samples,
            spread=statistics.stdev(samples) if len(samples) > 1 else None,
            interval=(message.interval_low, message.interval_high) if samples else None,
            criteria={criterion.name: criterion.score for criterion in message.criteria},
            diagnosis=message.diagnosis,
            judged=_judges_text(message),
            judged_by=message.judged_by,
            without_video=message.without_video,
            rollouts=message.rollouts,
            video_rollouts=message.video_rollouts,
            unjudged_rollouts=message.unjudged_rollouts,
            video_left_out=message.video_left_out,
        )


def _judges_text(message: pb.Judgment) -> str:
    """Return what judged, why not video, and how many rollouts are left out."""
    if not message.judged_by:
        return ""
    parts = []
    if message.video_rollouts:
        parts.append(f"{message.video_rollouts} of {message.rollouts} rollouts by video")
    elif message.rollouts:
        parts.append(quantity(message.rollouts, "rollout"))
    if message.without_video:
        parts.append(f"no video: {message.without_video}")
    if message.video_left_out:
        parts.append(f"{message.video_left_out} left out by video")
    if message.unjudged_rollouts:
        parts.append(f"{message.unjudged_rollouts} not judged")
    return message.judged_by + (f" ({'; '.join(parts)})" if parts else "")


@dataclass(frozen=True)
class Report:
    """Score of a search's policy on report seeds, which the search did not use."""

    mean: float
    """Mean return."""
    interval: tuple[float, float]
    """95 % bootstrap interval of the mean."""
    returns: tuple[float, ...]
    """Return of each episode."""
    lengths: tuple[int, ...]
    """Steps of each episode."""
    first_seed: int
    """Seed of the first episode; further seeds are consecutive."""
    confirmations: int
    """Candidates of the session that were played on report seeds."""
    target: float | None
    """Mean return from which the session succeeds."""

    @classmethod
    def of(cls, message: pb.Report, target: float | None) -> Report:
        """Return the report of a message."""
        return cls(
            mean=message.mean,
            interval=(message.interval_low, message.interval_high),
            returns=tuple(message.returns),
            lengths=tuple(message.lengths),
            first_seed=message.first_seed,
            confirmations=message.confirmations,
            target=target,
        )


@dataclass(frozen=True)
class Cost:
    """What calls of language models have cost."""

    requests: int
    input_tokens: int
    output_tokens: int
    dollars: float | None
    """None where the price of a model is unknown."""


@dataclass(frozen=True)
class Series:
    """Values of one config over its seeds, on common steps."""

    steps: list[float]
    """Environment steps of each member."""
    mean: list[float]
    deviation: list[float]
    """Standard deviation over seeds; 0 for one seed."""
    seeds: int


@dataclass(frozen=True)
class SearchPoint:
    """The state of a search after an iteration, or after an improvement of a search by the trainer."""

    episodes: int
    """Episodes of the search until then; for programs, the programs that were evaluated."""
    tokens: int
    """Tokens of model calls until then, sent and received."""
    score: float
    """Mean return of the chosen candidate of the iteration, or of the improvement."""
    best: float
    """Highest score until then."""


@dataclass(frozen=True)
class SearchSeries:
    """Scores of a search, mean returns on search seeds, in the order of its iterations or improvements."""

    episodes: list[int]
    """Episodes until then."""
    tokens: list[int]
    """Tokens of model calls until then."""
    score: list[float]
    best: list[float]
    """Highest score until then."""

    @classmethod
    def of(cls, points: Sequence[SearchPoint]) -> SearchSeries:
        """Return the points as lists."""
        return cls(
            episodes=[point.episodes for point in points],
            tokens=[point.tokens for point in points],
            score=[point.score for point in points],
            best=[point.best for point in points],
        )


CURVE_FILE = "learning_curve.png"
"""Name of a learning curve's picture, in the parent folder of the policy."""


@dataclass(frozen=True)
class LearningCurve:
    """The learning curves of a training, by config, or of a search."""

    training: Mapping[str, Series]
    """Returns under the trained reward: episodes of training, with sampled actions."""
    evaluation: Mapping[str, Series]
    """The same of evaluations of the deterministic policy."""
    picture: Path | None
    """The curves as a PNG file; None where matplotlib is not installed, or nothing can be drawn."""
    search: SearchSeries | None = None
    """Scores of a search; None for other methods."""
    missing: str = ""
    """Why there is no picture."""
