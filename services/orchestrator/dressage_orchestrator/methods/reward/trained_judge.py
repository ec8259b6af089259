"""The judge after training: a failure on trained rollouts goes to its author, and the rollouts are judged again.

A judge is checked before any policy is trained, on shipped episodes. Trained rollouts reach states that those do not. A judge
that fails on one, or that passes a rollout and the same rollout played backwards although it declares the null control
`time_reversed`, is repaired by its author with that evidence, checked on these rollouts as well, and judges all again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator.lifecycle import aggregate, judging
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.methods.reward.code import Code, check, checked, may_repair, repaired, shown

JUDGE_FAILED = "JUDGE_FAILED"
_TIME_REVERSED = "time_reversed"
_MAX_ROLLOUTS = 6
"""Rollouts of which a repaired judge is checked, and that are played backwards."""


def judged_by_code(context: SessionContext, number: int, assignment: str, judge: Code) -> Code:
    """Judge the last checkpoints of an assignment by code; return the judge that did it, repaired where it failed.

    After a repair all checkpoints are judged again, so that a curve has one judge.

    :raises FailedPrecondition: JUDGE_REJECTED when its author cannot repair a judge that fails.
    """
    first = judge
    while True:
        result = _judge(context, number, assignment, judge, everything=judge.source != first.source)
        failures, rollouts = _failures(result), list(result["rollouts"])
        if not failures:
            failures = _backwards(context, number, assignment, judge, rollouts)
            if not failures:
                return judge
            if not may_repair(context, judge):
                return _warned(context, number, assignment, judge, failures)
        try:
            judge, _ = checked(
                context, number, "judge", repaired(context, number, "judge", judge, failures), rollouts=rollouts
            )
        except FailedPrecondition as error:
            if error.reason != "JUDGE_REJECTED" or result["failure"]:
                raise
            # Its repairs are used up: a later one would have the name of an earlier one.
            spent = replace(judge, repairs=context.engine.settings.max_repairs)
            return _warned(context, number, assignment, spent, failures)
        _record(context, number, judge)


def _judge(context: SessionContext, number: int, assignment: str, judge: Code, *, everything: bool) -> Json:
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
        return {"rollouts": _passing(members, threshold=context.spec.pass_threshold)[:_MAX_ROLLOUTS], "failure": None}

    part = assignment.rpartition("/")[2]
    return context.step(f"judge:{number}:{part}:code:{judge.version}", work)


def _failures(result: Json) -> list[ev.CheckFailure]:
    failed = result["failure"]
    if not failed:
        return []
    seen = "; ".join(part for part in (failed["seen"], f"the rollout: {failed['episode']}") if part)
    message = f"on a rollout of a trained policy: {failed['failure'] or failed['message']}"
    return [ev.CheckFailure(rule=failed["rule"], line=int(failed["line"] or 0), message=message, seen=seen)]


def _passing(members: Sequence[v1.Member], *, threshold: float) -> list[str]:
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


def _warned(
    context: SessionContext, number: int, assignment: str, judge: Code, failures: Sequence[ev.CheckFailure]
) -> Code:
    """Return the judge as it is, with a warning: it judged every rollout, so its scores stand."""
    message = f"the judge is used although it fails a check on trained rollouts: {shown(failures)}"[:1000]
    key = f"unsound/{assignment}"
    context.step(
        f"warn:judge:{number}:{assignment.rpartition('/')[2]}",
        lambda: context.store.warn("JUDGE_UNSOUND", message, iteration=number, key=key),
    )
    return judge


def _record(context: SessionContext, number: int, judge: Code) -> None:
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
