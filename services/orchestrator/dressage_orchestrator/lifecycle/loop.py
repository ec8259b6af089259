"""The workflow of a session with any method: begin, iterate, confirm, deliver, end.

The functions are in the order of a session's course. When the workflow is resumed, variables are rebuilt from recorded steps.
"""

from __future__ import annotations

from dataclasses import replace

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator import metrics
from dressage_orchestrator.database.store import Ending
from dressage_orchestrator.lifecycle import cost_reconciliation, steering
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.delivery import deliver, deliver_policy, record_policy
from dressage_orchestrator.lifecycle.method import EvaluationResult, Method, MethodSession, Proposal
from dressage_orchestrator.lifecycle.outcome import BUDGETS, Cancelled, Exhausted, Outcome

_STOPPED = frozenset({v1.SESSION_STATE_CANCELLED, v1.SESSION_STATE_FAILED})


def run_session(context: SessionContext, method: Method) -> str:
    """Run a session from its current state to its end; returns the name of the final state."""
    failure: v1.Failure | None = None
    context.joins_effects = getattr(method, "joins_effects", False)  # a plug-in may not have it
    try:
        context.step("begin", lambda: _begin(context))
        outcome = _run(context, method)
    except Cancelled as cancelled:
        outcome = Outcome(v1.SESSION_STATE_CANCELLED, cancelled.reason)
    except DressageError as error:
        failure = v1.Failure(reason=error.reason, message=error.message, remedy=error.metadata.get("remedy", ""))
        outcome = Outcome(v1.SESSION_STATE_FAILED, error.message)
    except Exception:
        # An internal error outside of steps: the session has to fail with a reason instead of staying RUNNING.
        context.log.exception("workflow failed")
        message = f"Internal error; see the server log (session {context.session})"
        failure = v1.Failure(reason="UNEXPECTED", message=message)
        outcome = Outcome(v1.SESSION_STATE_FAILED, failure.message)
    # `final`: a cancelled session has to record its end, too.
    context.step("end", lambda: _end(context, method, outcome, failure), final=True)
    return v1.SessionState.Name(outcome.state)


def _begin(context: SessionContext) -> None:
    context.store.begin()  # without a result, because a session is not JSON


def _run(context: SessionContext, method: Method) -> Outcome:
    work = method.open(context)
    try:
        outcome = _conclude(context, work, _iterate_to_end(context, method, work))
    except Cancelled:
        _deliver_after_cancel(context, work)
        raise
    deliver(context, work)
    return outcome


def _iterate_to_end(context: SessionContext, method: Method, work: MethodSession) -> Outcome:
    """Iterate until the session passes, or a limit ends it."""
    try:
        return _iterate(context, method, work)
    except Exhausted as exhausted:
        if exhausted.reason in BUDGETS:
            metrics.BUDGET_EXHAUSTED.labels(BUDGETS[exhausted.reason]).inc()
        return _exhaustion_outcome(context, exhausted)
    except Cancelled:
        raise
    except Exception:  # `run_session` distinguishes domain errors and internal errors
        _deliver_after_failure(context, work)
        raise


def _conclude(context: SessionContext, work: MethodSession, outcome: Outcome) -> Outcome:
    """Score the best policy once more, if the method does so. A final score that reaches the goal succeeds."""
    final = work.conclude()
    if final is None:
        return outcome
    if final.passed:
        if outcome.exhaustion in BUDGETS:
            return replace(outcome, state=v1.SESSION_STATE_SUCCEEDED)
        return Outcome(v1.SESSION_STATE_SUCCEEDED)  # the message is about the iterations' own scores
    return outcome


def _iterate(context: SessionContext, method: Method, work: MethodSession) -> Outcome:
    plan = context.step("plan", lambda: _plan(context))
    if plan["passed"]:
        return Outcome(v1.SESSION_STATE_SUCCEEDED)
    first, last = plan["next"], plan["last"]
    work.begin(first)
    for number in range(first, last + 1):
        enter(context, number, v1.PHASE_PROPOSE)
        evaluated = _evaluate(context, number, work, _propose(context, number, work))
        _finish(context, method, work, number, passed=evaluated.passed)
        if evaluated.passed:
            return Outcome(v1.SESSION_STATE_SUCCEEDED)
    used = "the only iteration is" if last == 1 else f"all {last} iterations are"
    message = f"{used} used and the score is below {method.goal(context.spec)}"
    raise Exhausted(message, v1.EXHAUSTION_REASON_ITERATIONS)


def _plan(context: SessionContext) -> Json:
    done = [entry.number for entry in context.store.iterations() if entry.phase == v1.PHASE_DONE]
    last = context.store.get().spec.max_iterations
    return {"next": max(done, default=0) + 1, "last": last, "passed": context.store.passed_before_reconciling()}


def _propose(context: SessionContext, number: int, work: MethodSession) -> Proposal:
    if context.epoch > 0:
        proposal = work.restore(number)
        if proposal is not None:
            return proposal
    directions = steering.take(context, number)
    if directions.proposal:
        return work.adopt(number, directions)
    return work.propose(number) if number == 1 else work.revise(number, directions)


def _evaluate(context: SessionContext, number: int, work: MethodSession, proposal: Proposal) -> EvaluationResult:
    """Check, evaluate and, if it passes, confirm a proposal."""
    while True:
        if not proposal.is_checked:
            enter(context, number, v1.PHASE_CHECK)
            proposal = work.check(number, proposal)
            if context.spec.approve_before_evaluation:
                text = steering.await_approval(context, number, text=proposal.text, version=proposal.version)
                if text is not None:
                    # A person's edit is checked, and approved once more, like any proposal.
                    proposal = work.edit(proposal, text)
                    continue
        enter(context, number, v1.PHASE_EVALUATE)
        evaluated = work.evaluate(number, proposal)
        if evaluated.repaired is None:
            break
        proposal = evaluated.repaired
    _emit_score(context, number, evaluated)
    if not evaluated.passed or evaluated.score is None:
        return evaluated
    enter(context, number, v1.PHASE_CONFIRM)
    again = work.confirm(number, proposal)
    _emit_score(context, number, again, confirmed=True)
    if not again.passed:
        message = f"iteration {number} scored {evaluated.score:.2f}, but {again.score:.2f} when confirmed: not passed"
        context.step(
            f"warn:confirm:{number}",
            lambda: context.store.warn("NOT_CONFIRMED", message, iteration=number, key=f"confirm:{number}"),
        )
    return again


def _emit_score(context: SessionContext, number: int, evaluated: EvaluationResult, *, confirmed: bool = False) -> None:
    """Append the event of an iteration's score."""
    if evaluated.score is None:
        return
    scored = ev.Scored(score=evaluated.score, passed=evaluated.passed, confirmed=confirmed)
    name = f"scored:{number}" + (":confirmed" if confirmed else "")
    context.effect(name, lambda: context.store.emit(ev.Event(scored=scored), iteration=number, key=name))


def _finish(context: SessionContext, method: Method, work: MethodSession, number: int, *, passed: bool) -> None:
    def finish() -> None:
        context.store.finish_iteration(number, passed=passed)
        # Not of methods with many short iterations: they have no policy before their report.
        best = None if context.joins_effects else work.deliverable()
        if best is not None:
            record_policy(context, best)
        if context.store.mark(f"finished/{number}"):
            metrics.ITERATIONS.labels(method.name, "passed" if passed else "judged_too_low").inc()

    context.effect(f"finish:{number}", finish)


def _exhaustion_outcome(context: SessionContext, exhausted: Exhausted) -> Outcome:
    """Outcome of a session with an exhausted budget; a resumed session may have succeeded in an earlier epoch."""

    def passed_before() -> bool:
        session = context.store.get()
        return any(entry.name == session.best_iteration and entry.passed for entry in context.store.iterations())

    if context.epoch > 0 and context.step("confirmed", passed_before):
        return Outcome(v1.SESSION_STATE_SUCCEEDED, exhausted.message, exhausted.reason)
    return Outcome(v1.SESSION_STATE_EXHAUSTED, exhausted.message, exhausted.reason)


def _deliver_after_cancel(context: SessionContext, work: MethodSession) -> None:
    """Record the best policy so far of a cancelled session, without a video: the caller waits for the end."""
    try:
        deliver_policy(context, work)
    except DressageError as error:
        context.log.warning("nothing is delivered", reason=error.reason, message=error.message)


def _deliver_after_failure(context: SessionContext, work: MethodSession) -> None:
    """Deliver the best policy so far although the session fails."""
    try:
        work.conclude()
        deliver(context, work)
    except DressageError as error:
        # The failure that led here is the session's; that of the delivery must not replace it.
        context.log.warning("nothing is delivered", reason=error.reason, message=error.message)


def _end(context: SessionContext, method: Method, outcome: Outcome, failure: v1.Failure | None) -> None:
    # Open assignments are stopped; an idle run is released.
    controller = context.engine.controller
    if outcome.state in _STOPPED:
        # `through_cancel`: this call carries the cancellation out.
        context.call(controller.cancel(context.session), through_cancel=True)
    else:
        context.call(controller.release(context.session), through_cancel=True)
    uncounted = cost_reconciliation.uncounted_cost_of(context)
    ending = Ending(
        outcome.state,
        outcome.message,
        outcome.exhaustion,
        failure,
        uncounted.session,
        uncounted.iterations,
        cost_reconciliation.warning_of(uncounted.session) if uncounted.session.requests else None,
    )
    ended = context.store.end(ending)
    if ended.cost.HasField("dollars") and context.store.mark("cost"):
        metrics.SESSION_COST.labels(method.name).observe(ended.cost.dollars)


def enter(context: SessionContext, number: int, phase: v1.Phase.ValueType) -> None:
    """Set the phase of an iteration."""
    context.effect(f"phase:{number}:{v1.Phase.Name(phase)}", lambda: context.store.enter_phase(number, phase))
