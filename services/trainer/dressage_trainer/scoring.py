"""One scoring: finished policies on given seeds, on the reference environment (the confirmation of a winner)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.policies import CARD_FILE, WEIGHTS_FILE, load

from dressage_trainer.delivery import Delivery
from dressage_trainer.evaluation import EvaluationSettings, EvaluatorPool
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
    async with EvaluatorPool(settings=settings, scratch=context.scratch, size=size) as pool:

        async def one(reference: pb.PolicyRef) -> None:
            policy = await _fetch(context, reference)
            await delivery.evaluation(reference.member, reference.env_step, await pool.evaluate(policy))

        async with asyncio.TaskGroup() as group:
            for reference in task.policies:
                group.create_task(one(reference))
    delivery.report(pb.Report(done=pb.AssignmentDone()))
    return Outcome.finished(0)


async def _fetch(context: TrainingContext, reference: pb.PolicyRef) -> MemberPolicy:
    """Downloads a bundle."""
    folder: Path = context.scratch / "bundles" / reference.member
    for name in (WEIGHTS_FILE, CARD_FILE):
        await get_file(context.work, f"{reference.bundle.rstrip('/')}/{name}", folder / name)
    policy = load(folder)
    return MemberPolicy(member=reference.member, card=policy.card, weights=policy.weights)
