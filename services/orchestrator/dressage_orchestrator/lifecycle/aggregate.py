"""From verdicts on rollouts to a verdict on a config. Pure.

Rollout → checkpoint: mean, what video changed at the rollouts that were looked at carried over to the others. Checkpoint →
member: the last one's. Members → config: mean over seeds with a bootstrap interval. A member without a judged rollout counts
as 0, so that a seed that broke is not left out of the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.statistics import bootstrap_interval, deviation, mean

_MAX_TAGS = 20


def pooled(judgments: Sequence[v1.Judgment], *, threshold: float) -> v1.Judgment:
    """The mean of judgments, with criteria averaged by name and the diagnosis of the worst.

    :param threshold: score from which it passes; the mean passes, not the luckiest sample.
    """
    scores = [entry.score for entry in judgments]
    score = mean(scores)
    low, high = bootstrap_interval(scores)
    whole = v1.Judgment(score=score, passed=bool(scores) and score >= threshold, samples=scores)
    whole.interval_low, whole.interval_high = low, high
    for name, values in _by_criterion(judgments).items():
        whole.criteria.add(name=name, score=mean(values))
    # Of equals the one that was looked at: its diagnosis says what was seen, too.
    worst = min(judgments, key=lambda entry: (round(entry.score, 6), _overruled(entry) is None), default=None)
    if worst is not None:
        whole.diagnosis = worst.diagnosis
    tags = sorted({tag for entry in judgments for tag in entry.failure_tags})
    whole.failure_tags.extend(tags[:_MAX_TAGS])
    whole.verdicts.extend(_verdicts(judgments))
    return whole


def _by_criterion(judgments: Sequence[v1.Judgment]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for entry in judgments:
        for criterion in entry.criteria:
            found.setdefault(criterion.name, []).append(criterion.score)
    return found


def _verdicts(judgments: Sequence[v1.Judgment]) -> list[v1.Verdict]:
    by_kind: dict[v1.JudgeKind.ValueType, list[v1.Verdict]] = {}
    for entry in judgments:
        for verdict in entry.verdicts:
            by_kind.setdefault(verdict.kind, []).append(verdict)
    merged = []
    for kind, group in sorted(by_kind.items()):
        scores = [verdict.score for verdict in group]
        one = v1.Verdict(kind=kind, score=mean(scores), votes=sum(v.votes or 1 for v in group))
        one.spread = deviation(scores)
        evidence: dict[str, list[float]] = {}
        for verdict in group:
            for name, value in verdict.evidence.items():
                evidence.setdefault(name, []).append(value)
        for name, values in evidence.items():
            one.evidence[name] = mean(values)
        merged.append(one)
    return merged


def is_judged(rollout: v1.Rollout) -> bool:
    """Whether a judge scored it; a person's label alone is no judgment."""
    kinds = {verdict.kind for verdict in rollout.judgment.verdicts}
    return rollout.HasField("judgment") and kinds != {v1.JUDGE_KIND_HUMAN}


def checkpoint_score(evaluation: v1.Evaluation) -> float | None:
    """Mean judgment of a checkpoint's rollouts; None where none was judged."""
    scores = [rollout.judgment.score for rollout in evaluation.rollouts if is_judged(rollout)]
    return mean(scores) if scores else None


def unjudged(why: str) -> v1.Judgment:
    """The judgment of a member that left nothing to judge."""
    return v1.Judgment(score=0.0, diagnosis=why, failure_tags=["not_evaluated"])


def carried(rollouts: Sequence[v1.Judgment]) -> list[v1.Judgment]:
    """The judgments of a checkpoint's rollouts; what video changed at those it saw changes the others alike.

    They are episodes of one policy. Were video to count for its own episode alone, a judge's code that overlooks something
    would outvote it two to one.
    """
    found = [v1.Judgment.FromString(entry.SerializeToString()) for entry in rollouts]
    changes = [entry.score - code for entry in found if (code := _overruled(entry)) is not None]
    if not changes:
        return found
    change = mean(changes)
    for entry in found:
        if _overruled(entry) is None:
            entry.score = min(max(entry.score + change, 0.0), 1.0)
    return found


def _overruled(judgment: v1.Judgment) -> float | None:
    """The code's score where video had a say as well; None where it had none."""
    scores = {verdict.kind: verdict.score for verdict in judgment.verdicts}
    return scores.get(v1.JUDGE_KIND_CODE) if v1.JUDGE_KIND_VIDEO in scores else None


def member_judgment(member: v1.Member, *, threshold: float) -> v1.Judgment:
    """A member's judgment: that of its last checkpoint's rollouts."""
    if member.HasField("failure"):
        return unjudged(f"seed {member.seed} was stopped: {member.failure.message}")
    rollouts = [r.judgment for r in member.evaluations[-1].rollouts if is_judged(r)] if member.evaluations else []
    if not rollouts:
        return unjudged(f"seed {member.seed} has no rollouts")
    return pooled(carried(rollouts), threshold=threshold)


def returns_of(members: Sequence[v1.Member], scales: Mapping[str, float]) -> v1.ReturnSummary:
    """Stock returns and speeds of the members' last evaluations, the random policy's beside them."""
    last = [member.evaluations[-1] for member in members if member.evaluations]
    means = [mean(entry.returns) for entry in last if entry.returns]
    summary = v1.ReturnSummary(mean=mean(means), std=deviation(means), episodes=sum(len(e.returns) for e in last))
    summary.random_mean = scales.get("random_return", 0.0)
    speeds = [mean(entry.speeds) for entry in last if entry.speeds]
    if speeds:
        summary.mean_speed = mean(speeds)
        if "random_forward_speed" in scales:
            summary.random_mean_speed = scales["random_forward_speed"]
    return summary
