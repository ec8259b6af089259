"""`ArtifactService`: clients read the store through the orchestrator, without credentials for it."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from dressage.api.v1 import artifact_service_pb2 as pb
from dressage.artifacts import ArtifactInfo, ArtifactStore
from dressage.errors import InvalidArgument

from dressage_orchestrator import threads
from dressage_orchestrator.api import paging
from dressage_orchestrator.clock import timestamp

_CHUNK = 1 << 20
_TYPES = {
    ".jsonl": "application/jsonl",
    ".npz": "application/x-npz",
    ".safetensors": "application/x-safetensors",
    ".onnx": "application/onnx",
    ".py": "text/x-python",
}


class ArtifactServicer:
    """See `ArtifactService` in the protos."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    async def ListArtifacts(self, request: pb.ListArtifactsRequest, context: Any) -> pb.ListArtifactsResponse:
        after = paging.decode(request.page_token, "artifacts", request.prefix) or ""
        size = paging.page_size(request.page_size, default=200)
        page = partial(self._store.page, request.prefix, after=after, limit=size + 1)
        infos = await threads.run(threads.REQUESTS, page)
        token = paging.encode(infos[size - 1].key, "artifacts", request.prefix) if len(infos) > size else ""
        shown = [_artifact(info) for info in infos[:size]]
        return pb.ListArtifactsResponse(artifacts=shown, next_page_token=token)

    async def GetArtifact(self, request: pb.GetArtifactRequest, context: Any) -> pb.Artifact:
        return _artifact(await threads.run(threads.REQUESTS, self._store.info, request.key))

    async def ReadArtifact(
        self, request: pb.ReadArtifactRequest, context: Any
    ) -> AsyncIterator[pb.ReadArtifactResponse]:
        info = await threads.run(threads.REQUESTS, self._store.info, request.key)
        if request.offset > info.size:
            raise InvalidArgument(field="offset", value=request.offset, expected=f"at most the size, {info.size}")
        chunks = self._store.read(request.key, _CHUNK, offset=request.offset)
        while (chunk := await threads.run(threads.REQUESTS, next, chunks, None)) is not None:
            yield pb.ReadArtifactResponse(data=chunk)


def _artifact(info: ArtifactInfo) -> pb.Artifact:
    suffix = "." + info.key.rpartition(".")[2]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(info.key)[0] or "application/octet-stream"
    return pb.Artifact(key=info.key, size=info.size, update_time=timestamp(info.modified), content_type=kind)
