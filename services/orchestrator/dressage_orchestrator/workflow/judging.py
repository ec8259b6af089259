"""Judging a run's rollouts and keeping what came out; confirming a winner on fresh seeds.

Code judges all last checkpoints (earlier ones were judged while training went on). Where the session's model may look, it sees
what decides: of the best config's members the median rollout of the last checkpoint and of the best one. Then the scores are
pooled: rollouts → checkpoint → member → config, a mean over seeds with its bootstrap interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, FailedPrecondition
from dressage.serving.bills import add_cost, billed

from dressage_orchestrator import defaults, metrics, names
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.workflow import aggregate, budget, signs
from dressage_orchestrator.workflow.flow import Flow
from dressage_orchestrator.workflow.run_wait import start_run, wait_run

CONFIRMATION_RUN = "confirm"
JUDGE_ROLE = "judge"
"""The role under which the judge service's model calls are counted."""

_MAX_WATCHED = 12


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
    _judge_by_code(flow, run, judge_source)
    threshold = flow.spec.pass_threshold
    with flow.engine.database.begin() as tx:
        best = aggregate.best_config(aggregate.by_config(_pool_members(tx, flow, run), threshold=threshold))
        members = [member for member in runs.members(tx, run) if member.config == best]
    cost = _judge_by_video(flow, run, _deciding(flow, members), judge_source)
    with flow.engine.database.begin() as tx:
        members = _pool_members(tx, flow, run)
        configs = aggregate.by_config(members, threshold=threshold)
        best = aggregate.best_config(configs)
        judgment = configs[best]
        judgment.cost.CopyFrom(cost)
        winners = [member for member in members if member.config == best]
        first = flow.once(tx, f"judged/{run}")
        conditions = runs.get(tx, run).run.conditions

        def keep(iteration: v1.Iteration) -> None:
            iteration.reward.best_config = best
            iteration.judgment.CopyFrom(judgment)
            iteration.score = judgment.score
            _keep_details(iteration, configs, winners, conditions)

        iteration = sessions.put_iteration(tx, flow.session, number, keep)
        if first:
            charge(tx, flow, number, JUDGE_ROLE, cost)

        def crown(session: v1.Session) -> None:
            better = not session.HasField("best_judgment") or judgment.score > session.best_judgment.score
            if better or session.best_iteration == iteration.name:
                session.best_iteration = iteration.name
                session.best_judgment.CopyFrom(judgment)
                session.best_score = judgment.score
                session.returns.CopyFrom(aggregate.returns_of(winners, flow.card.scales))

        flow.edit(tx, crown)
        if first:
            _tell(flow, tx, members, judgment, iteration.name, number)
            _warn_of(flow, tx, number, signs.signs(iteration, winners, conditions))
    flow.put_json(number, "judgment.json", judgment)
    if first:
        metrics.JUDGMENT_SCORE.observe(judgment.score)
    return judgment


def _keep_details(
    iteration: v1.Iteration,
    configs: dict[str, v1.Judgment],
    winners: Sequence[v1.Member],
    conditions: Sequence[v1.Condition],
) -> None:
    del iteration.reward.config_scores[:]
    for config, judged in configs.items():
        told = iteration.reward.config_scores.add(config=config, score=judged.score, samples=judged.samples)
        told.interval_low, told.interval_high = judged.interval_low, judged.interval_high
    del iteration.reward.curve[:]
    iteration.reward.curve.extend(signs.curve(winners))
    found = signs.signs(iteration, winners, conditions)
    iteration.warnings[:] = [f"{sign.reason}: {sign.message}" for sign in found]


def _warn_of(flow: Flow, tx: Transaction, number: int, found: Sequence[signs.Sign]) -> None:
    """Tells the computed warnings; what the trainer reported was told when it did."""
    ours = ("REWARD_HACKING", "PLATEAU", "SEEDS_DISAGREE")
    for sign in found:
        if sign.reason in ours and not sign.reported:
            warning = ev.Warning(reason=sign.reason, message=sign.message)
            flow.emit(tx, ev.Event(warning=warning), iteration=number)


def charge(tx: Transaction, flow: Flow, number: int, role: str, cost: v1.Cost) -> v1.Session:
    """Counts a cost for the session, the iteration and the role; the session."""

    def count(iteration: v1.Iteration) -> None:
        add_cost(iteration.cost, cost)
        add_cost(iteration.cost_by_role[role], cost)

    def count_session(session: v1.Session) -> None:
        add_cost(session.cost, cost)
        add_cost(session.cost_by_role[role], cost)

    if cost.requests:
        sessions.put_iteration(tx, flow.session, number, count)
        return flow.edit(tx, count_session)
    return sessions.get(tx, flow.session)


def _request(flow: Flow, rollouts: Sequence[str], judge_source: str) -> judge_pb.JudgeRequest:
    request = judge_pb.JudgeRequest(environment=flow.environment, rollouts=rollouts, judge_source=judge_source)
    request.pass_threshold = flow.spec.pass_threshold
    return request


def _judge_by_code(flow: Flow, run: str, judge_source: str) -> None:
    """Judges the last checkpoints of a run's members and stores the verdicts."""
    with flow.engine.database.begin() as tx:
        members = runs.members(tx, run)
    rollouts = [r.artifact for m in members if m.evaluations for r in m.evaluations[-1].rollouts]
    if not rollouts:
        raise FailedPrecondition(f"{run} left no rollouts to judge", reason="NOTHING_TO_JUDGE")
    _store(flow, run, flow.call(flow.engine.judge.judge(_request(flow, rollouts, judge_source))))


def _deciding(flow: Flow, members: Sequence[v1.Member]) -> list[str]:
    """The rollouts that a vision model looks at.

    :param members: of the best config.
    """
    chosen: list[str] = []
    for member in members:
        if not member.evaluations:
            continue
        judged = [entry for entry in member.evaluations if signs.checkpoint_score(entry) is not None]
        best = max(judged, key=lambda entry: signs.checkpoint_score(entry) or 0.0, default=None)
        last = member.evaluations[-1]
        if flow.spec.video_judging == v1.VIDEO_JUDGING_ALL:
            chosen += [rollout.artifact for rollout in last.rollouts]
            continue
        for entry in (last, best) if best is not None and best is not last else (last,):
            chosen += [rollout.artifact for rollout in entry.rollouts if rollout.label == "median"]
    return list(dict.fromkeys(chosen))[:_MAX_WATCHED]


def _watches(flow: Flow) -> bool:
    """Whether there is a model that might look: neither the built-in author nor a recording has eyes."""
    blind = not defaults.is_language_model(flow.spec.model)
    return flow.spec.video_judging != v1.VIDEO_JUDGING_NONE and not blind


def _judge_by_video(flow: Flow, run: str, rollouts: Sequence[str], judge_source: str) -> v1.Cost:
    """Has the session's model look at rollouts, where it can, and stores the merged verdicts; what it cost."""
    if not rollouts or not _watches(flow):
        return v1.Cost()
    with flow.engine.database.begin() as tx:
        session = sessions.get(tx, flow.session)
        if budget.used_up(session, now=tx.now) is not None:
            return v1.Cost()
    parts = names.parse_run(run)
    request = _request(flow, rollouts, judge_source)
    request.session, request.model = session.name, flow.spec.model
    request.key = f"iterations/{parts.iteration}/judge/{parts.run}" + (f"-e{flow.epoch}" if flow.epoch else "")
    request.brief.intent, request.brief.environment = flow.spec.intent, flow.environment
    request.brief.criteria.extend(flow.spec.criteria)
    request.video.rollouts.extend(rollouts)
    request.remaining_budget.CopyFrom(budget.remaining(session))
    total = v1.Cost()
    try:
        answer = flow.call(flow.engine.judge.judge(request))
    except DressageError as error:  # code has judged already: a model that cannot look fails no session
        answer = judge_pb.JudgeResponse()
        add_cost(total, billed(error))
        notices = [f"the videos could not be judged: {error.message}"]
    else:
        notices = list(dict.fromkeys(notice for entry in answer.rollouts for notice in entry.notices))
    _store(flow, run, answer)
    with flow.engine.database.begin() as tx:
        if notices and flow.once(tx, f"notices/{run}"):
            warning = ev.Warning(reason="VIDEO_NOT_JUDGED", message="; ".join(notices)[:1000])
            flow.emit(tx, ev.Event(warning=warning), iteration=parts.iteration)
    for entry in answer.rollouts:
        add_cost(total, entry.judgment.cost)
    return total


def _store(flow: Flow, run: str, answer: judge_pb.JudgeResponse) -> None:
    """Writes verdicts into the rollouts that they are about."""
    verdicts = {entry.rollout: entry.judgment for entry in answer.rollouts}

    def keep(member: v1.Member) -> None:
        for evaluation in member.evaluations:
            aggregate.keep_verdicts(evaluation, verdicts)

    with flow.engine.database.begin() as tx:
        for member in runs.members(tx, run):
            runs.change_member(tx, run, member.name.rpartition("/")[2], keep)


def _pool_members(tx: Transaction, flow: Flow, run: str) -> list[v1.Member]:
    """Writes each member's judgment from its last checkpoint's; the members."""

    def keep(member: v1.Member) -> None:
        member.judgment.CopyFrom(aggregate.member_judgment(member, threshold=flow.spec.pass_threshold))

    ids = [member.name.rpartition("/")[2] for member in runs.members(tx, run)]
    return [runs.change_member(tx, run, ident, keep) for ident in ids]


def _tell(
    flow: Flow, tx: Transaction, members: Sequence[v1.Member], whole: v1.Judgment, subject: str, number: int
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
        return sessions.iteration(tx, flow.session, number).reward.best_config


def _score_assignment(flow: Flow, trained: Sequence[v1.Member], reward_source: str) -> work.Assignment:
    spec = flow.spec
    score = work.ScoreAssignment(environment=flow.environment, reward_source=reward_source)
    score.options.CopyFrom(spec.environment_options)
    score.episodes = spec.reward.evaluation_episodes
    score.seed = defaults.CONFIRMATION_SEED
    score.cores = flow.engine.controller.cores(flow.spec.pool)
    for member in trained:
        step = member.evaluations[-1].env_step if member.evaluations else member.env_steps
        score.policies.add(member=member.name.rpartition("/")[2], bundle=member.policy, env_step=step)
    return work.Assignment(id=1, score=score)


def _judge_confirmation(flow: Flow, number: int, run: str, judge_source: str) -> v1.Judgment:
    _judge_by_code(flow, run, judge_source)
    with flow.engine.database.begin() as tx:
        members = runs.members(tx, run)
    cost = _judge_by_video(flow, run, _deciding(flow, members), judge_source)
    with flow.engine.database.begin() as tx:
        members = _pool_members(tx, flow, run)
        judgment = aggregate.pooled([m.judgment for m in members], threshold=flow.spec.pass_threshold)
        judgment.cost.CopyFrom(cost)
        first = flow.once(tx, f"judged/{run}")

        def keep_iteration(iteration: v1.Iteration) -> None:
            iteration.confirmation.CopyFrom(judgment)
            iteration.confirmed_score = judgment.score

        def keep(session: v1.Session) -> None:
            session.confirmation.CopyFrom(judgment)
            if session.best_iteration == names.iteration_name(flow.session, number):
                session.returns.CopyFrom(aggregate.returns_of(members, flow.card.scales))

        sessions.put_iteration(tx, flow.session, number, keep_iteration)
        flow.edit(tx, keep)
        if first:
            charge(tx, flow, number, JUDGE_ROLE, cost)
            _tell(flow, tx, members, judgment, run, number)
    return judgment
