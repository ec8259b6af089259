"""One scoring: finished policies on given seeds, on the reference environment (the confirmation of a winner)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts import RewardError
from dressage.errors import ResourceExhausted
from dressage.policies import CARD_FILE, WEIGHTS_FILE, load

from dressage_trainer.delivery import Delivery
from dressage_trainer.evaluation import EvaluationSettings, EvaluatorPool, stopped_by
from dressage_trainer.leaving import told_to_leave
from dressage_trainer.messages import MemberPolicy
from dressage_trainer.outcome import Outcome
from dressage_trainer.specs import options_of
from dressage_trainer.training import TrainingContext
from dressage_trainer.uploads import get_file


async def score(context: TrainingContext, assignment: pb.Assignment) -> Outcome:
    """Runs one `ScoreAssignment`."""
    task = assignment.score
    delivery = Delivery(work=context.work, assignment=assignment.id, staging=context.scratch / "staging")
    settings = EvaluationSettings(
        environment=task.environment,
        options=options_of(task.options),
        reward_source=task.reward_source,
        seeds=tuple(range(task.seed, task.seed + task.episodes)),
        allow_unsandboxed=context.allow_unsandboxed,
    )
    size = max(1, min(task.cores, len(task.policies)))
    try:
        async with EvaluatorPool(settings=settings, scratch=context.scratch, size=size) as pool:
            scoring = asyncio.ensure_future(_score_all(context, task, delivery, pool))
            if (left := await told_to_leave(scoring, work=context.work, terminate=context.terminate)) is not None:
                return left
            failures = scoring.result()
    except ResourceExhausted as error:  # episodes too long: another attempt would record the same
        return Outcome.failed(error.reason, error.message, generated_code=False)
    if failures and len(failures) == len(task.policies):
        return Outcome.none_left(failures)
    delivery.report(pb.Report(done=pb.AssignmentDone()))
    return Outcome.finished(0)


async def _score_all(
    context: TrainingContext, task: pb.ScoreAssignment, delivery: Delivery, pool: EvaluatorPool
) -> list[session_pb2.Failure]:
    """Scores every policy; why those could not be scored that could not, in their order."""

    async def one(reference: pb.PolicyRef) -> session_pb2.Failure | None:
        policy = await _fetch(context, reference)
        try:
            episodes = await pool.evaluate(policy)
        except RewardError as error:
            stopped = stopped_by(error, policy)
            delivery.stopped(stopped)
            return session_pb2.Failure(reason=stopped.reason, message=stopped.message)
        await delivery.evaluation(reference.member, reference.env_step, episodes)
        return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(reference)) for reference in task.policies]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return [failure for task in tasks if (failure := task.result()) is not None]


async def _fetch(context: TrainingContext, reference: pb.PolicyRef) -> MemberPolicy:
    """Downloads a bundle."""
    folder: Path = context.scratch / "bundles" / reference.member
    for name in (WEIGHTS_FILE, CARD_FILE):
        await get_file(context.work, f"{reference.bundle.rstrip('/')}/{name}", folder / name)
    policy = load(folder)
    return MemberPolicy(reference.member, reference.env_step, policy.card, policy.weights)
