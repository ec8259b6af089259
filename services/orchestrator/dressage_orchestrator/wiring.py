"""Puts the orchestrator together: settings in, a running service out."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
from dressage.api.internal.v1 import run_service_pb2_grpc
from dressage.api.v1 import (
    artifact_service_pb2_grpc,
    benchmark_service_pb2_grpc,
    environment_service_pb2_grpc,
    intent_service_pb2_grpc,
    session_service_pb2_grpc,
)
from dressage.artifacts import ArtifactStore
from dressage.errors import FailedPrecondition
from dressage.serving.channels import connect
from dressage.serving.metrics import expose
from dressage.serving.server import GrpcServer, RunningService
from dressage.serving.stores import open_service_store
from pydantic import SecretStr

from dressage_orchestrator.api.artifacts import ArtifactServicer
from dressage_orchestrator.api.benchmarks import BenchmarkServicer
from dressage_orchestrator.api.environments import EnvironmentServicer
from dressage_orchestrator.api.intents import IntentServicer
from dressage_orchestrator.api.runs import RunServicer
from dressage_orchestrator.api.sessions import SessionServicer
from dressage_orchestrator.benchmarks import Benchmarks
from dressage_orchestrator.clients import AgentClient, JudgeClient, RendererClient
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.hub import Hub
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.local import LocalLauncher
from dressage_orchestrator.launch.tokens import RunTokens, secret_of
from dressage_orchestrator.lock import DataFolderLock
from dressage_orchestrator.observe import keep_gauges
from dressage_orchestrator.service import Sessions
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.workflow.durable import Workflows
from dressage_orchestrator.workflow.flow import Engine

RUN_SERVICE = "dressage.internal.v1.RunService"
_LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")


async def start(settings: Settings, *, store: ArtifactStore | None = None) -> RunningService:
    """Starts the orchestrator and takes up all that was under way in its data folder.

    :param store: the artifact store; opened from the settings if not given.
    :raises FailedPrecondition: when another server has the data folder, the address is taken, or the address is not
        loopback and no token is set.
    """
    async with AsyncExitStack() as stack:
        service = await _start(settings, store, stack)
        closing = stack.pop_all()
    stopped = asyncio.Event()

    async def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            await closing.aclose()

    return RunningService(service, stop)


async def _start(settings: Settings, store: ArtifactStore | None, stack: AsyncExitStack) -> str:
    loop = asyncio.get_running_loop()
    if settings.auth_token is None and not settings.address.startswith(_LOOPBACK):
        message = f"{settings.address} is not loopback: set DRESSAGE_ORCHESTRATOR_AUTH_TOKEN, or listen on 127.0.0.1"
        raise FailedPrecondition(message, reason="TOKEN_REQUIRED")
    folder = settings.data_dir.resolve()
    lock = DataFolderLock(folder)
    await asyncio.to_thread(lock.acquire)
    stack.callback(lock.release)
    expose(settings.metrics_address)

    hub = Hub(loop)
    url = settings.database_url or sqlite_url(folder / "dressage.db")
    database = await asyncio.to_thread(Database, url)
    stack.callback(database.close)
    database.listener = hub.tell
    artifacts = store
    if artifacts is None:
        artifacts = await asyncio.to_thread(open_service_store, settings.store_url or str(folder / "artifacts"))
    tokens = RunTokens(secret_of(folder))
    controller = RunController(
        database, tokens, token_seconds=settings.run_token_seconds, max_failures=settings.max_run_failures
    )
    engine = Engine(
        settings=settings,
        database=database,
        store=artifacts,
        controller=controller,
        loop=loop,
        stopping=threading.Event(),
        **await _clients(settings, stack),
    )
    workflows = Workflows(engine, system_database_url=_workflow_url(settings, url))
    controller.notify = lambda session: workflows.wake(session, "run")
    service = Sessions(settings=settings, database=database, agent=engine.agent, workflows=workflows)
    benchmarks = Benchmarks(service, hub, parallel=settings.benchmark_parallel)
    runs = RunServicer(
        database=database,
        hub=hub,
        tokens=tokens,
        controller=controller,
        store=artifacts,
        progress_seconds=settings.progress_seconds,
        ended=controller.notify,
    )
    server = _server(settings, engine, hub, service, benchmarks, runs)

    launcher = LocalLauncher(
        log_folder=folder / "logs",
        on_end=controller.ended,
        max_parallel=settings.max_parallel_runs,
        command=settings.trainer_command,
        hello_seconds=settings.hello_seconds,
        stop_seconds=settings.stop_seconds,
    )
    controller.launcher = launcher
    # Callbacks run last in, first out: workflows leave first; then trainers end, while the server still takes their
    # last checkpoints; then the server drains.
    address = await server.start()
    stack.push_async_callback(server.stop)
    stack.push_async_callback(launcher.close)
    stack.push_async_callback(runs.close)
    controller.address = address
    if settings.recover:
        await asyncio.to_thread(workflows.launch)
        stack.push_async_callback(asyncio.to_thread, workflows.close, seconds=settings.grace_seconds + 5)
        await controller.recover()
        await benchmarks.recover()
    stack.push_async_callback(benchmarks.close)
    gauges = asyncio.create_task(keep_gauges(database))
    stack.push_async_callback(_cancelled, gauges)
    lock.announce(address)
    return address


async def _clients(settings: Settings, stack: AsyncExitStack) -> dict[str, Any]:
    async def channel(address: str) -> grpc.aio.Channel:
        opened = connect(address, token=settings.internal_token)
        stack.push_async_callback(opened.close)
        return opened

    seconds = settings.call_seconds
    return {
        "agent": AgentClient(await channel(settings.llm_agent_address), seconds=seconds),
        "judge": JudgeClient(await channel(settings.judge_address), seconds=seconds),
        "renderer": RendererClient(await channel(settings.renderer_address), seconds=seconds),
    }


def _workflow_url(settings: Settings, url: str) -> str:
    """DBOS's tables: beside ours on PostgreSQL; in a file of their own on SQLite, which has one writer per file."""
    return url if settings.database_url else sqlite_url(settings.data_dir.resolve() / "workflows.db")


def _server(
    settings: Settings, engine: Engine, hub: Hub, service: Sessions, benchmarks: Benchmarks, runs: RunServicer
) -> GrpcServer:
    token: SecretStr | None = settings.auth_token
    server = GrpcServer(
        service_name="orchestrator",
        address=settings.address,
        token=token,
        exempt=(RUN_SERVICE,),
        grace_seconds=settings.grace_seconds,
    )
    sessions = SessionServicer(service, hub)
    environments, artifacts = EnvironmentServicer(), ArtifactServicer(engine.store)
    intents = IntentServicer(engine.agent, default_model=settings.default_model)
    bench = BenchmarkServicer(benchmarks, service, hub)
    add = server.add
    add(session_service_pb2_grpc.add_SessionServiceServicer_to_server, sessions, "dressage.v1.SessionService")
    add(
        environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
        environments,
        "dressage.v1.EnvironmentService",
    )
    add(intent_service_pb2_grpc.add_IntentServiceServicer_to_server, intents, "dressage.v1.IntentService")
    add(artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server, artifacts, "dressage.v1.ArtifactService")
    add(benchmark_service_pb2_grpc.add_BenchmarkServiceServicer_to_server, bench, "dressage.v1.BenchmarkService")
    add(run_service_pb2_grpc.add_RunServiceServicer_to_server, runs, RUN_SERVICE)
    return server


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
