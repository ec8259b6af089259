"""Aggregates judgments of rollouts into judgments of checkpoints, members and configs. Pure.

Checkpoint: mean over its rollouts, after the correction by video is applied to rollouts without video. Member: its last
checkpoint. Config: mean over members with a bootstrap interval. A member without a judged rollout counts as 0, so that a failed
seed is included in the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dressage.api.v1 import session_pb2 as v1
from dressage.statistics import bootstrap_interval, deviation, mean

MAX_REMARKS = 12_000
"""Maximum characters of the remarks in the verdict of several rollouts."""

_MAX_TAGS = 20
_MAX_REASONS = 1000
_BY: Mapping[v1.JudgeKind.ValueType, str] = {v1.JUDGE_KIND_CODE: "code", v1.JUDGE_KIND_VIDEO: "video"}


def pool(judgments: Sequence[v1.Judgment], *, threshold: float, names: Sequence[str] = ()) -> v1.Judgment:
    """Average judgments; criteria are averaged by name, and the diagnosis quotes the rollout with the lowest score.

    :param threshold: score required of the mean to pass.
    :param names: names of the judgments of rollouts, for quotations and remarks; judgments of several rollouts have them.
    """
    scores = [entry.score for entry in judgments]
    score = mean(scores)
    low, high = bootstrap_interval(scores)
    whole = v1.Judgment(score=score, passed=bool(scores) and score >= threshold, samples=scores)
    whole.interval_low, whole.interval_high = low, high
    for name, values in _by_criterion(judgments).items():
        whole.criteria.add(name=name, score=mean(values))
    tags = sorted({tag for entry in judgments for tag in entry.failure_tags})
    whole.failure_tags.extend(tags[:_MAX_TAGS])
    whole.verdicts.extend(_verdicts(judgments, names))
    _count(whole, judgments)
    _quote_lowest(whole, judgments, names)
    return whole


def _count(whole: v1.Judgment, judgments: Sequence[v1.Judgment]) -> None:
    """Add up how many rollouts were judged by what."""
    whole.rollouts = sum(entry.rollouts for entry in judgments)
    whole.video_rollouts = sum(entry.video_rollouts for entry in judgments)
    whole.unjudged_rollouts = sum(entry.unjudged_rollouts for entry in judgments)
    kinds = {verdict.kind for verdict in whole.verdicts} & _BY.keys()
    whole.judged_by = " and ".join(_BY[kind] for kind in sorted(kinds))
    if not whole.video_rollouts:
        reasons = dict.fromkeys(entry.without_video for entry in judgments if entry.without_video)
        whole.without_video = "; ".join(reasons)[:_MAX_REASONS]


def _quote_lowest(whole: v1.Judgment, judgments: Sequence[v1.Judgment], names: Sequence[str]) -> None:
    """Quote the rollout with the lowest score: its score and its diagnosis belong together."""
    quotes = []
    for place, entry in enumerate(judgments):
        named = v1.QuotedRollout(score=entry.score, diagnosis=entry.diagnosis)
        named.rollout = names[place] if place < len(names) else ""
        quotes.append(entry.lowest if entry.HasField("lowest") else named)
    if not quotes:
        return
    # Among equal scores one with video is preferred, because its diagnosis includes that of the video.
    place = min(range(len(quotes)), key=lambda at: (round(quotes[at].score, 6), not _has_video(judgments[at])))
    whole.lowest.CopyFrom(quotes[place])
    if whole.rollouts > 1 and whole.lowest.rollout:
        prefix = f"Mean of {whole.rollouts} rollouts; the lowest, {whole.lowest.rollout}: "
    elif len(judgments) > 1:
        prefix = f"Mean of {len(judgments)} scores; the lowest: "
    else:
        prefix = ""
    whole.diagnosis = prefix + whole.lowest.diagnosis


def _by_criterion(judgments: Sequence[v1.Judgment]) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {}
    for entry in judgments:
        for criterion in entry.criteria:
            scores.setdefault(criterion.name, []).append(criterion.score)
    return scores


def _verdicts(judgments: Sequence[v1.Judgment], names: Sequence[str]) -> list[v1.Verdict]:
    by_kind: dict[v1.JudgeKind.ValueType, list[v1.Verdict]] = {}
    remarks: dict[v1.JudgeKind.ValueType, list[str]] = {}
    for place, entry in enumerate(judgments):
        for verdict in entry.verdicts:
            by_kind.setdefault(verdict.kind, []).append(verdict)
            if verdict.comment:
                name = f"{names[place]}: " if place < len(names) else ""
                remarks.setdefault(verdict.kind, []).append(f"{name}{verdict.comment}")
    merged = []
    for kind, group in sorted(by_kind.items()):
        scores = [verdict.score for verdict in group]
        one = v1.Verdict(kind=kind, score=mean(scores), votes=sum(v.votes or 1 for v in group))
        one.spread, one.comment = deviation(scores), bounded_remarks(remarks.get(kind, []))
        evidence: dict[str, list[float]] = {}
        for verdict in group:
            for name, value in verdict.evidence.items():
                evidence.setdefault(name, []).append(value)
        for name, values in evidence.items():
            one.evidence[name] = mean(values)
        merged.append(one)
    return merged


def bounded_remarks(remarks: Sequence[str]) -> str:
    """Join remarks, one a line, up to `MAX_REMARKS` characters; what is left out is stated."""
    whole = "\n".join(remarks)
    if len(whole) <= MAX_REMARKS:
        return whole
    return f"{whole[:MAX_REMARKS]}… ({len(whole) - MAX_REMARKS} of {len(whole)} characters left out)"


def is_judged(rollout: v1.Rollout) -> bool:
    """Whether a judge has scored the rollout; a person's label does not count."""
    kinds = {verdict.kind for verdict in rollout.judgment.verdicts}
    return rollout.HasField("judgment") and kinds != {v1.JUDGE_KIND_HUMAN}


def checkpoint_score(evaluation: v1.Evaluation) -> float | None:
    """Mean judgment of a checkpoint's rollouts; None if none was judged."""
    scores = [rollout.judgment.score for rollout in evaluation.rollouts if is_judged(rollout)]
    return mean(scores) if scores else None


def no_judgment(reason: str) -> v1.Judgment:
    """Judgment of a member without rollouts."""
    return v1.Judgment(score=0.0, diagnosis=reason, failure_tags=["not_evaluated"])


def with_video_correction(rollouts: Sequence[v1.Judgment]) -> list[v1.Judgment]:
    """Apply the mean change by video to a checkpoint's rollouts without video.

    All rollouts are episodes of one policy. If video changed only its own rollout, an error of the judge's code would dominate
    the mean.
    """
    corrected = [v1.Judgment.FromString(entry.SerializeToString()) for entry in rollouts]
    changes = [entry.score - code for entry in corrected if (code := _score_before_video(entry)) is not None]
    if not changes:
        return corrected
    change = mean(changes)
    for entry in corrected:
        if _score_before_video(entry) is None:
            entry.score = min(max(entry.score + change, 0.0), 1.0)
            # The diagnosis states the score before the correction.
            entry.diagnosis = (
                f"{entry.score:.2f} after the correction by video ({change:+.2f}). By code: {entry.diagnosis}"
            )
    return corrected


def _has_video(judgment: v1.Judgment) -> bool:
    return any(verdict.kind == v1.JUDGE_KIND_VIDEO for verdict in judgment.verdicts)


def _score_before_video(judgment: v1.Judgment) -> float | None:
    """The code's score of a rollout that was also judged by video; None without video."""
    scores = {verdict.kind: verdict.score for verdict in judgment.verdicts}
    return scores.get(v1.JUDGE_KIND_CODE) if v1.JUDGE_KIND_VIDEO in scores else None


def deciding(member: v1.Member) -> v1.Evaluation:
    """Evaluation of the checkpoint that is judged and delivered: the last one, unless another one was chosen."""
    last = member.evaluations[-1] if member.evaluations else v1.Evaluation()
    return next((entry for entry in member.evaluations if entry.env_step == member.delivered_env_step), last)


def member_judgment(member: v1.Member, *, threshold: float) -> v1.Judgment:
    """Judgment of a member: that of its deciding checkpoint."""
    if member.HasField("failure"):
        return no_judgment(f"seed {member.seed} was stopped: {member.failure.message}")
    evaluation = deciding(member)
    if not any(is_judged(rollout) for rollout in evaluation.rollouts):
        entry = no_judgment(f"seed {member.seed} has no {'judged ' if evaluation.rollouts else ''}rollouts")
        entry.unjudged_rollouts = len(evaluation.rollouts)
        return entry
    return checkpoint_judgment(member, evaluation, threshold=threshold)


def checkpoint_judgment(member: v1.Member, evaluation: v1.Evaluation, *, threshold: float) -> v1.Judgment:
    """Judgment of a member's checkpoint that has a judged rollout."""
    rollouts = [rollout for rollout in evaluation.rollouts if is_judged(rollout)]
    names = [f"{member.name.rpartition('/')[2]} {rollout.label}".strip() for rollout in rollouts]
    corrected = with_video_correction([rollout.judgment for rollout in rollouts])
    whole = pool(corrected, threshold=threshold, names=names)
    whole.unjudged_rollouts = len(evaluation.rollouts) - len(rollouts)
    return whole


def returns_of(members: Sequence[v1.Member], scales: Mapping[str, float]) -> v1.ReturnSummary:
    """Returns and speeds of the members' deciding evaluations, with those of the random policy for comparison."""
    last = [deciding(member) for member in members if member.evaluations]
    means = [mean(entry.returns) for entry in last if entry.returns]
    summary = v1.ReturnSummary(mean=mean(means), std=deviation(means), episodes=sum(len(e.returns) for e in last))
    summary.random_mean = scales.get("random_return", 0.0)
    speeds = [mean(entry.speeds) for entry in last if entry.speeds]
    if speeds:
        summary.mean_speed = mean(speeds)
        if "random_forward_speed" in scales:
            summary.random_mean_speed = scales["random_forward_speed"]
    return summary
