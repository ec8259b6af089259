"""Delivering what a session has: the best policy and a video of it."""

from __future__ import annotations

from dataclasses import asdict

from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, InvalidArgument

from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.method import Deliverable, MethodSession

_WHOLE_EPISODE = 3600.0
"""Seconds, cut at the episode's end: the video shows what was judged, which is all of it."""


def deliver(context: SessionContext, work: MethodSession) -> None:
    """Names the best policy in the session and has its rollout drawn. Nothing to deliver is no error."""

    def choose() -> Json:
        found = work.deliverable()
        return None if found is None else asdict(found)

    chosen = context.step("deliver:choose", choose)
    if chosen is None:
        return
    best = Deliverable(**chosen)
    context.step("deliver:policy", lambda: _record_policy(context, best))
    if not best.rollout:
        return
    try:
        context.step("deliver:video", lambda: _draw(context, best))
    except DressageError as error:
        again = "" if isinstance(error, InvalidArgument) else "; `dressage render` can try again"
        message = f"the video could not be drawn: {error.message}{again}"
        context.step(
            "warn:video",
            lambda: context.store.warn("RENDERING_FAILED", message, iteration=best.iteration, key="video"),
        )


def _record_policy(context: SessionContext, best: Deliverable) -> None:
    context.store.update(v1.Session(best_policy=best.policy), ["best_policy"])
    _announce(context, best, best.policy, "policy")


def _draw(context: SessionContext, best: Deliverable) -> None:
    video = f"{best.member}/videos/{best.env_step}_median.mp4"
    request = renderer_pb.RenderRequest(trajectory=best.rollout, video=video, overlay=True, end=_WHOLE_EPISODE)
    context.call(context.engine.renderer.render(request))
    context.store.record_video(best.member, rollout=best.rollout, video=video)
    _announce(context, best, video, "video")


def _announce(context: SessionContext, best: Deliverable, artifact: str, kind: str) -> None:
    written = ev.ArtifactWritten(artifact=artifact, kind=kind)
    context.store.emit(ev.Event(artifact_written=written), iteration=best.iteration, key=f"delivered/{kind}")
