"""Videos of recorded rollouts on request, other than the best policy's, which a session delivers. No gRPC here."""

from __future__ import annotations

from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.artifacts import ArtifactInfo, ArtifactStore
from dressage.errors import NotFound

from dressage_orchestrator import resource_names, threads
from dressage_orchestrator.clients import RendererClient
from dressage_orchestrator.database import assignments, events, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.lifecycle.delivery import WHOLE_EPISODE
from dressage_orchestrator.service import Sessions


def video_key(rollout: str) -> str:
    """Artifact key of the video of ``…/rollouts/NAME.npz``: ``…/videos/NAME.mp4``, as that of the best policy."""
    folder, _, name = rollout.rpartition("/rollouts/")
    return f"{folder}/videos/{name.removesuffix('.npz')}.mp4"


class RolloutVideos:
    """Renders rollouts once, and records the videos where the sessions' other videos are."""

    def __init__(self, store: ArtifactStore, service: Sessions, renderer: RendererClient) -> None:
        self._store = store
        self._service = service
        self._renderer = renderer

    async def get(self, rollout: str) -> ArtifactInfo:
        """Return the stored video of a rollout; without one, render it. Record it either way.

        Two calls at once may render it twice; they store the same video and record it once.

        :param rollout: artifact key, ``sessions/…/rollouts/NAME.npz``.
        :raises NotFound: without such a rollout.
        :raises FailedPrecondition: if the renderer cannot draw the environment.
        """
        video = video_key(rollout)
        await threads.run(threads.REQUESTS, self._store.info, rollout)
        try:
            info = await threads.run(threads.REQUESTS, self._store.info, video)
        except NotFound:
            request = renderer_pb.RenderRequest(trajectory=rollout, video=video, overlay=True, end=WHOLE_EPISODE)
            await self._renderer.render(request)
            info = await threads.run(threads.REQUESTS, self._store.info, video)
        # Also of a stored one: a server that died after it rendered has not recorded it.
        await self._service.transact(lambda tx: _record(tx, rollout, info))
        return info


def _record(tx: Transaction, rollout: str, video: ArtifactInfo) -> None:
    """Record a video in its member, where it is a member's rollout, and count its bytes for the owner's quota."""
    sessions.count_artifact(tx, rollout.split("/")[1], video.key, video.size)
    folder = rollout.rpartition("/rollouts/")[0]
    assignment = folder.rpartition("/members/")[0]
    if not assignment:  # a candidate's, whose rollouts are shown by their keys
        return
    if assignments.show_video(tx, folder, rollout=rollout, video=video.key):
        parts = resource_names.parse_assignment(assignment)
        written = ev.ArtifactWritten(artifact=video.key, kind="video")
        events.append(tx, parts.session, ev.Event(artifact_written=written), iteration=parts.iteration)
