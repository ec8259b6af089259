"""The life of a session around its method: it begins, its method runs, it ends in a state."""

from __future__ import annotations

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from dressage.serving.bills import add_cost

from dressage_orchestrator import metrics
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.methods import method_of
from dressage_orchestrator.workflow import reckoning
from dressage_orchestrator.workflow.flow import Flow
from dressage_orchestrator.workflow.outcome import Cancelled, Outcome


def run_session(flow: Flow) -> str:
    """Runs a session from where it stands to its end; the state's name."""
    failure: v1.Failure | None = None
    try:
        flow.step("begin", lambda: _begin(flow))
        outcome = method_of(flow.spec).run(flow)
    except Cancelled as cancelled:
        outcome = Outcome(v1.SESSION_STATE_CANCELLED, cancelled.reason)
    except DressageError as error:
        failure = v1.Failure(reason=error.reason, message=error.message, remedy=error.metadata.get("remedy", ""))
        outcome = Outcome(v1.SESSION_STATE_FAILED, error.message)
    except Exception:
        # A fault of ours in a method's own lines: the session must say so, not stay RUNNING for ever.
        flow.log.exception("workflow failed")
        failure = v1.Failure(reason="UNEXPECTED", message="the server met a fault; its log tells what")
        outcome = Outcome(v1.SESSION_STATE_FAILED, failure.message)
    flow.step("end", lambda: _end(flow, outcome, failure), final=True)
    return v1.SessionState.Name(outcome.state)


def _begin(flow: Flow) -> None:
    with flow.engine.database.begin() as tx:

        def edit(session: v1.Session) -> None:
            session.state = v1.SESSION_STATE_RUNNING
            session.state_reason = ""
            session.ClearField("failure")
            session.ClearField("end_time")
            if not session.HasField("start_time"):
                session.start_time.CopyFrom(timestamp(tx.now))

        flow.edit(tx, edit)


def _end(flow: Flow, outcome: Outcome, failure: v1.Failure | None) -> None:
    with flow.engine.database.begin() as tx:
        live = [row.run.name for row in runs.live(tx, flow.session)]
    for name in live:
        flow.call(flow.engine.controller.cancel(name), through_cancel=True)
    lost = _uncounted(flow)
    with flow.engine.database.begin() as tx:
        total = runs.env_steps(tx, flow.session)
        if lost.requests:
            flow.emit(tx, ev.Event(warning=_recovered(lost)))

        def edit(session: v1.Session) -> None:
            session.state = outcome.state
            session.state_reason = outcome.reason
            session.exhausted_budget = outcome.budget
            session.awaiting_approval = 0
            session.env_steps = total
            if lost.requests:
                add_cost(session.cost, lost)
                add_cost(session.cost_by_role[reckoning.RECOVERED], lost)
            session.end_time.CopyFrom(timestamp(tx.now))
            if failure is not None:
                session.failure.CopyFrom(failure)

        ended = flow.edit(tx, edit)
        if ended.cost.HasField("dollars") and flow.once(tx, "cost"):
            metrics.SESSION_COST.labels(ended.method).observe(ended.cost.dollars)


def _uncounted(flow: Flow) -> v1.Cost:
    """What the session's account lacks of its journal; nothing where that cannot be read: a session ends all the same."""
    with flow.engine.database.begin() as tx:
        session = sessions.get(tx, flow.session)
    try:
        return reckoning.uncounted(flow.engine.store, session)
    except (DressageError, OSError) as error:
        flow.log.warning(
            "the journal cannot be read: what broken-off attempts bought stays uncounted", error=str(error)
        )
        return v1.Cost()


def _recovered(cost: v1.Cost) -> ev.Warning:
    price = f"{cost.dollars:.4f} US dollars" if cost.HasField("dollars") else "of unknown price"
    words = f"{cost.requests} replies bought by attempts that broke off ({price}) are now counted"
    return ev.Warning(reason="COST_RECOVERED", message=words)
