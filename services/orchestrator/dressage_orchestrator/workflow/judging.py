"""Judging a run's rollouts and keeping what came out; confirming a winner on fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator import defaults, metrics, names
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.workflow import aggregate, budget
from dressage_orchestrator.workflow.flow import Flow
from dressage_orchestrator.workflow.run_wait import start_run, wait_run

CONFIRMATION_RUN = "confirm"


def enter(flow: Flow, number: int, phase: v1.Phase.ValueType) -> None:
    """The iteration enters a phase."""

    def mark() -> None:
        def edit(iteration: v1.Iteration) -> None:
            iteration.phase = phase

        with flow.engine.database.begin() as tx:
            sessions.put_iteration(tx, flow.session, number, edit)

    flow.step(f"phase:{number}:{v1.Phase.Name(phase)}", mark)


def judge_iteration(flow: Flow, number: int, run: str, judge_source: str) -> v1.Judgment:
    """Judges an iteration's training; the best config's judgment, stored in members, iteration and session."""

    def judge() -> v1.Judgment:
        return _judge_iteration(flow, number, run, judge_source)

    return flow.message_step(f"judge:{number}:{run.rpartition('/')[2]}", v1.Judgment, judge)


def _judge_iteration(flow: Flow, number: int, run: str, judge_source: str) -> v1.Judgment:
    answer = _ask(flow, run, judge_source)
    threshold = flow.spec.pass_threshold
    with flow.engine.database.begin() as tx:
        members = _store(tx, flow, run, answer, iteration=number)
        configs = aggregate.by_config(members, threshold=threshold)
        best = aggregate.best_config(configs)
        judgment = configs[best]
        judgment.cost.CopyFrom(_cost(answer))
        first = flow.once(tx, f"judged/{run}")

        def keep(iteration: v1.Iteration) -> None:
            iteration.best_config = best
            iteration.judgment.CopyFrom(judgment)
            if first:
                budget.add_cost(iteration.cost, judgment.cost)

        iteration = sessions.put_iteration(tx, flow.session, number, keep)
        winners = [member for member in members if member.config == best]

        def crown(session: v1.Session) -> None:
            if first:
                budget.add_cost(session.cost, judgment.cost)
            better = not session.HasField("best_judgment") or judgment.score > session.best_judgment.score
            if better or session.best_iteration == iteration.name:
                session.best_iteration = iteration.name
                session.best_judgment.CopyFrom(judgment)
                session.returns.CopyFrom(aggregate.returns_of(winners, flow.card.scales))

        flow.edit(tx, crown)
        if first:
            _tell(flow, tx, members, run, judgment, iteration.name, number)
    flow.put_json(number, "judgment.json", judgment)
    if first:
        metrics.JUDGMENT_SCORE.observe(judgment.score)
    return judgment


def _ask(flow: Flow, run: str, judge_source: str) -> judge_pb.JudgeResponse:
    with flow.engine.database.begin() as tx:
        members = runs.members(tx, run)
    rollouts = [r.artifact for m in members if m.evaluations for r in m.evaluations[-1].rollouts]
    if not rollouts:
        raise FailedPrecondition(f"{run} left no rollouts to judge", reason="NOTHING_TO_JUDGE")
    request = judge_pb.JudgeRequest(environment=flow.environment, rollouts=rollouts, judge_source=judge_source)
    request.pass_threshold = flow.spec.pass_threshold
    return flow.call(flow.engine.judge.judge(request))


def _store(tx: Transaction, flow: Flow, run: str, answer: judge_pb.JudgeResponse, *, iteration: int) -> list[v1.Member]:
    """Writes the verdicts into the members; the members."""
    verdicts = {entry.rollout: entry.judgment for entry in answer.rollouts}

    def keep(member: v1.Member) -> None:
        for rollout in member.evaluations[-1].rollouts if member.evaluations else ():
            rollout.judgment.CopyFrom(verdicts[rollout.artifact])
        member.judgment.CopyFrom(aggregate.member_judgment(member, threshold=flow.spec.pass_threshold))

    for member in runs.members(tx, run):
        runs.change_member(tx, run, member.name.rpartition("/")[2], keep)
    return runs.members(tx, run)


def _cost(answer: judge_pb.JudgeResponse) -> v1.Cost:
    total = v1.Cost()
    for entry in answer.rollouts:
        budget.add_cost(total, entry.judgment.cost)
    return total


def _tell(
    flow: Flow, tx: Transaction, members: Sequence[v1.Member], run: str, whole: v1.Judgment, subject: str, number: int
) -> None:
    for member in members:
        flow.emit(tx, ev.Event(judged=ev.Judged(subject=member.name, judgment=member.judgment)), iteration=number)
    flow.emit(tx, ev.Event(judged=ev.Judged(subject=subject, judgment=whole)), iteration=number)


def confirm(flow: Flow, number: int, run: str, *, reward_source: str, judge_source: str) -> v1.Judgment:
    """Scores the best config's members again, on fresh seeds; their judgment, stored in the session."""
    config = flow.step(f"winner:{number}", lambda: _winner(flow, number))
    trained = [m for m in flow.transact(lambda tx: runs.members(tx, run)) if m.config == config and m.policy]
    if not trained:
        raise FailedPrecondition(f"config {config!r} of {run} left no policy to confirm", reason="NO_POLICY")
    name = names.run_name(flow.session, number, CONFIRMATION_RUN)
    members = [
        v1.Member(
            name=names.member_name(name, m.name.rpartition("/")[2]), config=m.config, seed=m.seed, policy=m.policy
        )
        for m in trained
    ]
    start_run(flow, number, CONFIRMATION_RUN, members, [_score_assignment(flow, trained, reward_source)])
    row = wait_run(flow, name)
    if row.run.state != v1.RUN_STATE_SUCCEEDED:
        failure = row.run.failure
        message = f"confirming on fresh seeds failed: {failure.message}"
        raise FailedPrecondition(message, reason=failure.reason or "CONFIRMATION_FAILED")

    def judge() -> v1.Judgment:
        return _judge_confirmation(flow, number, name, judge_source)

    return flow.message_step(f"judge:{number}:{CONFIRMATION_RUN}", v1.Judgment, judge)


def _winner(flow: Flow, number: int) -> str:
    with flow.engine.database.begin() as tx:
        return sessions.iteration(tx, flow.session, number).best_config


def _score_assignment(flow: Flow, trained: Sequence[v1.Member], reward_source: str) -> work.Assignment:
    spec = flow.spec
    score = work.ScoreAssignment(environment=flow.environment, reward_source=reward_source)
    score.options.CopyFrom(spec.environment_options)
    score.episodes = spec.evaluation_episodes
    score.seed = defaults.CONFIRMATION_SEED
    score.cores = flow.engine.controller.cores
    for member in trained:
        step = member.evaluations[-1].env_step if member.evaluations else member.env_steps
        score.policies.add(member=member.name.rpartition("/")[2], bundle=member.policy, env_step=step)
    return work.Assignment(id=1, score=score)


def _judge_confirmation(flow: Flow, number: int, run: str, judge_source: str) -> v1.Judgment:
    answer = _ask(flow, run, judge_source)
    with flow.engine.database.begin() as tx:
        members = _store(tx, flow, run, answer, iteration=number)
        judgment = aggregate.pooled([m.judgment for m in members], threshold=flow.spec.pass_threshold)
        judgment.cost.CopyFrom(_cost(answer))
        first = flow.once(tx, f"judged/{run}")

        def keep(session: v1.Session) -> None:
            session.confirmation.CopyFrom(judgment)
            if first:
                budget.add_cost(session.cost, judgment.cost)
            if session.best_iteration == names.iteration_name(flow.session, number):
                session.returns.CopyFrom(aggregate.returns_of(members, flow.card.scales))

        flow.edit(tx, keep)
        if first:
            _tell(flow, tx, members, run, judgment, run, number)
    return judgment
