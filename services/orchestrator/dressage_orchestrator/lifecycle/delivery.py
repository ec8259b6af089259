"""Delivers the best policy of a session and its video.

`MethodSession.deliverable` alone decides what the best policy is. It is recorded in the session, where all readers look: after
each iteration, and at every end, also of a session that is cancelled or fails.
"""

from __future__ import annotations

from dataclasses import asdict

from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, InvalidArgument

from dressage_orchestrator import resource_names
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.method import Deliverable, MethodSession

WHOLE_EPISODE = 3600.0
"""Seconds; the video ends with the episode, because the whole episode was judged."""


def deliver(context: SessionContext, work: MethodSession) -> None:
    """Record the best policy in the session and render its rollout, where it can be drawn. Do nothing without a policy."""
    best = deliver_policy(context, work)
    if best is None or not best.rollout or not context.card.has_video:
        return
    try:
        # The policy is the result; a video can be rendered later, so it fails no session (decision 0053).
        context.step("deliver:video", lambda: _render(context, best))
    except DressageError as error:
        # The same request would be refused again.
        again = "" if isinstance(error, InvalidArgument) else "; `dressage render` can try again"
        message = f"the video could not be rendered: {error.message}{again}"
        context.step(
            "warn:video",
            lambda: context.store.warn("RENDERING_FAILED", message, iteration=best.iteration, key="video"),
        )


def deliver_policy(context: SessionContext, work: MethodSession) -> Deliverable | None:
    """Record the best policy in the session, also in one that is cancelled; return it."""

    def choose() -> Json:
        deliverable = work.deliverable()
        return None if deliverable is None else asdict(deliverable)

    chosen = context.step("deliver:choose", choose, final=True)
    if chosen is None:
        return None
    best = Deliverable(**chosen)

    def record() -> None:
        record_policy(context, best)
        _emit_artifact(context, best, best.policy, "policy")

    context.step("deliver:policy", record, final=True)
    return best


def record_policy(context: SessionContext, best: Deliverable) -> None:
    """Record the best policy so far in the session, and where it is from. In a step."""
    iteration = resource_names.iteration_name(context.session, best.iteration)
    origin = v1.PolicyOrigin(
        iteration=iteration,
        member=best.member,
        env_step=best.env_step,
        rollout=best.rollout,
        interrupted=best.interrupted,
    )
    session = context.store.get()
    if best.score is not None:
        origin.score = best.score
    elif session.best_iteration == iteration and session.HasField("best_score"):
        origin.score = session.best_score
    comparison = _comparison(context, best)
    if comparison is not None:
        origin.comparison.CopyFrom(comparison)
    changes = v1.Session(best_policy=best.policy, policy_origin=origin)
    context.store.update(changes, ["best_policy", "policy_origin"])


def _comparison(context: SessionContext, best: Deliverable) -> v1.CheckpointComparison | None:
    """Return the comparison that selected the policy instead of its member's last checkpoint; None if none did."""
    members = context.store.members(best.member.partition("/members/")[0]) if best.member else []
    compared = next((member.comparison for member in members if member.name == best.member), v1.CheckpointComparison())
    return compared if compared.selected and compared.env_step == best.env_step else None


def _render(context: SessionContext, best: Deliverable) -> None:
    folder = best.member or best.policy.rpartition("/")[0]
    video = f"{folder}/videos/{best.env_step}_median.mp4"
    request = renderer_pb.RenderRequest(trajectory=best.rollout, video=video, overlay=True, end=WHOLE_EPISODE)
    context.call(context.engine.renderer.render(request))
    if best.member:
        context.store.record_video(best.member, rollout=best.rollout, video=video)
    else:
        context.store.update(v1.Session(best_video=video), ["best_video"])
    _emit_artifact(context, best, video, "video")


def _emit_artifact(context: SessionContext, best: Deliverable, artifact: str, kind: str) -> None:
    written = ev.ArtifactWritten(artifact=artifact, kind=kind)
    context.store.emit(ev.Event(artifact_written=written), iteration=best.iteration, key=f"delivered/{kind}")
