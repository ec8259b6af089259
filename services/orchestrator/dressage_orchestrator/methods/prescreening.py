"""Trying a checked reward on stored trajectories before it is trained, and sending it back to its author if it is backwards."""

from __future__ import annotations

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from google.protobuf.json_format import MessageToDict, ParseDict

from dressage_orchestrator import defaults, metrics
from dressage_orchestrator.database import sessions
from dressage_orchestrator.defaults import TEMPLATE_MODEL
from dressage_orchestrator.methods import history
from dressage_orchestrator.methods.authoring import USER, Code
from dressage_orchestrator.workflow import screening
from dressage_orchestrator.workflow.flow import Flow, Json


def prescreen(flow: Flow, number: int, reward: Code, judge: Code | None, *, rounds: int) -> ev.CheckFailure | None:
    """Tries the reward and tells what was found; what its author is to repair, None when it is to be trained.

    :param rounds: how often this iteration's reward was sent back.
    """
    if judge is None or not flow.complete:
        return None
    source = judge.source
    seen = flow.step(f"screen:{number}:{reward.version}", lambda: _screen(flow, number, reward, source, rounds))
    return ParseDict(seen["failure"], ev.CheckFailure()) if seen["failure"] else None


def _screen(flow: Flow, number: int, reward: Code, judge_source: str, rounds: int) -> Json:
    members = flow.transact(lambda tx: history.read(tx, flow, number)).members
    scores = screening.stored(members)
    request = judge_pb.ScoreRequest(environment=flow.environment, reward_source=reward.source, rollouts=list(scores))
    request.judge_source = judge_source
    try:
        answer = flow.call(flow.engine.judge.score(request))
    except DressageError as error:
        # It saves compute where it can; where it cannot, the training will tell.
        flow.log.warning("not screened", iteration=number, reason=error.reason, message=error.message)
        return {"failure": None}
    found = screening.pairs(answer, scores)
    result = screening.screen(found, rounds=rounds)
    back = result.backwards and rounds < screening.MAX_ROUNDS and reward.author not in (USER, TEMPLATE_MODEL)
    back = back and reward.repairs < flow.engine.settings.max_repairs
    _keep(flow, number, reward, result, back=back)
    return {"failure": MessageToDict(screening.failure(found, result)) if back else None}


def _keep(flow: Flow, number: int, reward: Code, result: v1.Screening, *, back: bool) -> None:
    saved = 0

    def keep(iteration: v1.Iteration) -> None:
        iteration.reward.screening.CopyFrom(result)

    def count(session: v1.Session) -> None:
        session.env_steps_saved += saved

    with flow.engine.database.begin() as tx:
        iteration = sessions.put_iteration(tx, flow.session, number, keep)
        if not flow.once(tx, f"screened/{number}:{reward.version}"):
            return
        if back:
            saved = len(iteration.reward.configs) * flow.spec.reward.seeds * flow.spec.reward.steps_per_member
            saved = saved or defaults.env_steps_per_iteration(flow.spec)
            flow.edit(tx, count)
            metrics.ENV_STEPS_SAVED.labels(flow.environment).inc(saved)
        told = ev.Screened(screening=result, outcome="sent_back" if back else "trained")
        flow.emit(tx, ev.Event(screened=told), iteration=number)
        if result.backwards and not back:
            message = (
                f"the reward orders {result.trajectories} stored trajectories backwards (rank correlation "
                f"{result.agreement:.2f}); it is trained all the same"
            )
            warning = ev.Warning(reason="SCREENED_BACKWARDS", message=message)
            flow.emit(tx, ev.Event(warning=warning), iteration=number)
