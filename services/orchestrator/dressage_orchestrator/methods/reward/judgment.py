"""From judged members to the iteration's judgment: the best config's mean over seeds, stored with its diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition
from dressage.statistics import mean

from dressage_orchestrator import metrics
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import aggregate, board, judging
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.methods.reward import diagnostics
from dressage_orchestrator.methods.reward.training import CONFIRMATION, score_again

_RECORDED = ("judgment", "score", "reward.best_config", "reward.config_scores", "reward.curve", "warnings")
_REPORTED_HERE = ("REWARD_HACKING", "PLATEAU", "SEEDS_DISAGREE")
"""Diagnostics that become events here; the trainer's became events on arrival."""


def by_config(members: Sequence[v1.Member], *, threshold: float) -> dict[str, v1.Judgment]:
    """Return each config's judgment: the mean over its members."""
    groups: dict[str, list[v1.Judgment]] = {}
    for member in members:
        groups.setdefault(member.config, []).append(member.judgment)
    return {config: aggregate.pooled(group, threshold=threshold) for config, group in groups.items()}


def best_config(judgments: Mapping[str, v1.Judgment]) -> str:
    """Return the config with the best mean; the first of equals."""
    return max(judgments, key=lambda config: judgments[config].score)


def judge_training(context: SessionContext, number: int, training: str, judge_source: str) -> v1.Judgment:
    """Aggregate the judgments of a training that code has judged, and add video.

    :return: the best config's judgment, stored in members, iteration and session.
    """
    name = f"judge:{number}:{training.rpartition('/')[2]}"
    return context.message_step(name, v1.Judgment, lambda: _judge_training(context, number, training, judge_source))


def _judge_training(context: SessionContext, number: int, training: str, judge_source: str) -> v1.Judgment:
    threshold = context.spec.pass_threshold
    members = judging.pool_members(context, training)
    best = best_config(by_config(members, threshold=threshold))
    # Without a code judge there is no best config yet.
    deciding = [member for member in members if member.config == best or not judge_source]
    video = judging.judge_by_video(context, training, deciding, judge_source)
    members = judging.pool_members(context, training, without_video=video.without_video)
    configs = by_config(members, threshold=threshold)
    best = best_config(configs)
    judgment, winners = configs[best], [member for member in members if member.config == best]
    judgment.video_left_out = video.left_out
    judgment.cost.CopyFrom(video.cost)
    conditions = context.store.assignment(training).assignment.conditions
    diagnosed = diagnostics.diagnose(context.store.iteration(number), winners, conditions)
    context.store.update_iteration(number, _record_of(best, configs, winners, diagnosed), _RECORDED)
    context.store.charge(number, judging.ROLE, video.cost, key=f"charged/{training}")
    returns = aggregate.returns_of(winners, context.card.scales)
    context.store.set_best(number, v1.Session(best_judgment=judgment, returns=returns), score=judgment.score)
    judging.announce(context, number, members, judgment, subject=context.iteration_name(number), assignment=training)
    for entry in diagnosed:
        if entry.reason in _REPORTED_HERE and not entry.reported:
            key = f"{entry.reason}:{number}"
            context.store.warn(entry.reason, entry.message, iteration=number, key=key)
    context.put_json(number, "judgment.json", judgment)
    if context.store.mark(f"observed/{training}"):
        metrics.JUDGMENT_SCORE.observe(judgment.score)
    return judgment


def _record_of(
    best: str,
    configs: Mapping[str, v1.Judgment],
    winners: Sequence[v1.Member],
    diagnosed: Sequence[diagnostics.Diagnostic],
) -> v1.Iteration:
    record = v1.Iteration(judgment=configs[best], score=configs[best].score)
    record.reward.best_config = best
    for config, judged in configs.items():
        score = record.reward.config_scores.add(config=config, score=judged.score, samples=judged.samples)
        score.interval_low, score.interval_high = judged.interval_low, judged.interval_high
    record.reward.curve.extend(diagnostics.curve(winners))
    record.warnings[:] = [f"{entry.reason}: {entry.message}" for entry in diagnosed]
    return record


def score_best_again(context: SessionContext, number: int, training: str, *, reward_source: str) -> str:
    """Play the best config's policies on fresh seeds; return the assignment's name."""
    config = context.step(f"winner:{number}", lambda: context.store.iteration(number).reward.best_config)
    trained = [member for member in context.store.members(training) if member.config == config and member.policy]
    if not trained:
        raise FailedPrecondition(f"config {config!r} of {training} left no policy to confirm", reason="NO_POLICY")
    return score_again(context, number, trained, reward_source=reward_source)


def judge_again(context: SessionContext, number: int, again: str, judge_source: str) -> v1.Judgment:
    """Aggregate the judgments on fresh seeds that code has judged, and add video.

    :return: the judgment, stored in iteration and session.
    """
    name = f"judge:{number}:{CONFIRMATION}"
    return context.message_step(name, v1.Judgment, lambda: _judge_again(context, number, again, judge_source))


def _judge_again(context: SessionContext, number: int, training: str, judge_source: str) -> v1.Judgment:
    members = judging.pool_members(context, training)
    video = judging.judge_by_video(context, training, members, judge_source)
    members = judging.pool_members(context, training, without_video=video.without_video)
    judgment = aggregate.pooled([m.judgment for m in members], threshold=context.spec.pass_threshold)
    judgment.video_left_out = video.left_out
    judgment.cost.CopyFrom(video.cost)
    returns = aggregate.returns_of(members, context.card.scales)
    context.store.confirm(number, score=judgment.score, judgment=judgment, returns=returns)
    context.store.charge(number, judging.ROLE, video.cost, key=f"charged/{training}")
    judging.announce(context, number, members, judgment, subject=training, assignment=training)
    return judgment


def record_unjudged(context: SessionContext, number: int, row: AssignmentRow) -> None:
    """Record the best config without a judge: by the best return under the proposed reward. Call it in a step."""
    groups: dict[str, list[float]] = {}
    for member in row.assignment.members:
        last = member.evaluations[-1] if member.evaluations else v1.Evaluation()
        groups.setdefault(member.config, []).append(mean(last.proposed_returns or last.returns))
    board.write(context, row.assignment.members)
    best = max(groups, key=lambda config: mean(groups[config]))
    winners = [member for member in row.assignment.members if member.config == best]
    record = v1.Iteration(reward=v1.RewardProposal(best_config=best))
    context.store.update_iteration(number, record, ["reward.best_config"])
    changes = v1.Session(best_iteration=context.iteration_name(number))
    changes.returns.CopyFrom(aggregate.returns_of(winners, context.card.scales))
    context.store.update(changes, ["best_iteration", "returns"])


def record_best_unjudged(context: SessionContext, number: int, assignment: str) -> None:
    """Record the policy to deliver of a training that could not be judged, unless a judged one exists. Call it in a step."""
    if not context.store.get().best_iteration:
        record_unjudged(context, number, context.store.assignment(assignment))
