"""Method `reward`: propose a reward → check → train → judge → revise … → confirm → deliver.

Reads top to bottom as the session runs. All that is remembered is in rows and artifacts; what this module holds in
variables is rebuilt from recorded steps when the workflow is taken up again.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_orchestrator import defaults, metrics, names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.methods import authoring, suggestions, training
from dressage_orchestrator.methods.authoring import Code
from dressage_orchestrator.methods.protocol import Estimate
from dressage_orchestrator.statistics import mean
from dressage_orchestrator.workflow import aggregate, tools
from dressage_orchestrator.workflow.delivery import deliver
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.judging import confirm, enter, judge_iteration
from dressage_orchestrator.workflow.outcome import Exhausted, Outcome

_HISTORY = 6
_LESSONS = 20
_TOKENS_PER_CALL = (6_000, 2_000)


@dataclass(frozen=True)
class _Proposal:
    """A reward for an iteration; ``settled`` when an earlier epoch had checked it and begun to train."""

    reward: Code
    tries: int = 1
    settled: bool = False


class RewardMethod:
    """See `Method`."""

    def validate(self, spec: v1.SessionSpec) -> None:
        """Refuses what contradicts itself."""
        if spec.train_only and not spec.reward_source:
            raise InvalidArgument(field="spec.reward_source", value="", expected="a reward, as train_only is set")

    def estimate(self, spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """Two authors or one reviser, and a repair now and then; training and evaluation of every member."""
        calls = 0 if spec.train_only else int(not spec.reward_source) + int(not spec.judge_source)
        episodes = defaults.members_of(spec) * spec.evaluations * spec.evaluation_episodes
        calls = max(calls, 1) if spec.max_iterations > 1 else calls
        sent, received = _TOKENS_PER_CALL
        steps = defaults.env_steps_per_iteration(spec)
        return Estimate(steps, episodes * episode_steps, calls, calls * sent, calls * received)

    def run(self, flow: Flow) -> Outcome:
        """Runs the session."""
        try:
            outcome = _iterate(flow)
        except Exhausted as exhausted:
            if exhausted.kind:
                metrics.BUDGET_EXHAUSTED.labels(exhausted.kind).inc()
            outcome = Outcome(v1.SESSION_STATE_EXHAUSTED, exhausted.reason)
        deliver(flow)
        return outcome


def _iterate(flow: Flow) -> Outcome:
    plan = flow.step("plan", lambda: _plan(flow))
    judge = None if plan["next"] == 1 or flow.spec.train_only else _checked_judge(flow, authoring.author_judge(flow))
    for number in range(plan["next"], plan["last"] + 1):
        enter(flow, number, v1.PHASE_PROPOSE)
        proposal = _resumed(flow, number)
        if proposal is None and number == 1:
            reward, first_judge = authoring.author_first(flow)
            proposal = _Proposal(reward)
            judge = _checked_judge(flow, first_judge) if first_judge else None
        elif proposal is None:
            proposal = _revise(flow, number)
        if judge is None and not flow.spec.train_only:
            judge = _checked_judge(flow, authoring.author_judge(flow))
        passed = _evaluate(flow, number, proposal, judge)
        _finish(flow, number, "passed" if passed else "judged_too_low")
        if passed:
            return Outcome(v1.SESSION_STATE_SUCCEEDED)
    raise Exhausted(f"all {plan['last']} iterations are used and the score is below {flow.spec.pass_threshold:g}")


def _plan(flow: Flow) -> Json:
    with flow.engine.database.begin() as tx:
        last = sessions.get(tx, flow.session).spec.max_iterations
        done = [entry.number for entry in sessions.iterations(tx, flow.session) if entry.phase == v1.PHASE_DONE]
    return {"next": max(done, default=0) + 1, "last": last}


def _checked_judge(flow: Flow, judge: Code) -> Code:
    return authoring.checked(flow, 1, "judge", judge)[0]


def _resumed(flow: Flow, number: int) -> _Proposal | None:
    """The proposal that an earlier epoch settled for this iteration; None if there is none."""

    def look() -> Json:
        with flow.engine.database.begin() as tx:
            iteration = sessions.iteration(tx, flow.session, number)
        trainings = [name for name in iteration.runs if f"/runs/{training.TRAINING_RUN}" in name]
        if flow.epoch == 0 or not iteration.source or not trainings:
            return None
        return {"source": iteration.source, "author": iteration.author, "tries": len(trainings)}

    found = flow.step(f"resumed:{number}", look)
    if found is None:
        return None
    return _Proposal(Code(found["source"], found["author"]), tries=found["tries"], settled=True)


def _revise(flow: Flow, number: int) -> _Proposal:
    """The reviser's proposal for iteration ``number``.

    :raises Exhausted: when it knows nothing better.
    """

    # A step of its own: were a note given between a crash and the repetition, the reviser would be asked otherwise,
    # and could not be answered from the journal.
    notes = flow.step(
        f"notes:{number}", lambda: flow.transact(lambda tx: sessions.take_notes(tx, flow.session, number))
    )

    def revise() -> Json:
        with flow.engine.database.begin() as tx:
            history = [entry for entry in sessions.iterations(tx, flow.session) if entry.number < number]
            members = {entry.number: _trained(tx, entry) for entry in history}
            best = sessions.get(tx, flow.session).best_iteration
        task = _reviser_task(flow, number, history, notes)
        task.reviser.dynamics = tools.dynamics(members[history[-1].number])
        task.reviser.iterations_without_improvement = sum(
            1 for entry in history if best and entry.number > names.parse_iteration(best)[1]
        )
        try:
            result = authoring.converse(flow, task, number, tools.history_tools(history, members))
        except FailedPrecondition as error:
            if error.reason != authoring.NO_REVISION_REASON:
                raise
            raise Exhausted(f"no better reward is known: {error.message}") from error
        return _keep_revision(flow, number, history, notes, result)

    made = flow.step(f"revise:{number}", revise)
    return _Proposal(Code(made["source"], made["author"]))


def _trained(tx: Transaction, iteration: v1.Iteration) -> list[v1.Member]:
    trainings = [name for name in iteration.runs if f"/runs/{training.TRAINING_RUN}" in name]
    return runs.members(tx, trainings[-1]) if trainings else []


def _reviser_task(flow: Flow, number: int, history: list[v1.Iteration], notes: list[str]) -> agent_pb.Task:
    lessons = list(dict.fromkeys(entry.lesson for entry in history if entry.lesson))[-_LESSONS:]
    told = agent_pb.ReviserTask(
        brief=authoring.brief(flow),
        history=history[-_HISTORY:],
        notes=notes,
        lessons=lessons,
        tune_hyperparameters=flow.spec.tune_hyperparameters,
    )
    return agent_pb.Task(key=authoring.key_of(flow, f"iterations/{number}/reviser"), reviser=told)


def _keep_revision(
    flow: Flow, number: int, history: list[v1.Iteration], notes: list[str], result: agent_pb.TaskResult
) -> Json:
    revision = result.revision
    suggested, clamped = suggestions.clamp(revision.hyperparameters)
    parents = {entry.number: entry for entry in history}
    parent = parents.get(revision.based_on, history[-1])
    tuned = flow.spec.tune_hyperparameters and revision.HasField("hyperparameters")
    unchanged = not revision.source.strip() or revision.source == parent.source

    def keep(iteration: v1.Iteration) -> None:
        iteration.parent, iteration.author = parent.name, result.model
        iteration.diagnosis, iteration.lesson = revision.diagnosis, revision.lesson
        iteration.planned_change = revision.planned_change
        iteration.notes[:] = notes
        del iteration.configs[:]
        iteration.configs.extend(parent.configs)
        for config in iteration.configs if tuned else ():
            config.hyperparameters.MergeFrom(suggested)

    with flow.engine.database.begin() as tx:
        sessions.put_iteration(tx, flow.session, number, keep)
        if tuned and clamped and flow.once(tx, f"warning/clamped:{number}"):
            message = suggestions.told(clamped)
            flow.emit(tx, ev.Event(warning=ev.Warning(reason="SUGGESTION_CLAMPED", message=message)), iteration=number)
    if unchanged and not tuned:
        raise Exhausted(f"no better reward is known: {revision.diagnosis or 'the reviser changed nothing'}")
    return {"source": parent.source if unchanged else revision.source, "author": result.model}


def _evaluate(flow: Flow, number: int, proposal: _Proposal, judge: Code | None) -> bool:
    """Checks, trains and judges; whether the iteration passed, fresh seeds included."""
    reward, tries, settled = proposal.reward, proposal.tries, proposal.settled
    while True:
        if not settled:
            enter(flow, number, v1.PHASE_CHECK)
            reward, report = authoring.checked(flow, number, "reward", reward)
            _settle(flow, number, reward, report, judge, tries)
        enter(flow, number, v1.PHASE_EVALUATE)
        row = training.train(flow, number, tries=tries, source=reward.source)
        if row.run.state == v1.RUN_STATE_SUCCEEDED:
            break
        if not row.code_fault:
            raise training.failure_of(row)
        # The reward broke on states that the check did not meet: that is one more failure to repair.
        seen = ev.CheckFailure(rule="training", message=row.run.failure.message)
        reward, tries, settled = authoring.repaired(flow, number, "reward", reward, [seen]), tries + 1, False
    if judge is None:
        _keep_unjudged(flow, number, row)
        return True
    enter(flow, number, v1.PHASE_JUDGE)
    judgment = judge_iteration(flow, number, row.run.name, judge.source)
    if not judgment.passed:
        return False
    enter(flow, number, v1.PHASE_CONFIRM)
    again = confirm(flow, number, row.run.name, reward_source=reward.source, judge_source=judge.source)
    if not again.passed:
        message = f"iteration {number} scored {judgment.score:.2f}, but on fresh seeds {again.score:.2f}: not passed"
        flow.warn(f"confirm:{number}", "NOT_CONFIRMED", message, iteration=number)
    return again.passed


def _settle(
    flow: Flow, number: int, reward: Code, report: judge_pb.CheckResponse, judge: Code | None, tries: int
) -> None:
    """The reward passed its check: it is the iteration's proposal, and its files are written."""

    def settle() -> None:
        def keep(iteration: v1.Iteration) -> None:
            iteration.source, iteration.latex, iteration.author = reward.source, report.latex, reward.author
            iteration.terms.clear()
            iteration.terms.update(report.terms)
            if not iteration.configs:
                iteration.configs.extend(flow.spec.configs)
            if parent is not None:
                iteration.diff = tools.diff(parent, iteration)

        with flow.engine.database.begin() as tx:
            parent_name = sessions.iteration(tx, flow.session, number).parent
            parent = None
            if parent_name:
                parent = sessions.iteration(tx, flow.session, names.parse_iteration(parent_name)[1])
            iteration = sessions.put_iteration(tx, flow.session, number, keep)
        flow.put_text(number, "reward.py", reward.source)
        if judge is not None:
            flow.put_text(number, "judge.py", judge.source)
        flow.put_json(number, "proposal.json", authoring.proposal_json(iteration))

    flow.step(f"settle:{number}:{tries}", settle)


def _keep_unjudged(flow: Flow, number: int, row: runs.RunRow) -> None:
    """Without a judge the config with the best own return is the best."""

    def keep() -> None:
        groups: dict[str, list[float]] = {}
        for member in row.run.members:
            last = member.evaluations[-1] if member.evaluations else v1.Evaluation()
            groups.setdefault(member.config, []).append(mean(last.own_returns or last.returns))
        best = max(groups, key=lambda config: mean(groups[config]))
        winners = [member for member in row.run.members if member.config == best]

        def crown(session: v1.Session) -> None:
            session.best_iteration = names.iteration_name(flow.session, number)
            session.returns.CopyFrom(aggregate.returns_of(winners, flow.card.scales))

        def name_best(iteration: v1.Iteration) -> None:
            iteration.best_config = best

        with flow.engine.database.begin() as tx:
            sessions.put_iteration(tx, flow.session, number, name_best)
            flow.edit(tx, crown)

    flow.step(f"best:{number}", keep)


def _finish(flow: Flow, number: int, outcome: str) -> None:
    def end() -> None:
        def keep(iteration: v1.Iteration) -> None:
            iteration.phase = v1.PHASE_DONE
            iteration.end_time.CopyFrom(timestamp(tx.now))

        with flow.engine.database.begin() as tx:
            sessions.put_iteration(tx, flow.session, number, keep)
            if flow.once(tx, f"finished/{number}"):
                metrics.ITERATIONS.labels("reward", outcome).inc()

    flow.step(f"finish:{number}", end)
