"""`ArtifactService`: clients read the store through the orchestrator, without credentials for it."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.v1 import artifact_service_pb2 as pb
from dressage.artifacts import ArtifactInfo, ArtifactStore
from dressage.errors import InvalidArgument, NotFound
from dressage.serving.access import current_principal

from dressage_orchestrator import threads
from dressage_orchestrator.api import paging
from dressage_orchestrator.api.gate import is_conversation, reads_only_own, session_of
from dressage_orchestrator.clients import RendererClient
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import sessions
from dressage_orchestrator.ownership import check_change
from dressage_orchestrator.rollout_videos import RolloutVideos
from dressage_orchestrator.service import Sessions

_CHUNK = 1 << 20
_POSES = ".poses.npz"
"""End of the key of a rollout's poses, instead of ``.npz``."""
_TYPES = {
    ".jsonl": "application/jsonl",
    ".npz": "application/x-npz",
    ".safetensors": "application/x-safetensors",
    ".onnx": "application/onnx",
    ".py": "text/x-python",
}


class ArtifactServicer:
    """Lists artifacts and streams their bytes."""

    def __init__(
        self, store: ArtifactStore, service: Sessions, pages: paging.PageTokens, renderer: RendererClient
    ) -> None:
        self._store = store
        self._renderer = renderer
        self._videos = RolloutVideos(store, service, renderer)
        self._pages = pages
        self._service = service

    async def ListArtifacts(self, request: pb.ListArtifactsRequest, context: Any) -> pb.ListArtifactsResponse:
        after = self._pages.decode(request.page_token, "artifacts", request.prefix) or ""
        size = paging.page_size(request.page_size, default=200)
        page = partial(self._store.page, request.prefix, after=after, limit=size + 1)
        infos = await threads.run(threads.REQUESTS, page)
        token = self._pages.encode(infos[size - 1].key, "artifacts", request.prefix) if len(infos) > size else ""
        names = {session_of(info.key) for info in infos[:size]}
        access = await self._service.read(lambda tx: sessions.access_of(tx, names))
        artifacts = [_artifact(info) for info in infos[:size] if _is_listed(info.key, access.get(session_of(info.key)))]
        return pb.ListArtifactsResponse(artifacts=artifacts, next_page_token=token)

    async def _require_readable(self, key: str) -> sessions.Access | None:
        """Return what decides who may read the artifact's session; None if there is no such session.

        :raises NotFound: for an artifact of a deleted session, also for its owner.
        """
        session = session_of(key)
        access = (await self._service.read(lambda tx: sessions.access_of(tx, [session]))).get(session)
        if access is not None and access.deleted:
            message = f"no artifact {key!r}: its session is deleted; `dressage sessions undelete {session}` restores it"
            raise NotFound(message, reason="SESSION_DELETED", metadata={"key": key})
        return access

    async def _require_writable(self, key: str) -> str:
        """Return the id of the session to which the caller may add files.

        :raises NotFound: without a session, whose files have no owner.
        :raises PermissionDenied: for the session of another principal.
        """
        access, session = await self._require_readable(key), session_of(key)
        if access is None:
            raise NotFound(f"no session {session!r}", reason="SESSION_NOT_FOUND", metadata={"key": key})
        check_change(current_principal.get(), f"sessions/{session}", access.owner)
        return session

    async def GetArtifact(self, request: pb.GetArtifactRequest, context: Any) -> pb.Artifact:
        await self._require_readable(request.key)
        return _artifact(await threads.run(threads.REQUESTS, self._store.info, request.key))

    async def ReadArtifact(
        self, request: pb.ReadArtifactRequest, context: Any
    ) -> AsyncIterator[pb.ReadArtifactResponse]:
        await self._require_readable(request.key)
        info = await threads.run(threads.REQUESTS, self._store.info, request.key)
        if request.offset > info.size:
            raise InvalidArgument(field="offset", value=request.offset, expected=f"at most the size, {info.size}")
        chunks = self._store.read(request.key, _CHUNK, offset=request.offset)
        while (chunk := await threads.run(threads.REQUESTS, next, chunks, None)) is not None:
            yield pb.ReadArtifactResponse(data=chunk)

    async def GetRolloutPoses(self, request: pb.GetRolloutPosesRequest, context: Any) -> pb.Artifact:
        await self._require_readable(request.rollout)
        await threads.run(threads.REQUESTS, self._store.info, request.rollout)
        key = request.rollout.removesuffix(".npz") + _POSES
        try:
            return _artifact(await threads.run(threads.REQUESTS, self._store.info, key))
        except NotFound:
            session = await self._require_writable(request.rollout)
        await self._renderer.record_poses(renderer_pb.RecordPosesRequest(trajectory=request.rollout, poses=key))
        info = await threads.run(threads.REQUESTS, self._store.info, key)
        await self._service.transact(lambda tx: sessions.count_artifact(tx, session, key, info.size))
        return _artifact(info)

    async def GetRolloutVideo(self, request: pb.GetRolloutVideoRequest, context: Any) -> pb.Artifact:
        await self._require_writable(request.rollout)
        return _artifact(await self._videos.get(request.rollout))


def _is_listed(key: str, access: sessions.Access | None) -> bool:
    reader = reads_only_own()
    if access is None:  # belongs to no principal
        return reader is None
    return not access.deleted and (reader is None or access.owner == reader or not is_conversation(key))


def _artifact(info: ArtifactInfo) -> pb.Artifact:
    suffix = "." + info.key.rpartition(".")[2]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(info.key)[0] or "application/octet-stream"
    return pb.Artifact(key=info.key, size=info.size, update_time=timestamp(info.modified), content_type=kind)
