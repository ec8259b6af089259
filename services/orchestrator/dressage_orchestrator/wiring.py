"""Puts the orchestrator together: settings in, a running service out."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import structlog
from dressage.api.internal.v1 import run_service_pb2_grpc
from dressage.api.v1 import (
    artifact_service_pb2_grpc,
    benchmark_service_pb2_grpc,
    environment_service_pb2_grpc,
    intent_service_pb2_grpc,
    session_service_pb2_grpc,
)
from dressage.artifacts import ArtifactStore
from dressage.errors import DressageError, FailedPrecondition
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
from dressage_orchestrator.database.shared_secrets import shared_secret
from dressage_orchestrator.guidance import Guidance
from dressage_orchestrator.hub import Hub
from dressage_orchestrator.launch.choice import open_launcher, pools_of
from dressage_orchestrator.launch.controller import ALONE, RunController
from dressage_orchestrator.launch.protocol import Launcher
from dressage_orchestrator.launch.tokens import RunTokens, fresh_secret, secret_of
from dressage_orchestrator.lifecycle.context import Engine
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.lifecycle.wakeups import Wakeups
from dressage_orchestrator.lifecycle.workflows import Workflows
from dressage_orchestrator.lock import DataFolderLock
from dressage_orchestrator.observe import keep_gauges
from dressage_orchestrator.replicas import Replica
from dressage_orchestrator.service import Sessions
from dressage_orchestrator.settings import Settings

RUN_SERVICE = "dressage.internal.v1.RunService"
_LOOK_SECONDS = 5.0
_LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")


async def start(
    settings: Settings,
    *,
    store: ArtifactStore | None = None,
    methods: Methods | None = None,
    fenced: Callable[[], None] | None = None,
) -> RunningService:
    """Starts the orchestrator and takes up all that was under way in its data folder.

    :param store: the artifact store; opened from the settings if not given.
    :param methods: those that sessions may have; the installed ones if not given.
    :param fenced: called when another server took over from this one; by default the process ends at once.
    :raises FailedPrecondition: when another server has the data folder, the address is taken, or the address is not
        loopback and no token is set.
    """
    async with AsyncExitStack() as stack:
        service = await _start(settings, store, methods or Methods.installed(), stack, fenced or _end_process)
        closing = stack.pop_all()
    stopped = asyncio.Event()

    async def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            await closing.aclose()

    return RunningService(service, stop)


async def _start(
    settings: Settings,
    store: ArtifactStore | None,
    methods: Methods,
    stack: AsyncExitStack,
    fenced: Callable[[], None],
) -> str:
    loop = asyncio.get_running_loop()
    if settings.auth_token is None and not settings.address.startswith(_LOOPBACK):
        message = f"{settings.address} is not loopback: set DRESSAGE_ORCHESTRATOR_AUTH_TOKEN, or listen on 127.0.0.1"
        raise FailedPrecondition(message, reason="TOKEN_REQUIRED")
    pools = pools_of(settings)
    folder = settings.data_dir.resolve()
    lock = DataFolderLock(folder)
    await asyncio.to_thread(lock.acquire)
    stack.callback(lock.release)
    expose(settings.metrics_address)

    hub = Hub(loop)
    url = settings.database_url or sqlite_url(folder / "dressage.db")
    database = await asyncio.to_thread(partial(Database, url, upgrade=settings.migrate_on_start))
    stack.callback(database.close)
    database.listener = hub.tell
    artifacts = store
    if artifacts is None:
        artifacts = await asyncio.to_thread(open_service_store, settings.store_url or str(folder / "artifacts"))
    tokens = RunTokens(await asyncio.to_thread(_token_secret, settings, database, folder))
    members = _Membership(settings, database, fenced) if database.shared and settings.recover else None
    executor = members.replica.id if members else ALONE
    controller = RunController(
        database,
        tokens,
        token_seconds=settings.run_token_seconds,
        max_failures=settings.max_run_failures,
        idle_seconds=settings.run_idle_seconds,
        deadline_seconds=settings.run_deadline_seconds,
        executor=executor,
    )
    engine = Engine(
        settings=settings,
        database=database,
        store=artifacts,
        controller=controller,
        loop=loop,
        wakeups=Wakeups(),
        stopping=members.stopping if members else threading.Event(),
        **await _clients(settings, stack),
    )
    workflows = Workflows(engine, methods, system_database_url=_workflow_url(settings, url), executor_id=executor)
    controller.notify = workflows.wake
    names = {settings.default_pool} if pools is None else set(pools)
    service = Sessions(
        settings=settings, database=database, agent=engine.agent, workflows=workflows, methods=methods, pools=names
    )
    benchmarks = Benchmarks(service, hub, parallel=settings.benchmark_parallel)
    runs = RunServicer(
        database=database,
        hub=hub,
        tokens=tokens,
        controller=controller,
        store=artifacts,
        progress_seconds=settings.progress_seconds,
    )
    guidance = Guidance(service, judge=engine.judge, workflows=workflows)
    server = _server(settings, engine, hub, service, guidance, benchmarks, runs)

    launcher = await open_launcher(settings, pools=pools, folder=folder, controller=controller)
    controller.launcher = launcher
    # Callbacks run last in, first out: workflows leave first; then trainers end, while the server still takes their
    # last checkpoints; then the server drains.
    address = await server.start()
    stack.push_async_callback(server.stop)
    stack.push_async_callback(launcher.close)
    stack.push_async_callback(runs.close)
    controller.address = settings.advertised_address or address
    if settings.recover:
        await _start_workers(settings, launcher, workflows, controller, benchmarks, members, stack)
    stack.push_async_callback(benchmarks.close)
    gauges = asyncio.create_task(keep_gauges(database, methods=methods.names))
    stack.push_async_callback(_cancelled, gauges)
    lock.announce(address)
    return address


async def _start_workers(
    settings: Settings,
    launcher: Launcher,
    workflows: Workflows,
    controller: RunController,
    benchmarks: Benchmarks,
    members: _Membership | None,
    stack: AsyncExitStack,
) -> None:
    """Takes up what was under way, and looks for what others left."""
    if members is not None:
        members.replica.start()
        stack.push_async_callback(asyncio.to_thread, members.replica.leave)
    await launcher.start()
    await asyncio.to_thread(workflows.launch)
    stack.push_async_callback(asyncio.to_thread, workflows.close, seconds=settings.grace_seconds + 5)
    await controller.recover()
    await benchmarks.recover()
    if members is not None:
        members.begin(workflows)
    looking = asyncio.create_task(_reconcile(workflows, controller, benchmarks))
    stack.push_async_callback(_cancelled, looking)


class _Membership:
    """This server among those that share its database."""

    def __init__(self, settings: Settings, database: Database, fenced: Callable[[], None]) -> None:
        self._workflows: Workflows | None = None
        self._end = fenced
        self.stopping = threading.Event()
        self.replica = Replica(
            database,
            settings.executor_name or socket.gethostname(),
            holders=lambda: self._workflows.holders() if self._workflows else set(),
            take_over=lambda gone: self._workflows.take_over(gone) if self._workflows else None,
            fenced=self._fenced,
            beat_seconds=settings.heartbeat_seconds,
            lease_seconds=settings.lease_seconds,
        )

    def begin(self, workflows: Workflows) -> None:
        """Takes part in the work from now on."""
        self._workflows = workflows

    def _fenced(self) -> None:
        self.stopping.set()
        self._end()


def _end_process() -> None:
    # At once: nothing here may be saved any more, and a drain would wait for workflows that now run elsewhere, which
    # DBOS has this process follow to their end. Trainers end with their parent; clients dial again.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _token_secret(settings: Settings, database: Database, folder: Path) -> bytes:
    if settings.run_token_secret is not None:
        return settings.run_token_secret.get_secret_value().encode()
    if not database.shared:
        return secret_of(folder)
    with database.begin() as tx:
        return shared_secret(tx, "run_token", fresh_secret)


async def _reconcile(workflows: Workflows, controller: RunController, benchmarks: Benchmarks) -> None:
    """Sees now and then to what another server, or this one before it died, left unfinished."""
    log = structlog.get_logger("dressage.orchestrator")
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await controller.look()
            await benchmarks.recover()
            # Also on a database of this server's own: a full disk may have kept a workflow from being recorded.
            await asyncio.to_thread(workflows.start_forgotten)
            await asyncio.to_thread(workflows.reconcile)
        except DressageError as error:
            log.warning("could not reconcile", error=error.message)
        except Exception:
            log.exception("could not reconcile")


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
    settings: Settings,
    engine: Engine,
    hub: Hub,
    service: Sessions,
    guidance: Guidance,
    benchmarks: Benchmarks,
    runs: RunServicer,
) -> GrpcServer:
    token: SecretStr | None = settings.auth_token
    server = GrpcServer(
        service_name="orchestrator",
        address=settings.address,
        token=token,
        exempt=(RUN_SERVICE,),
        grace_seconds=settings.grace_seconds,
    )
    sessions = SessionServicer(service, guidance, hub, engine.controller)
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
