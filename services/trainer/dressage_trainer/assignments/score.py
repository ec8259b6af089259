"""Serve a `ScoreAssignment`: finished policies play given seeds on stock Gymnasium (the confirmation of a policy)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts import RewardError
from dressage.errors import ResourceExhausted
from dressage.policies import CARD_FILE, WEIGHTS_FILE, load

from dressage_trainer.assignments.context import (
    AssignmentContext,
    all_members_stopped,
    assignment_refused,
    first_of,
)
from dressage_trainer.assignments.delivery import Delivery, evaluation_item, member_item
from dressage_trainer.assignments.requests import options_of
from dressage_trainer.evaluation.evaluator_pool import EvaluationSettings, EvaluatorPool, evaluator_of, stopped_by
from dressage_trainer.lease.files import get_file
from dressage_trainer.messages import MemberPolicy

_MAX_SPARES = 4


async def score(context: AssignmentContext) -> pb.AssignmentResult | None:
    """Score the policies that no earlier attempt scored; None if it was interrupted or cancelled."""
    task = context.assignment.score
    settings = EvaluationSettings(
        environment=task.environment,
        options=options_of(task.options),
        reward_source=task.reward_source,
        allow_unsandboxed=context.allow_unsandboxed,
    )
    size = max(1, min(context.assignment.cores, len(task.policies) * task.episodes))
    context.sandboxes.keep_ready("score", lambda: {evaluator_of(task.environment): min(size, _MAX_SPARES)})
    pool = EvaluatorPool(settings=settings, sandboxes=context.sandboxes, scratch=context.scratch, size=size)
    scoring = asyncio.ensure_future(_score_all(context, pool))
    try:
        async with pool:
            try:
                await first_of(scoring, context.cancelled, context.terminate)
                return scoring.result() if scoring.done() else None
            finally:
                scoring.cancel()
                await asyncio.gather(scoring, return_exceptions=True)
    except ResourceExhausted as error:  # episodes too long: another attempt would record the same
        return assignment_refused(error.reason, error.message)


async def _score_all(context: AssignmentContext, pool: EvaluatorPool) -> pb.AssignmentResult:
    task, delivery = context.assignment.score, Delivery(context)
    stopped = dict(context.assignment.stopped)

    async def one(reference: pb.PolicyRef) -> int:
        """Score a policy and deliver it if requested; return the number of episodes played."""
        played = 0
        if not context.finished(evaluation_item(reference)) and reference.member not in stopped:
            played = await play(reference)
        if task.deliver and reference.member not in stopped and not context.finished(member_item(reference.member)):
            await delivery.fetch_policy(reference)
            await delivery.member(reference)
        return played

    async def play(reference: pb.PolicyRef) -> int:
        """Score a policy; return the number of episodes played."""
        policy = await _fetch(context, reference)
        try:
            episodes = await pool.evaluate(policy, range(task.seed, task.seed + task.episodes))
        except RewardError as error:
            message = stopped_by(error, policy)
            delivery.report_stopped(message)
            stopped[message.member] = session_pb2.Failure(reason=message.reason, message=message.message)
            return 0
        await delivery.evaluation(reference, episodes, every_rollout=task.every_rollout)
        return len(episodes)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(reference)) for reference in task.policies]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    members = [reference.member for reference in task.policies]
    if stopped and stopped.keys() >= set(members):
        return all_members_stopped([stopped[member] for member in members])
    return pb.AssignmentResult(score=pb.ScoreResult(episodes=sum(task.result() for task in tasks)))


async def _fetch(context: AssignmentContext, reference: pb.PolicyRef) -> MemberPolicy:
    """Download a bundle."""
    folder: Path = context.scratch / "bundles" / reference.member
    for name in (WEIGHTS_FILE, CARD_FILE):
        await get_file(context, f"{reference.bundle.rstrip('/')}/{name}", folder / name)
    policy = load(folder)
    return MemberPolicy(reference.member, reference.env_step, policy.card, policy.weights)
