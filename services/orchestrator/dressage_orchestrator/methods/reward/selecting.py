"""The best checkpoint of each member instead of the last one, if the session is to deliver it.

Checkpoints are judged on few episodes, so the best of many is in part the luckiest. The best one therefore plays the episodes
of a last evaluation, on the same seeds, and is chosen only if it then scores higher than the last one. Both are search seeds:
the confirmation on fresh seeds follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.lifecycle import aggregate
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.methods.reward.code import Code
from dressage_orchestrator.methods.reward.trained_judge import judged_by_code
from dressage_orchestrator.methods.reward.training import score_checkpoints


def select_checkpoints(context: SessionContext, number: int, training: str, judge: Code, *, reward_source: str) -> Code:
    """Choose each member's checkpoint in a training that code has judged.

    :return: the judge, which may have been repaired.
    """
    if context.spec.reward.checkpoint != v1.CHECKPOINT_CHOICE_BEST:
        return judge
    part = training.rpartition("/")[2]
    chosen = context.step(f"checkpoints:{number}:{part}", lambda: better_checkpoints(context.store.members(training)))
    if not chosen:
        return judge
    again = score_checkpoints(context, number, training, chosen, reward_source=reward_source)
    used = judged_by_code(context, number, again, judge)
    if used.source != judge.source:
        used = judged_by_code(context, number, training, used)
    context.step(f"select:{number}:{part}", lambda: _select(context, training, again))
    return used


def better_checkpoints(members: Sequence[v1.Member]) -> dict[str, int]:
    """Return the steps of members' best checkpoints by id, where they score higher than the last ones; of equals the latest."""
    chosen = {}
    for member in members:
        scored = [(aggregate.checkpoint_score(entry), entry.env_step) for entry in member.evaluations]
        judged = [(score, step) for score, step in scored if score is not None]
        if member.HasField("failure") or not member.policy or not judged:
            continue
        score, step = max(judged)
        last = judged[-1][0]
        if score > last:
            chosen[member.name.rpartition("/")[2]] = step
    return chosen


def _select(context: SessionContext, training: str, again: str) -> Json:
    """Choose the checkpoints that score higher than the last ones on as many episodes; return their steps by member."""
    threshold = context.spec.pass_threshold
    trained = {member.name.rpartition("/")[2]: member for member in context.store.members(training)}
    steps = {}
    for played in context.store.members(again):
        ident = played.name.rpartition("/")[2]
        before = aggregate.member_judgment(trained[ident], threshold=threshold)
        if not played.policy or aggregate.member_judgment(played, threshold=threshold).score <= before.score:
            continue
        evaluation = aggregate.deciding(played)
        context.store.choose_checkpoint(training, ident, evaluation, policy=played.policy)
        steps[ident] = evaluation.env_step
    return steps
