"""Builds the renderer from its settings and starts it."""

from __future__ import annotations

import asyncio

from dressage.api.internal.v1 import renderer_service_pb2_grpc as rpc
from dressage.artifacts import ArtifactStore
from dressage.serving.server import GrpcServer, RunningService
from dressage.serving.stores import open_service_store

from dressage_renderer.pool import RenderPool
from dressage_renderer.server import FULL_NAME, RendererServicer
from dressage_renderer.service import Renderer
from dressage_renderer.settings import Settings


async def start(settings: Settings, *, store: ArtifactStore | None = None) -> RunningService:
    """Start the service; rendering processes start with the first request.

    :param store: the artifact store; opened from the settings if None.
    :raises InvalidArgument: for a bad store URL.
    :raises Unavailable: when the store cannot be used.
    :raises FailedPrecondition: when the address cannot be listened on.
    """
    if store is None:
        store = await asyncio.to_thread(open_service_store, settings.store_url)
    pool = RenderPool(settings.workers, max_waiting=settings.max_waiting)
    renderer = Renderer(
        store=store,
        pool=pool,
        threads=settings.workers + settings.max_waiting,
        timeout=settings.timeout_seconds,
    )
    server = GrpcServer.from_settings("renderer", settings)
    server.add(rpc.add_RendererServiceServicer_to_server, RendererServicer(renderer), FULL_NAME)
    address = await server.start()

    async def stop() -> None:
        await server.stop()
        await renderer.close()

    return RunningService(address, stop)
