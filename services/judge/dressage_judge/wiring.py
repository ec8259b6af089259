"""Builds the judge from its settings and starts it."""

from __future__ import annotations

import asyncio

import grpc
from dressage.api.internal.v1 import judge_service_pb2_grpc as rpc
from dressage.artifacts import ArtifactStore
from dressage.sandbox.machine import Machine
from dressage.sandbox.scratch import remove_scratch
from dressage.serving.channels import connect, read_authorities
from dressage.serving.server import GrpcServer, RunningService
from dressage.serving.stores import open_service_store

from dressage_judge.clients import AgentClient, RendererClient
from dressage_judge.judging import CodeJudge
from dressage_judge.sandboxed import SandboxBounds, SandboxRunner, scratch_folder
from dressage_judge.server import FULL_NAME, JudgeServicer
from dressage_judge.settings import Settings
from dressage_judge.verdicts import Verdicts
from dressage_judge.video_judging import VideoJudge


async def start(settings: Settings, *, store: ArtifactStore | None = None) -> RunningService:
    """Start the service.

    :param store: the artifact store; opened from the settings if None.
    :raises InvalidArgument: for a bad store URL.
    :raises Unavailable: when the store cannot be used.
    :raises FailedPrecondition: when the address cannot be listened on.
    """
    if store is None:
        store = await asyncio.to_thread(open_service_store, settings.store_url)
    scratch = scratch_folder(settings.scratch)
    bounds = SandboxBounds(
        scratch=scratch,
        concurrent=settings.sandboxes,
        max_waiting=settings.max_waiting,
        seconds=settings.sandbox_seconds,
        allow_unsandboxed=settings.allow_unsandboxed,
        machine=Machine.here(scratch),
    )
    runner = SandboxRunner(bounds)
    server = GrpcServer.from_settings("judge", settings)
    judge = CodeJudge(store=store, runner=runner)
    channels: list[grpc.aio.Channel] = []
    verdicts = Verdicts(code=judge, video=_video_judge(settings, judge, channels))
    server.add(rpc.add_JudgeServiceServicer_to_server, JudgeServicer(judge, verdicts), FULL_NAME)
    address = await server.start()

    async def stop() -> None:
        await server.stop()
        for channel in channels:
            await channel.close()
        runner.close()
        if not settings.scratch:
            remove_scratch(scratch)

    return RunningService(address, stop)


def _video_judge(settings: Settings, code: CodeJudge, channels: list[grpc.aio.Channel]) -> VideoJudge | None:
    """The video judge; None without the address of llm-agent or of the renderer.

    :param channels: gets the opened channels, which the caller closes.
    """
    if not settings.llm_agent_address or not settings.renderer_address:
        return None
    authorities = read_authorities(settings.services_tls_ca_file)
    channels.append(connect(settings.llm_agent_address, token=settings.llm_agent_token, tls_ca=authorities))
    channels.append(connect(settings.renderer_address, token=settings.renderer_token, tls_ca=authorities))
    agent, renderer = channels[-2:]
    return VideoJudge(
        agent=AgentClient(agent), renderer=RendererClient(renderer), code=code, seconds=settings.video_seconds
    )
