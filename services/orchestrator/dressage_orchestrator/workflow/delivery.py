"""Delivering what a session has: the best policy and a video of it."""

from __future__ import annotations

from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, InvalidArgument

from dressage_orchestrator import names
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.statistics import mean
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.judging import CONFIRMATION_RUN

_WHOLE_EPISODE = 3600.0
"""Seconds, cut at the episode's end: the video shows what was judged, which is all of it."""


def deliver(flow: Flow) -> None:
    """Names the best policy in the session and has its median rollout drawn. Nothing to deliver is no error."""
    chosen = flow.step("deliver:choose", lambda: _choose(flow))
    if chosen is None:
        return
    number, member, rollout = chosen["iteration"], chosen["member"], chosen["rollout"]
    flow.step("deliver:policy", lambda: _keep_policy(flow, number, chosen))
    if not rollout:
        return
    video = f"{member}/videos/{chosen['env_step']}_median.mp4"
    try:
        flow.step("deliver:video", lambda: _draw(flow, number, chosen, video))
    except DressageError as error:
        again = "" if isinstance(error, InvalidArgument) else "; `dressage render` can try again"
        message = f"the video could not be drawn: {error.message}{again}"
        flow.warn("video", "RENDERING_FAILED", message, iteration=number)


def best_member(members: list[v1.Member]) -> v1.Member | None:
    """The member with a policy that was judged best; of equals, or unjudged ones, the one with the best return."""

    def rank(member: v1.Member) -> tuple[float, float]:
        last = member.evaluations[-1] if member.evaluations else v1.Evaluation()
        returns = last.returns if member.HasField("judgment") else last.own_returns or last.returns
        return (member.judgment.score if member.HasField("judgment") else 0.0, mean(returns))

    return max((member for member in members if member.policy), key=rank, default=None)


def _choose(flow: Flow) -> Json:
    with flow.engine.database.begin() as tx:
        session = sessions.get(tx, flow.session)
        if not session.best_iteration:
            return None
        number = names.parse_iteration(session.best_iteration)[1]
        iteration = sessions.iteration(tx, flow.session, number)
        member = best_member(_candidates(tx, iteration))
    if member is None:
        return None
    rollouts = {r.label: r.artifact for r in member.evaluations[-1].rollouts} if member.evaluations else {}
    step = member.evaluations[-1].env_step if member.evaluations else 0
    return {
        "iteration": number,
        "member": member.name,
        "policy": member.policy,
        "env_step": step,
        "rollout": rollouts.get("median", ""),
    }


def _candidates(tx: Transaction, iteration: v1.Iteration) -> list[v1.Member]:
    """Members of the iteration's last training, those of its best config if it has one."""
    trainings = [name for name in iteration.runs if not name.endswith(f"/{CONFIRMATION_RUN}")]
    members = runs.members(tx, trainings[-1]) if trainings else []
    return [m for m in members if not iteration.reward.best_config or m.config == iteration.reward.best_config]


def _keep_policy(flow: Flow, number: int, chosen: Json) -> None:
    def keep(session: v1.Session) -> None:
        session.best_policy = chosen["policy"]

    with flow.engine.database.begin() as tx:
        flow.edit(tx, keep)
        if flow.once(tx, "delivered/policy"):
            told = ev.ArtifactWritten(artifact=chosen["policy"], kind="policy")
            flow.emit(tx, ev.Event(artifact_written=told), iteration=number)


def _draw(flow: Flow, number: int, chosen: Json, video: str) -> None:
    request = renderer_pb.RenderRequest(trajectory=chosen["rollout"], video=video, overlay=True, end=_WHOLE_EPISODE)
    flow.call(flow.engine.renderer.render(request))
    run, _, member = chosen["member"].rpartition("/members/")

    def keep(session: v1.Session) -> None:
        session.best_video = video

    def show(entry: v1.Member) -> None:
        for rollout in entry.evaluations[-1].rollouts:
            if rollout.artifact == chosen["rollout"]:
                rollout.video = video

    with flow.engine.database.begin() as tx:
        flow.edit(tx, keep)
        runs.change_member(tx, run, member, show)
        if flow.once(tx, "delivered/video"):
            told = ev.ArtifactWritten(artifact=video, kind="video")
            flow.emit(tx, ev.Event(artifact_written=told), iteration=number)
