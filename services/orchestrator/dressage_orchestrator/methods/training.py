"""The reward method's evaluation: one run that trains every config with every seed."""

from __future__ import annotations

import hashlib

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator import defaults, names
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.workflow import budget
from dressage_orchestrator.workflow.flow import Flow
from dressage_orchestrator.workflow.outcome import Exhausted
from dressage_orchestrator.workflow.run_wait import start_run, wait_run
from dressage_orchestrator.workflow.streaming import Arrivals

TRAINING_RUN = "train"


def run_id(tries: int) -> str:
    """Id of the n-th training of an iteration: another one follows only when a reward broke in training."""
    return TRAINING_RUN if tries == 1 else f"{TRAINING_RUN}-{tries}"


def member_id(config: str, seed: int) -> str:
    """Id of a member."""
    return f"{config}-s{seed}"


def train(flow: Flow, number: int, *, tries: int, source: str, judge: str) -> RunRow:
    """Trains the iteration's configs; the run, ended.

    :param judge: source of the judge of checkpoints meanwhile; empty: none.
    """
    flow.step(f"afford:{number}:{tries}", lambda: _afford(flow, number))
    iteration = flow.transact(lambda tx: sessions.iteration(tx, flow.session, number))
    assignment = train_assignment(flow, iteration, source)
    name = names.run_name(flow.session, number, run_id(tries))
    members = [
        v1.Member(
            name=names.member_name(name, spec.id),
            config=spec.config,
            seed=spec.seed,
            target_env_steps=flow.spec.reward.steps_per_member,
        )
        for spec in assignment.members
    ]
    start_run(flow, number, run_id(tries), members, [work.Assignment(id=1, train=assignment)])
    arrivals = None
    if judge and flow.complete and not flow.spec.reward.judge_last_only:
        arrivals = Arrivals(flow, number, name, judge)
    return wait_run(flow, name, arrivals)


def train_assignment(flow: Flow, iteration: v1.Iteration, source: str) -> work.TrainAssignment:
    """What the trainer is told."""
    spec = flow.spec
    told = work.TrainAssignment(environment=flow.environment, reward_source=source, backend=spec.reward.backend)
    told.algorithm = spec.reward.algorithm
    told.options.CopyFrom(spec.environment_options)
    for config in iteration.reward.configs:
        for seed in range(spec.seed, spec.seed + spec.reward.seeds):
            told.members.add(
                id=member_id(config.id, seed), config=config.id, hyperparameters=config.hyperparameters, seed=seed
            )
    told.steps_per_member = spec.reward.steps_per_member
    told.evaluations = spec.reward.evaluations
    told.evaluation_episodes = spec.reward.evaluation_episodes
    told.evaluation_seed = defaults.EVALUATION_SEED
    told.checkpoint_seconds = flow.engine.settings.checkpoint_seconds
    told.cores = flow.engine.controller.cores(flow.spec.pool)
    told.provenance["intent"] = spec.intent
    told.provenance["iteration"] = iteration.name
    told.provenance["author"] = iteration.author
    told.provenance["reward_sha256"] = hashlib.sha256(source.encode()).hexdigest()
    return told


def failure_of(row: RunRow) -> FailedPrecondition:
    """What the session fails by when a run failed."""
    failure = row.run.failure
    metadata = {"run": row.run.name, "remedy": failure.remedy}
    return FailedPrecondition(f"training failed: {failure.message}", reason=failure.reason, metadata=metadata)


def _afford(flow: Flow, number: int) -> None:
    with flow.engine.database.begin() as tx:
        session = sessions.get(tx, flow.session)
        iteration = sessions.iteration(tx, flow.session, number)
        needed = len(iteration.reward.configs) * flow.spec.reward.seeds * flow.spec.reward.steps_per_member
        spent = budget.used_up(session, now=tx.now, next_env_steps=needed)
    if spent is not None:
        raise Exhausted(spent[1], kind=spent[0])
