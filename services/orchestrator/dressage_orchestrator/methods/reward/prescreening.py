"""Scores stored trajectories with a checked reward before training; a reward that orders them backwards goes to its author."""

from __future__ import annotations

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from google.protobuf.json_format import MessageToDict, ParseDict

from dressage_orchestrator import metrics
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.methods.reward import history, screening
from dressage_orchestrator.methods.reward.code import Code
from dressage_orchestrator.methods.reward.spec import env_steps_per_iteration
from dressage_orchestrator.methods.reward.training import steps_of
from dressage_orchestrator.models import TEMPLATE, USER


def prescreen(
    context: SessionContext, number: int, reward: Code, judge: Code | None, *, rounds: int
) -> ev.CheckFailure | None:
    """Screen the reward and record the result; return what its author is to repair, None if it is to be trained.

    :param rounds: how often this iteration's reward was sent back.
    """
    if judge is None:
        return None
    source = judge.source
    name = f"screen:{number}:{reward.version}"
    seen = context.step(name, lambda: _screen(context, number, reward, source, rounds))
    return ParseDict(seen["failure"], ev.CheckFailure()) if seen["failure"] else None


def _screen(context: SessionContext, number: int, reward: Code, judge_source: str, rounds: int) -> Json:
    scores = screening.stored(history.read(context.store, number).members)
    request = judge_pb.ScoreRequest(environment=context.environment, reward_source=reward.source, rollouts=list(scores))
    request.judge_source = judge_source
    try:
        answer = context.call(context.engine.judge.score(request))
    except DressageError as error:
        # Screening only saves compute: without it, the training shows the same later.
        context.log.warning("not screened", iteration=number, reason=error.reason, message=error.message)
        return {"failure": None}
    pairs = screening.pairs(answer, scores)
    result = screening.screen(pairs, rounds=rounds)
    back = result.inverted and rounds < screening.MAX_ROUNDS and reward.author not in (USER, TEMPLATE)
    back = back and reward.repairs < context.engine.settings.max_repairs
    _record(context, number, reward, result, back=back)
    return {"failure": MessageToDict(screening.failure(pairs, result)) if back else None}


def _record(context: SessionContext, number: int, reward: Code, result: v1.Screening, *, back: bool) -> None:
    store, tag = context.store, f"{number}:{reward.version}"
    changes = v1.Iteration(reward=v1.RewardProposal(screening=result))
    iteration = store.update_iteration(number, changes, ["reward.screening"])
    if back:
        settings = context.spec.reward
        saved = len(iteration.reward.configs) * settings.seeds * steps_of(context.spec, iteration)
        saved = saved or env_steps_per_iteration(context.spec)
        if store.add_saved_steps(saved, key=f"saved/{tag}"):
            metrics.ENV_STEPS_SAVED.labels(context.environment).inc(saved)
    screened = ev.Screened(screening=result, outcome="rejected" if back else "trained")
    store.emit(ev.Event(screened=screened), iteration=number, key=f"screened/{tag}")
    if result.inverted and not back:
        message = (
            f"the reward orders {result.trajectories} stored trajectories backwards (rank correlation "
            f"{result.agreement:.2f}); it is trained nevertheless"
        )
        store.warn("SCREENED_BACKWARDS", message, iteration=number, key=f"screened/{tag}")
