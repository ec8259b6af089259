"""Method `reward`: propose a reward → review → check → screen → train → judge → revise … → confirm → deliver.

Reads top to bottom as the session runs. All that is remembered is in rows and artifacts; what this module holds in
variables is rebuilt from recorded steps when the workflow is taken up again.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, InvalidArgument

from dressage_orchestrator import defaults, metrics, names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.methods import authoring, configs, revising, steering, training
from dressage_orchestrator.methods.authoring import Code
from dressage_orchestrator.methods.prescreening import prescreen
from dressage_orchestrator.methods.protocol import Estimate
from dressage_orchestrator.methods.reviewing import reviewed
from dressage_orchestrator.statistics import mean
from dressage_orchestrator.workflow import aggregate, tools
from dressage_orchestrator.workflow.delivery import deliver
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.judging import confirm, enter, judge_iteration
from dressage_orchestrator.workflow.outcome import Exhausted, Outcome

_TOKENS_PER_CALL = (6_000, 2_000)
_REVIEWS = 1
"""Rounds of code review that are expected of what is written."""


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
        if spec.reward.train_only and not spec.reward.reward_source:
            raise InvalidArgument(
                field="spec.reward.reward_source", value="", expected="a reward, as train_only is set"
            )

    def estimate(self, spec: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """Two authors or one reviser, a review of each; training and evaluation of every member."""
        calls = 0 if spec.reward.train_only else int(not spec.reward.reward_source) + int(not spec.judge_source)
        episodes = defaults.members_of(spec) * spec.reward.evaluations * spec.reward.evaluation_episodes
        calls = max(calls, 1) if spec.max_iterations > 1 else calls
        calls *= 1 + _REVIEWS
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
            outcome = _ended(flow, exhausted)
        except DressageError:
            # What earlier iterations brought about is delivered all the same.
            if flow.complete:
                _deliver_after_failure(flow)
            raise
        deliver(flow)
        return outcome


def _deliver_after_failure(flow: Flow) -> None:
    try:
        deliver(flow)
    except DressageError as error:
        flow.log.warning("nothing is delivered", reason=error.reason, message=error.message)


def _ended(flow: Flow, exhausted: Exhausted) -> Outcome:
    """How a session ends that is used up: an extended one may have succeeded before."""

    def look() -> bool:
        with flow.engine.database.begin() as tx:
            best = sessions.get(tx, flow.session).best_iteration
            done = sessions.iterations(tx, flow.session)
        return any(entry.name == best and entry.confirmation.passed for entry in done)

    if flow.complete and flow.epoch > 0 and flow.step("confirmed", look):
        return Outcome(v1.SESSION_STATE_SUCCEEDED, exhausted.reason, exhausted.kind)
    return Outcome(v1.SESSION_STATE_EXHAUSTED, exhausted.reason, exhausted.kind)


def _iterate(flow: Flow) -> Outcome:
    plan = flow.step("plan", lambda: _plan(flow))
    judge = (
        None if plan["next"] == 1 or flow.spec.reward.train_only else _checked_judge(flow, authoring.author_judge(flow))
    )
    for number in range(plan["next"], plan["last"] + 1):
        enter(flow, number, v1.PHASE_PROPOSE)
        proposal, first_judge = _propose(flow, number)
        if first_judge is not None:
            judge = _checked_judge(flow, first_judge)
        if judge is None and not flow.spec.reward.train_only:
            judge = _checked_judge(flow, authoring.author_judge(flow))
        passed = _evaluate(flow, number, proposal, judge)
        _finish(flow, number, "passed" if passed else "judged_too_low")
        if passed:
            return Outcome(v1.SESSION_STATE_SUCCEEDED)
    raise Exhausted(f"all {plan['last']} iterations are used and the score is below {flow.spec.pass_threshold:g}")


def _propose(flow: Flow, number: int) -> tuple[_Proposal, Code | None]:
    """An iteration's proposal, and the judge where one was written with it."""
    settled = _resumed(flow, number)
    if settled is not None:
        return settled, None
    told = steering.take(flow, number) if number > 1 or flow.complete else steering.Directions()
    if told.reward:
        return _Proposal(revising.directed(flow, number, told)), None
    if number > 1:
        written = {"reward": revising.revised(flow, number, told)}
    else:
        reward, first_judge = authoring.author_first(flow)
        written = {"reward": reward} | ({"judge": first_judge} if first_judge else {})
    written = reviewed(flow, number, written)
    return _Proposal(written["reward"]), written.get("judge")


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
        if flow.epoch == 0 or not iteration.reward.source or not trainings:
            return None
        return {"source": iteration.reward.source, "author": iteration.author, "tries": len(trainings)}

    found = flow.step(f"resumed:{number}", look)
    if found is None:
        return None
    return _Proposal(Code(found["source"], found["author"]), tries=found["tries"], settled=True)


def _evaluate(flow: Flow, number: int, proposal: _Proposal, judge: Code | None) -> bool:
    """Checks, trains and judges; whether the iteration passed, fresh seeds included."""
    reward, tries, settled, sent_back = proposal.reward, proposal.tries, proposal.settled, 0
    while True:
        if not settled:
            enter(flow, number, v1.PHASE_CHECK)
            reward, report = authoring.checked(flow, number, "reward", reward)
            _settle(flow, number, reward, report, judge, tries)
            failure = prescreen(flow, number, reward, judge, rounds=sent_back)
            if failure is not None:
                reward, sent_back = authoring.repaired(flow, number, "reward", reward, [failure]), sent_back + 1
                continue
            edited = _approved(flow, number, reward)
            if edited is not None:
                reward = edited
                continue
        enter(flow, number, v1.PHASE_EVALUATE)
        row = training.train(flow, number, tries=tries, source=reward.source, judge=judge.source if judge else "")
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


def _approved(flow: Flow, number: int, reward: Code) -> Code | None:
    """None once the reward may be trained; else the one that a person put in its place."""
    if not flow.complete or not flow.spec.approve_before_evaluation:
        return None
    return steering.await_approval(flow, number, reward)


def _settle(
    flow: Flow, number: int, reward: Code, report: judge_pb.CheckResponse, judge: Code | None, tries: int
) -> None:
    """The reward passed its check: it is the iteration's proposal, and its files are written."""

    def settle() -> None:
        def keep(iteration: v1.Iteration) -> None:
            iteration.reward.source, iteration.reward.latex, iteration.author = (
                reward.source,
                report.latex,
                reward.author,
            )
            iteration.reward.terms.clear()
            iteration.reward.terms.update(report.terms)
            if not iteration.reward.configs:
                iteration.reward.configs.extend(configs.first_configs(flow.spec))
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
            flow.put_json(number, "judge.json", {"author": judge.author, "null_controls": list(judge.controls)})
        flow.put_json(number, "proposal.json", authoring.proposal_json(iteration))

    flow.step(f"settle:{number}:{tries}" + (f":{reward.version}" if flow.complete else ""), settle)


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
            iteration.reward.best_config = best

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
