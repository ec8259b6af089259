"""Warnings computed from a session's records: an iteration's curves and the iterations so far. Pure.

The trainer reports its own warnings (dominating term, entropy collapse, value divergence, KL spikes, a member's plateau) as a
run's conditions. This module collects them and adds those that only evaluations and judgments can show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1
from dressage.statistics import mean

from dressage_orchestrator.lifecycle.aggregate import checkpoint_score

STUCK_AFTER = 3
"""Iterations without a new best after which the reviser is asked for a structural rewrite."""

_FALL = 0.1
_RISE = 0.1
_FLAT = 0.05
_DOMINANT = 0.9
_SEED_SPREAD = 0.3


@dataclass(frozen=True)
class Diagnostic:
    """A warning: a stable reason and a message."""

    reason: str
    message: str
    reported: bool = False
    """Whether the trainer reported it, so that its event exists already."""


def curve(members: Sequence[v1.Member]) -> list[v1.CurvePoint]:
    """Return the learning curve of a config's members: means over those that were evaluated at each env step."""
    points: dict[int, list[v1.Evaluation]] = {}
    for member in members:
        for entry in member.evaluations:
            points.setdefault(entry.env_step, []).append(entry)
    curve_points = []
    for step in sorted(points):
        group = points[step]
        point = v1.CurvePoint(env_step=step)
        point.proposed_return = mean([mean(entry.proposed_returns or entry.returns) for entry in group])
        setattr(point, "return", mean([mean(entry.returns) for entry in group]))
        scores = [score for entry in group if (score := checkpoint_score(entry)) is not None]
        if scores:
            point.score = mean(scores)
        curve_points.append(point)
    return curve_points


def diagnose(
    iteration: v1.Iteration, members: Sequence[v1.Member], conditions: Sequence[v1.Condition]
) -> list[Diagnostic]:
    """Return an iteration's warnings, each reason once.

    :param members: the best config's.
    :param conditions: of the iteration's training.
    """
    points = curve(members)
    findings = _reward_hacking(points) + _plateau(points)
    # The best config's evaluations replace a report about one member, which may be of another config.
    replaced = {entry.reason for entry in findings}
    reported = [entry for entry in conditions if not entry.type.startswith("TRAINER_") and entry.type not in replaced]
    diagnostics = [Diagnostic(entry.type, entry.message, reported=True) for entry in reported] + findings
    diagnostics += [entry for member in members for entry in _dominating(member.metrics)]
    scores = [entry.judgment.score for entry in members if entry.HasField("judgment")]
    if len(scores) > 1 and max(scores) - min(scores) > _SEED_SPREAD:
        message = f"seeds disagree: from {min(scores):.2f} to {max(scores):.2f}; chance contributes to the mean"
        diagnostics.append(Diagnostic("SEEDS_DISAGREE", message))
    return list({entry.reason: entry for entry in reversed(diagnostics)}.values())[::-1]


def _reward_hacking(points: Sequence[v1.CurvePoint]) -> list[Diagnostic]:
    """Return a warning if the return under the proposed reward rose after the judgment's peak while the judgment fell."""
    scored = [point for point in points if point.HasField("score")]
    if len(scored) < 2:
        return []
    peak = max(scored, key=lambda point: point.score)
    last = scored[-1]
    reach = max(p.proposed_return for p in scored) - min(p.proposed_return for p in scored)
    fell = peak.score - last.score
    rose = last.proposed_return - peak.proposed_return
    if last is peak or fell < _FALL or rose <= 0 or rose < _RISE * reach:
        return []
    message = (
        f"the return rose from {peak.proposed_return:.4g} to {last.proposed_return:.4g} while the judgment fell from "
        f"{peak.score:.2f} (at {peak.env_step} steps) to {last.score:.2f}: the reward pays for something else than the "
        "behaviour"
    )
    return [Diagnostic("REWARD_HACKING", message)]


def _plateau(points: Sequence[v1.CurvePoint]) -> list[Diagnostic]:
    """Return a warning if the curve's second half gains next to nothing of the curve's range."""
    if len(points) < 4:
        return []
    values = [point.proposed_return for point in points]
    reach = max(values) - min(values)
    middle = len(values) // 2
    gain = max(values[middle:]) - max(values[:middle])
    if reach <= 0 or gain > _FLAT * reach:
        return []
    share = max(gain, 0.0) / reach
    message = f"the return has gained {100 * share:.0f} % of its range since {points[middle - 1].env_step:,} steps"
    return [Diagnostic("PLATEAU", message)]


def _dominating(metrics: Mapping[str, float]) -> list[Diagnostic]:
    prefix = "term_magnitude/"
    sizes = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    total = sum(sizes.values())
    if len(sizes) < 2 or total <= 0:
        return []
    name = max(sizes, key=lambda key: sizes[key])
    share = sizes[name] / total
    if share <= _DOMINANT:
        return []
    return [Diagnostic("REWARD_TERM_DOMINATES", f"the term {name} is {100 * share:.0f} % of the reward's magnitude")]


def without_best(iterations: Sequence[v1.Iteration]) -> int:
    """Return the number of judged iterations since the one with the best score; 0 when the last one is the best."""
    scored = [entry for entry in iterations if entry.HasField("score")]
    if not scored:
        return 0
    best = max(range(len(scored)), key=lambda place: (scored[place].score, -place))
    return len(scored) - 1 - best
