"""Training an iteration's configs with every seed, and scoring the winners again on fresh seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import aggregate, budget
from dressage_orchestrator.lifecycle.assignments import assign, wait
from dressage_orchestrator.lifecycle.checkpoint_judging import CheckpointJudging
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.report import CONFIRMATION_SEED, EVALUATION_SEED, SELECTION_SEED
from dressage_orchestrator.methods.reward import on_device, warm_starts
from dressage_orchestrator.methods.reward.course import Course
from dressage_orchestrator.methods.reward.estimates import kind_of_run, load_of
from dressage_orchestrator.methods.reward.history import TRAINING
from dressage_orchestrator.methods.reward.spec import may_stop_early, most_steps

CONFIRMATION = "confirm"
SELECTION = "select"
COMPARED_EPISODES = 10
"""Episodes of each of two checkpoints that are compared."""


def training_id(tries: int) -> str:
    """Return the id of the n-th training of an iteration: another one follows only when a reward broke in training."""
    return TRAINING if tries == 1 else f"{TRAINING}-{tries}"


def member_id(config: str, seed: int) -> str:
    """Return the id of a member."""
    return f"{config}-s{seed}"


def steps_of(spec: v1.SessionSpec, iteration: v1.Iteration) -> int:
    """Return the environment steps for which each member of an iteration trains."""
    return iteration.reward.steps_per_member or spec.reward.steps_per_member


def train(context: SessionContext, number: int, *, tries: int, source: str, judge: str) -> AssignmentRow:
    """Train the iteration's configs; return the assignment once it has ended.

    :param judge: source of the judge of checkpoints meanwhile; empty: none.
    """
    affordable = context.step(f"afford:{number}:{tries}", lambda: _affordable_steps(context, number))
    warm_starts.settle(context, number, tries=tries, source=source)
    # The recorded proposal does not change during training, so a repetition reads the same.
    iteration = context.store.iteration(number)
    task = train_assignment(context, iteration, source, affordable=affordable)
    name = resource_names.assignment_name(context.session, number, training_id(tries))
    members = [
        v1.Member(
            name=resource_names.member_name(name, spec.id),
            config=spec.config,
            seed=spec.seed,
            target_env_steps=task.steps_per_member,
        )
        for spec in task.members
    ]
    assign(context, number, training_id(tries), work.Assignment(train=task), members=members)
    # The speed of a training that its pool's device could not do is not the pool's.
    kind = "" if task.pool else kind_of_run(context.spec)
    load = load_of(context.environment, (member.hyperparameters for member in task.members), task.steps_per_member)
    row = wait(context, name, kind=kind, load=load, background=_judging(context, number, name, judge))
    context.step(f"course:{number}:{tries}", lambda: _record_course(context, number, row))
    return row


def _judging(context: SessionContext, number: int, name: str, judge: str) -> CheckpointJudging | None:
    """Return what judges checkpoints during the training and decides when it ends; None without a judge."""
    if not judge or context.spec.reward.judge_last_checkpoint_only:
        return None
    # As stored: in a later epoch the session's budget may be another.
    task = context.store.assignment(name).work.train
    most = task.max_steps_per_member or task.steps_per_member
    deciding = None
    if may_stop_early(context.spec, len(context.store.iteration(number).reward.configs)):
        deciding = Course(
            threshold=context.spec.pass_threshold,
            steps=task.steps_per_member,
            evaluations=task.evaluations,
            most=most,
            patience=context.spec.reward.patience,
        )
    return CheckpointJudging(context, number, name, judge, most=most, deciding=deciding)


def _record_course(context: SessionContext, number: int, row: AssignmentRow) -> None:
    """Record in the iteration how long its training lasted, and why."""
    task, trained = row.work.train, row.assignment
    course = v1.TrainingCourse(
        expected_steps=task.steps_per_member,
        max_steps=task.max_steps_per_member or task.steps_per_member,
        extensions=trained.extensions,
    )
    if trained.HasField("early_stop"):
        course.early_stop.CopyFrom(trained.early_stop)
        course.env_steps = trained.early_stop.env_step
    else:
        course.env_steps = max((member.env_steps for member in trained.members), default=0)
    changes = v1.Iteration(reward=v1.RewardProposal(course=course))
    context.store.update_iteration(number, changes, ["reward.course"])


def train_assignment(
    context: SessionContext, iteration: v1.Iteration, source: str, *, affordable: int = 0
) -> work.TrainAssignment:
    """Return the training assignment of an iteration.

    :param affordable: environment steps of a member for which the budget suffices; 0: no limit.
    """
    spec, iteration = on_device.training_values(context, iteration)
    assignment = work.TrainAssignment(environment=context.environment, reward_source=source)
    assignment.backend, assignment.algorithm = spec.reward.backend, spec.reward.algorithm
    assignment.options.CopyFrom(spec.environment_options)
    on_device.assign(context, iteration, assignment)
    starts = warm_starts.policies(context, iteration)
    for config in iteration.reward.configs:
        for seed in range(spec.seed, spec.seed + spec.reward.seeds):
            assignment.members.add(
                id=member_id(config.id, seed),
                config=config.id,
                hyperparameters=config.hyperparameters,
                seed=seed,
                # Its own seed's policy: with one for all, their mean would measure that policy's luck (decision 0050).
                start=starts.get(seed),
            )
    assignment.steps_per_member = steps_of(spec, iteration)
    assignment.max_steps_per_member = most_steps(spec, iteration, affordable=affordable)
    if assignment.max_steps_per_member > assignment.steps_per_member:
        assignment.granted_steps = assignment.steps_per_member
    assignment.evaluations = spec.reward.evaluations
    assignment.evaluation_episodes = spec.reward.evaluation_episodes
    assignment.checkpoint_episodes = spec.reward.checkpoint_episodes
    assignment.evaluation_seed = EVALUATION_SEED
    assignment.checkpoint_seconds = context.engine.settings.checkpoint_seconds
    assignment.provenance["intent"] = spec.intent
    assignment.provenance["iteration"] = iteration.name
    assignment.provenance["author"] = iteration.author
    assignment.provenance["reward_sha256"] = hashlib.sha256(source.encode()).hexdigest()
    return assignment


def failure_of(row: AssignmentRow) -> FailedPrecondition:
    """Return the error with which a session fails after a failed training."""
    failure = row.assignment.failure
    metadata = {"assignment": row.name, "remedy": failure.remedy}
    return FailedPrecondition(f"training failed: {failure.message}", reason=failure.reason, metadata=metadata)


def score_again(context: SessionContext, number: int, trained: Sequence[v1.Member], *, reward_source: str) -> str:
    """Play members' policies on fresh seeds; return the assignment's name.

    :raises FailedPrecondition: when it fails.
    """
    task = _score_assignment(context, reward_source, seed=CONFIRMATION_SEED)
    for member in trained:
        step = aggregate.deciding(member).env_step or member.env_steps
        task.score.policies.add(member=member.name.rpartition("/")[2], bundle=member.policy, env_step=step)
    return _play_policies(context, number, CONFIRMATION, task, trained, doing="confirming on fresh seeds")


def play_checkpoints(
    context: SessionContext,
    number: int,
    training: str,
    earlier: Mapping[str, int],
    *,
    reward_source: str,
    every_rollout: bool,
) -> tuple[str, str]:
    """Play members' earlier checkpoints, which are delivered, and their last ones on the same fresh seeds.

    The wall-clock budget does not limit it: the number of episodes does.

    :param training: full name of the training.
    :param earlier: environment steps by the ids of members.
    :return: the assignments' names: of the earlier checkpoints and of the last ones.
    :raises FailedPrecondition: when one fails.
    """
    trained = [member for member in context.store.members(training) if member.name.rpartition("/")[2] in earlier]
    names = []
    for suffix in ("", "-last"):
        task = _score_assignment(context, reward_source, seed=SELECTION_SEED)
        task.score.episodes, task.score.every_rollout = COMPARED_EPISODES, every_rollout
        task.score.deliver = not suffix
        for member in trained:
            ident = member.name.rpartition("/")[2]
            step, bundle = earlier[ident], f"{member.name}/policies/{earlier[ident]}"
            if suffix:
                step, bundle = aggregate.deciding(member).env_step, member.policy
            task.score.policies.add(member=ident, bundle=bundle, env_step=step)
        ident = training.rpartition("/")[2].replace(TRAINING, SELECTION, 1) + suffix
        doing = "comparing checkpoints"
        names.append(_play_policies(context, number, ident, task, trained, doing=doing, within_wall_time=False))
    return names[0], names[1]


def _play_policies(
    context: SessionContext,
    number: int,
    ident: str,
    task: work.Assignment,
    trained: Sequence[v1.Member],
    *,
    doing: str,
    within_wall_time: bool = True,
) -> str:
    name = resource_names.assignment_name(context.session, number, ident)
    members = [
        v1.Member(
            name=resource_names.member_name(name, m.name.rpartition("/")[2]),
            config=m.config,
            seed=m.seed,
            policy="" if task.score.deliver else m.policy,
        )
        for m in trained
    ]
    assign(context, number, ident, task, members=members)
    row = wait(context, name, within_wall_time=within_wall_time)
    if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED:
        failure = row.assignment.failure
        message = f"{doing} failed: {failure.message}"
        raise FailedPrecondition(message, reason=failure.reason or "SCORING_FAILED")
    return name


def _score_assignment(context: SessionContext, reward_source: str, *, seed: int) -> work.Assignment:
    """Return a scoring without its policies."""
    spec = context.spec
    score = work.ScoreAssignment(environment=context.environment, reward_source=reward_source)
    score.options.CopyFrom(spec.environment_options)
    score.episodes = spec.reward.evaluation_episodes
    score.seed = seed
    return work.Assignment(score=score)


def _affordable_steps(context: SessionContext, number: int) -> int:
    """Return the environment steps of a member for which the budget suffices; 0 if it has no limit.

    :raises Exhausted: when it does not suffice for the expected steps.
    """
    session = context.store.get()
    spec, iteration = on_device.training_values(context, context.store.iteration(number))
    members = len(iteration.reward.configs) * spec.reward.seeds
    needed = members * steps_of(spec, iteration)
    budget.require(session, now=context.store.now(), next_env_steps=needed)
    limit = session.spec.budget.env_steps
    return (limit - session.env_steps) // members if limit else 0
