"""From trained rollouts to the iteration's judgment: by code, and the best config's mean over seeds.

A judge is checked before any policy is trained, on shipped episodes. Trained rollouts reach states that those do not. A judge
that fails on one, or that passes a rollout and the same rollout played backwards although it declares the null control
`time_reversed`, is repaired by its author with that evidence, checked on these rollouts as well, and judges all again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition
from dressage.statistics import mean

from dressage_orchestrator import metrics
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import aggregate, board, judging
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.methods.reward import diagnostics
from dressage_orchestrator.methods.reward.code import Code, check, findings_line, may_repair, pass_check, repair_code
from dressage_orchestrator.methods.reward.training import CONFIRMATION, score_again

_RECORDED = ("judgment", "score", "reward.best_config", "reward.config_scores", "reward.curve", "warnings")
_REPORTED_HERE = ("REWARD_HACKING", "PLATEAU", "SEEDS_DISAGREE")
"""Diagnostics that become events here; the trainer's became events on arrival."""


def by_config(members: Sequence[v1.Member], *, threshold: float) -> dict[str, v1.Judgment]:
    """Return each config's judgment: the mean over its members."""
    groups: dict[str, list[v1.Judgment]] = {}
    for member in members:
        groups.setdefault(member.config, []).append(member.judgment)
    return {config: aggregate.pool(group, threshold=threshold) for config, group in groups.items()}


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
    for config, judgment in configs.items():
        score = record.reward.config_scores.add(config=config, score=judgment.score, samples=judgment.samples)
        score.interval_low, score.interval_high = judgment.interval_low, judgment.interval_high
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
    judgment = aggregate.pool([m.judgment for m in members], threshold=context.spec.pass_threshold)
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
        entry = aggregate.deciding(member)
        groups.setdefault(member.config, []).append(mean(entry.proposed_returns or entry.returns))
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


JUDGE_FAILED = "JUDGE_FAILED"
_TIME_REVERSED = "time_reversed"
_MAX_ROLLOUTS = 6
"""Rollouts of which a repaired judge is checked, and that are played backwards."""


def judge_by_code(context: SessionContext, number: int, assignment: str, judge: Code) -> Code:
    """Judge the last checkpoints of an assignment by code; return the judge that did it, repaired where it failed.

    After a repair all checkpoints are judged again, so that a curve has one judge.

    :raises FailedPrecondition: JUDGE_REJECTED when its author cannot repair a judge that fails.
    """
    first = judge
    while True:
        result = _judge_rollouts(context, number, assignment, judge, everything=judge.source != first.source)
        failures, rollouts = _failures(result), list(result["rollouts"])
        if not failures:
            failures = _backwards(context, number, assignment, judge, rollouts)
            if not failures:
                return judge
            if not may_repair(context, judge):
                return _warn_unsound(context, number, assignment, judge, failures)
        try:
            judge, _ = pass_check(
                context, number, "judge", repair_code(context, number, "judge", judge, failures), rollouts=rollouts
            )
        except FailedPrecondition as error:
            if error.reason != "JUDGE_REJECTED" or result["failure"]:
                raise
            # Its repairs are used up: a later one would have the name of an earlier one.
            spent = replace(judge, repairs=context.engine.settings.max_repairs)
            return _warn_unsound(context, number, assignment, spent, failures)
        _record_repair(context, number, judge)


def _judge_rollouts(context: SessionContext, number: int, assignment: str, judge: Code, *, everything: bool) -> Json:
    """Judge by code; return the rollouts to check the judge on, and its failure if it failed."""

    def work() -> Json:
        try:
            members = judging.judge_checkpoints(context, assignment, judge.source, everything=everything)
        except FailedPrecondition as error:
            if error.reason != JUDGE_FAILED:
                raise
            names = [name for name in error.metadata.get("rollouts", "").split(",") if name]
            failure = {key: error.metadata.get(key, "") for key in ("rule", "line", "failure", "seen", "episode")}
            return {"rollouts": names[:_MAX_ROLLOUTS], "failure": {**failure, "message": error.message}}
        return {
            "rollouts": _passing_rollouts(members, threshold=context.spec.pass_threshold)[:_MAX_ROLLOUTS],
            "failure": None,
        }

    part = assignment.rpartition("/")[2]
    return context.step(f"judge:{number}:{part}:code:{judge.version}", work)


def _failures(result: Json) -> list[ev.CheckFailure]:
    failed = result["failure"]
    if not failed:
        return []
    evidence = "; ".join(part for part in (failed["seen"], f"the rollout: {failed['episode']}") if part)
    message = f"on a rollout of a trained policy: {failed['failure'] or failed['message']}"
    return [ev.CheckFailure(rule=failed["rule"], line=int(failed["line"] or 0), message=message, seen=evidence)]


def _passing_rollouts(members: Sequence[v1.Member], *, threshold: float) -> list[str]:
    """Return the median rollouts of last checkpoints that pass."""
    return [
        rollout.artifact
        for member in members
        for rollout in aggregate.deciding(member).rollouts
        if rollout.label == "median" and rollout.judgment.score >= threshold
    ]


def _backwards(
    context: SessionContext, number: int, assignment: str, judge: Code, rollouts: Sequence[str]
) -> list[ev.CheckFailure]:
    """Return the failures of the judge on passing rollouts that are played backwards, where direction matters."""
    if _TIME_REVERSED not in judge.controls or not rollouts:
        return []
    tag = f":{assignment.rpartition('/')[2]}"
    return list(check(context, number, "judge", judge, rollouts=rollouts, tag=tag).failures)


def _warn_unsound(
    context: SessionContext, number: int, assignment: str, judge: Code, failures: Sequence[ev.CheckFailure]
) -> Code:
    """Return the judge as it is, with a warning: it judged every rollout, so its scores stand."""
    message = f"the judge is used although it fails a check on trained rollouts: {findings_line(failures)}"[:1000]
    key = f"unsound/{assignment}"
    context.step(
        f"warn:judge:{number}:{assignment.rpartition('/')[2]}",
        lambda: context.store.warn("JUDGE_UNSOUND", message, iteration=number, key=key),
    )
    return judge


def _record_repair(context: SessionContext, number: int, judge: Code) -> None:
    """Write the repaired judge to the iteration in which it was repaired."""

    def write() -> None:
        write_judge(context, number, judge)
        explanation = judge.explanations[-1] if judge.explanations else ""
        message = f"the judge failed on trained rollouts and was repaired: {explanation}"[:1000]
        context.store.warn("JUDGE_REPAIRED", message, iteration=number, key=f"judge-repaired/{number}/{judge.version}")

    context.step(f"judge-repaired:{number}:{judge.version}", write)


def write_judge(context: SessionContext, number: int, judge: Code) -> None:
    """Write a judge's files to an iteration's folder. In a step."""
    context.put_text(number, "judge.py", judge.source)
    context.put_json(number, "judge.json", {"author": judge.author, "null_controls": list(judge.controls)})
