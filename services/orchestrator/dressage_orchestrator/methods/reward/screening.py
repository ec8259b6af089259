"""Whether a new reward orders stored trajectories as their judgments do, before it is trained. Pure.

The screening compares returns (sums over the episode, which training raises) with judgments. An episode that was cut short,
such as a shipped control, is extrapolated at its mean reward; one that the environment ended counts as it is. A reward that
orders trajectories backwards would train towards what was judged bad: screening shows that at little cost, before training
does. Few or similar judgments show nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.statistics import spearman

MAX_ROUNDS = 2
"""How often a reward goes back to its author."""
MAX_ROLLOUTS = 36
_MIN_TRAJECTORIES = 5
_MIN_SPREAD = 0.1
_BACKWARDS = -0.3
_SHOWN = 6


@dataclass(frozen=True)
class Scored:
    """A trajectory with its return and its judgment."""

    name: str
    returned: float
    judged: float
    terms: Mapping[str, float]
    description: str = ""


def stored(members: Mapping[int, Sequence[v1.Member]]) -> dict[str, float]:
    """Return judged rollouts of earlier iterations with their scores: of all where there are few, else an even choice by score.

    A person's label stands for the judge's score, where there is one.

    :param members: of each iteration's training, by its number.
    """
    scores: dict[str, float] = {}
    for number in sorted(members):
        for member in members[number]:
            for evaluation in member.evaluations:
                for rollout in evaluation.rollouts:
                    if rollout.HasField("judgment"):
                        scores[rollout.artifact] = score_of(rollout)
    if len(scores) <= MAX_ROLLOUTS:
        return scores
    ordered = sorted(scores, key=lambda key: (scores[key], key))
    step = (len(ordered) - 1) / (MAX_ROLLOUTS - 1)
    return {key: scores[key] for key in (ordered[round(place * step)] for place in range(MAX_ROLLOUTS))}


def score_of(rollout: v1.Rollout) -> float:
    """Return a rollout's score: a person's if there is one, else the judges'."""
    for verdict in rollout.judgment.verdicts:
        if verdict.kind == v1.JUDGE_KIND_HUMAN:
            return verdict.score
    return rollout.judgment.score


def pairs(answer: judge_pb.ScoreResponse, scores: Mapping[str, float]) -> list[Scored]:
    """Return the answer's trajectories that have a judgment."""
    scored = []
    longest = max((entry.steps for entry in answer.scored), default=0)
    for entry in answer.scored:
        judged = scores.get(entry.rollout) if entry.rollout else None
        if judged is None and entry.HasField("judge_score"):
            judged = entry.judge_score
        if judged is not None:
            share = 1.0 if entry.terminated or not entry.steps else longest / entry.steps
            returned = share * float(getattr(entry, "return"))
            name = entry.rollout or f"control {entry.control}"
            scored.append(Scored(name, returned, judged, dict(entry.terms), entry.description))
    return scored


def screen(scored: Sequence[Scored], *, rounds: int) -> v1.Screening:
    """Return the rank agreement, and whether it is backwards.

    :param rounds: how often the reward was sent back so far.
    """
    screening = v1.Screening(trajectories=len(scored), rounds=rounds)
    judged = [entry.judged for entry in scored]
    if len(scored) < _MIN_TRAJECTORIES or max(judged) - min(judged) < _MIN_SPREAD:
        return screening
    agreement = spearman([entry.returned for entry in scored], judged)
    if agreement is not None:
        screening.agreement = agreement
        screening.inverted = agreement <= _BACKWARDS
    return screening


def failure(scored: Sequence[Scored], screening: v1.Screening) -> ev.CheckFailure:
    """Return the author's report on a reward that orders trajectories backwards: the numbers of the extremes."""
    ordered = sorted(scored, key=lambda entry: entry.judged)
    half = _SHOWN // 2
    shown = [*ordered[:half], *ordered[-half:]]
    rows = [
        f"judged {entry.judged:.2f}, return {entry.returned:.4g} ("
        + ", ".join(f"{name} {value:.4g}" for name, value in entry.terms.items())
        + f"){'; ' + entry.description if entry.description else ''}"
        for entry in shown
    ]
    message = (
        f"on {screening.trajectories} stored trajectories the reward's returns and the judgments agree by a rank correlation "
        f"of {screening.agreement:.2f}: it pays most for what was judged worst. Compare the sums of the terms; look for a "
        "wrong sign, for a penalty that accrues with each step of a long good episode, for a term that outweighs the others"
    )
    return ev.CheckFailure(rule="pre-screening", message=message, seen=" | ".join(rows))
