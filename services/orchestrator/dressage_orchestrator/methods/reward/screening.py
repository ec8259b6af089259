"""Scores stored trajectories with a checked reward before training; a reward that orders them backwards goes to its author.

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
from dressage.errors import DressageError
from dressage.statistics import spearman
from google.protobuf.json_format import MessageToDict, ParseDict

from dressage_orchestrator import metrics
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.methods.reward import history
from dressage_orchestrator.methods.reward.code import Code
from dressage_orchestrator.methods.reward.spec import env_steps_per_iteration
from dressage_orchestrator.methods.reward.training import steps_of
from dressage_orchestrator.models import TEMPLATE, USER

MAX_ROUNDS = 2
"""How often a reward goes back to its author."""
MAX_ROLLOUTS = 36
_MIN_TRAJECTORIES = 5
_MIN_SPREAD = 0.1
# Low: stored rollouts may not contain the states that a good new reward is about (decision 0028).
_BACKWARDS = -0.3
_SHOWN = 6


@dataclass(frozen=True)
class ScoredTrajectory:
    """A trajectory with its return and its judgment."""

    name: str
    proposed_return: float
    judge_score: float
    terms: Mapping[str, float]
    description: str = ""


def judged_rollouts(members: Mapping[int, Sequence[v1.Member]]) -> dict[str, float]:
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


def scored_pairs(answer: judge_pb.ScoreResponse, scores: Mapping[str, float]) -> list[ScoredTrajectory]:
    """Return the answer's trajectories that have a judgment."""
    scored = []
    longest = max((entry.steps for entry in answer.scored), default=0)
    for entry in answer.scored:
        score = scores.get(entry.rollout) if entry.rollout else None
        if score is None and entry.HasField("judge_score"):
            score = entry.judge_score
        if score is not None:
            share = 1.0 if entry.terminated or not entry.steps else longest / entry.steps
            proposed_return = share * float(getattr(entry, "return"))
            name = entry.rollout or f"control {entry.control}"
            scored.append(ScoredTrajectory(name, proposed_return, score, dict(entry.terms), entry.description))
    return scored


def screen(scored: Sequence[ScoredTrajectory], *, rounds: int) -> v1.Screening:
    """Return the rank agreement, and whether it is backwards.

    :param rounds: how often the reward was sent back so far.
    """
    screening = v1.Screening(trajectories=len(scored), rounds=rounds)
    scores = [entry.judge_score for entry in scored]
    if len(scored) < _MIN_TRAJECTORIES or max(scores) - min(scores) < _MIN_SPREAD:
        return screening
    # Ranks, because scales of returns mean nothing between rewards (decision 0028).
    agreement = spearman([entry.proposed_return for entry in scored], scores)
    if agreement is not None:
        screening.agreement = agreement
        screening.inverted = agreement <= _BACKWARDS
    return screening


def screening_failure(scored: Sequence[ScoredTrajectory], screening: v1.Screening) -> ev.CheckFailure:
    """Return the author's report on a reward that orders trajectories backwards: the numbers of the extremes."""
    ordered = sorted(scored, key=lambda entry: entry.judge_score)
    half = _SHOWN // 2
    extremes = [*ordered[:half], *ordered[-half:]]
    rows = [
        f"judged {entry.judge_score:.2f}, return {entry.proposed_return:.4g} ("
        + ", ".join(f"{name} {value:.4g}" for name, value in entry.terms.items())
        + f"){'; ' + entry.description if entry.description else ''}"
        for entry in extremes
    ]
    message = (
        f"on {screening.trajectories} stored trajectories the reward's returns and the judgments agree by a rank correlation "
        f"of {screening.agreement:.2f}: it pays most for what was judged worst. Compare the sums of the terms; look for a "
        "wrong sign, for a penalty that accrues with each step of a long good episode, for a term that outweighs the others"
    )
    return ev.CheckFailure(rule="pre-screening", message=message, seen=" | ".join(rows))


def prescreen(
    context: SessionContext, number: int, reward: Code, judge: Code | None, *, rounds: int
) -> ev.CheckFailure | None:
    """Screen the reward and record the result; return what its author is to repair, None if it is to be trained.

    :param rounds: how often this iteration's reward was sent back.
    """
    if judge is None:
        return None
    source = judge.source
    name = f"screen:{number}:{reward.version}"
    result = context.step(name, lambda: _screen(context, number, reward, source, rounds))
    return ParseDict(result["failure"], ev.CheckFailure()) if result["failure"] else None


def _screen(context: SessionContext, number: int, reward: Code, judge_source: str, rounds: int) -> Json:
    scores = judged_rollouts(history.read(context.store, number).members)
    request = judge_pb.ScoreRequest(environment=context.environment, reward_source=reward.source, rollouts=list(scores))
    request.judge_source = judge_source
    try:
        answer = context.call(context.engine.judge.score(request))
    except DressageError as error:
        # Screening only saves compute: without it, the training shows the same later.
        context.log.warning("not screened", iteration=number, reason=error.reason, message=error.message)
        return {"failure": None}
    pairs = scored_pairs(answer, scores)
    result = screen(pairs, rounds=rounds)
    back = result.inverted and rounds < MAX_ROUNDS and reward.author not in (USER, TEMPLATE)
    back = back and reward.repairs < context.engine.settings.max_repairs
    _record(context, number, reward, result, back=back)
    return {"failure": MessageToDict(screening_failure(pairs, result)) if back else None}


def _record(context: SessionContext, number: int, reward: Code, result: v1.Screening, *, back: bool) -> None:
    store, tag = context.store, f"{number}:{reward.version}"
    changes = v1.Iteration(reward=v1.RewardProposal(screening=result))
    iteration = store.update_iteration(number, changes, ["reward.screening"])
    if back:
        settings = context.spec.reward
        saved = len(iteration.reward.configs) * settings.seeds * steps_of(context.spec, iteration)
        saved = saved or env_steps_per_iteration(context.spec)
        if store.add_saved_steps(saved, key=f"saved/{tag}"):
            metrics.ENV_STEPS_SAVED.labels(context.environment).inc(saved)
    screened = ev.Screened(screening=result, outcome="rejected" if back else "trained")
    store.emit(ev.Event(screened=screened), iteration=number, key=f"screened/{tag}")
    if result.inverted and not back:
        message = (
            f"the reward orders {result.trajectories} stored trajectories backwards (rank correlation "
            f"{result.agreement:.2f}); it is trained nevertheless"
        )
        store.warn("SCREENED_BACKWARDS", message, iteration=number, key=f"screened/{tag}")
