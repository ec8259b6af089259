"""Composition root: builds and starts the orchestrator from its settings."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
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
    maintenance_service_pb2_grpc,
    session_service_pb2_grpc,
)
from dressage.artifacts import ArtifactStore
from dressage.errors import DressageError
from dressage.sandbox.machine import UNKNOWN, Machine, memory_bytes
from dressage.serving.channels import connect, read_authorities
from dressage.serving.metrics import expose
from dressage.serving.server import GrpcServer, RunningService
from dressage.serving.stores import open_service_store
from pydantic import SecretStr

from dressage_orchestrator.api.artifacts import ArtifactServicer
from dressage_orchestrator.api.benchmarks import BenchmarkServicer
from dressage_orchestrator.api.environments import EnvironmentServicer
from dressage_orchestrator.api.gate import PublicGate
from dressage_orchestrator.api.intents import IntentServicer
from dressage_orchestrator.api.maintenance import MaintenanceServicer
from dressage_orchestrator.api.paging import PageTokens
from dressage_orchestrator.api.pools import Capacity, Pools
from dressage_orchestrator.api.runs import RunServicer
from dressage_orchestrator.api.sessions import SessionServicer
from dressage_orchestrator.benchmarks import Benchmarks
from dressage_orchestrator.changes import follow
from dressage_orchestrator.clients import AgentClient, JudgeClient, RendererClient
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.executors import shared_secret
from dressage_orchestrator.database.sessions import ENDED_TOPIC
from dressage_orchestrator.device_pools import DevicePools
from dressage_orchestrator.gauges import update_gauges
from dressage_orchestrator.human_feedback import HumanFeedback
from dressage_orchestrator.launch.controller import SINGLE_EXECUTOR, RunController
from dressage_orchestrator.launch.factory import configured_pools, open_launcher
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.launch.local import available_cores
from dressage_orchestrator.launch.protocol import Launcher
from dressage_orchestrator.launch.tokens import RunTokens, load_or_create_secret, new_secret
from dressage_orchestrator.lifecycle.context import Engine
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.lifecycle.wakeups import Wakeups
from dressage_orchestrator.lifecycle.workflows import Workflows
from dressage_orchestrator.lock import DataFolderLock
from dressage_orchestrator.notifications import Notifier
from dressage_orchestrator.principals import Principals
from dressage_orchestrator.quotas import Quotas
from dressage_orchestrator.replicas import Replica
from dressage_orchestrator.retention import Policy, Retention
from dressage_orchestrator.service import Sessions
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.watches import Watches

RUN_SERVICE = "dressage.internal.v1.RunService"
_RECONCILE_SECONDS = 5.0
_ADMISSION_POLL_SECONDS = 2.0
_RETENTION_POLL_SECONDS = 60.0


async def start(
    settings: Settings,
    *,
    store: ArtifactStore | None = None,
    methods: Methods | None = None,
    fenced: Callable[[], None] | None = None,
) -> RunningService:
    """Start the orchestrator and resume the pending work of its data folder.

    :param store: the artifact store; opened from the settings if not given.
    :param methods: the methods available to sessions; the installed ones if not given.
    :param fenced: called when another server has taken over from this one; by default the process exits at once.
    :raises FailedPrecondition: when another server uses the data folder, the address is taken, or the address is not
        loopback and no token is set.
    """
    async with AsyncExitStack() as stack:
        service = await _start(settings, store, methods or Methods.load(), stack, fenced or _exit_process)
        closing = stack.pop_all()
    stopped = asyncio.Event()

    async def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            await closing.aclose()

    return replace(service, stop=stop)


async def _start(
    settings: Settings,
    store: ArtifactStore | None,
    methods: Methods,
    stack: AsyncExitStack,
    fenced: Callable[[], None],
) -> RunningService:
    pools = configured_pools(settings)
    folder = settings.data_dir.resolve()
    lock = DataFolderLock(folder)
    await asyncio.to_thread(lock.acquire)
    stack.callback(lock.release)
    expose(settings.metrics_address)
    parts = await _assemble(settings, store, methods, stack, fenced, pools)
    launcher = await open_launcher(settings, pools=pools, folder=folder, controller=parts.controller)
    parts.controller.launcher = launcher
    # Callbacks run last in, first out: workflows stop first; then trainers end, while the server still accepts their last
    # checkpoints; then the server drains.
    address = await parts.server.start()
    stack.push_async_callback(parts.server.stop)
    stack.push_async_callback(launcher.close)
    stack.push_async_callback(parts.runs.close)
    parts.controller.address = settings.advertised_address or parts.server.local_address
    if settings.recover:
        await _start_workers(settings, launcher, parts, stack)
    stack.push_async_callback(parts.benchmarks.close)
    queue = asyncio.create_task(parts.watches.follow_queue())
    stack.push_async_callback(_cancel, queue)
    gauges = asyncio.create_task(update_gauges(parts.database, methods=methods.names))
    stack.push_async_callback(_cancel, gauges)
    lock.announce(address)
    return RunningService(address, stack.aclose, parts.server.local_address)


@dataclass(frozen=True)
class _Parts:
    """The connected parts of the orchestrator, not yet started."""

    database: Database
    controller: RunController
    workflows: Workflows
    benchmarks: Benchmarks
    retention: Retention
    runs: RunServicer
    server: GrpcServer
    notifier: Notifier
    watches: Watches
    wakeups: Wakeups
    membership: _Membership | None


async def _assemble(
    settings: Settings,
    store: ArtifactStore | None,
    methods: Methods,
    stack: AsyncExitStack,
    fenced: Callable[[], None],
    pools: Mapping[str, Pool] | None,
) -> _Parts:
    loop, folder = asyncio.get_running_loop(), settings.data_dir.resolve()
    principals = await asyncio.to_thread(Principals, settings)
    notifier = Notifier(loop)
    url = settings.database_url or sqlite_url(folder / "dressage.db")
    database = await asyncio.to_thread(partial(Database, url, upgrade=settings.migrate_on_start))
    stack.callback(database.close)
    database.listener = notifier.publish
    if store is None:
        store = await asyncio.to_thread(open_service_store, settings.store_url or str(folder / "artifacts"))
    secret = await asyncio.to_thread(_token_secret, settings, database, folder)
    tokens, pages = RunTokens(secret), PageTokens(secret)
    membership = _Membership(settings, database, fenced) if database.shared and settings.recover else None
    executor = membership.replica.id if membership else SINGLE_EXECUTOR
    controller = _controller(settings, database, tokens, executor)
    default = settings.default_pool
    devices = DevicePools.here(default) if pools is None else DevicePools.of(pools, default)
    engine = Engine(
        settings=settings,
        database=database,
        store=store,
        controller=controller,
        loop=loop,
        wakeups=Wakeups(),
        # The membership's own event: a fenced server interrupts its workflows at once (decision 0017).
        stopping=membership.stopping if membership else threading.Event(),
        device_pools=devices.names,
        cpu_pool=devices.cpu,
        **await _clients(settings, stack),
    )
    workflows = Workflows(engine, methods, system_database_url=_workflow_url(settings, url), executor_id=executor)
    controller.notify, controller.is_held = workflows.wake, workflows.is_held
    names = {default, *devices.names} if pools is None else set(pools)
    local = Capacity(max(1, available_cores() // settings.max_parallel_runs), max_runs=settings.max_parallel_runs)
    cores = partial(_cores_of, pools, local.cores)
    service = Sessions(
        settings=settings,
        database=database,
        agent=engine.agent,
        judge=engine.judge,
        workflows=workflows,
        methods=methods,
        pools=names,
        machine=partial(_machine_of, pools),
        quotas=Quotas(principals.quota, cores, elicit_dollars=settings.elicit_dollars_per_day),
        store=store,
        devices=devices,
    )
    benchmarks = Benchmarks(service, notifier, parallel=settings.benchmark_parallel)
    runs = RunServicer(
        database=database,
        notifier=notifier,
        tokens=tokens,
        controller=controller,
        store=store,
        progress_seconds=settings.progress_seconds,
    )
    feedback = HumanFeedback(service, judge=engine.judge, workflows=workflows)
    retention = Retention(
        Policy.of(settings),
        database=database,
        store=store,
        workflows=workflows,
        launcher=lambda: controller.launcher,
    )
    watches = Watches(service.read, notifier, database.queue)
    sessions = SessionServicer(
        service, feedback, watches, controller, pages, Pools(settings.default_pool, local, pools)
    )
    server = _server(settings, engine, notifier, service, sessions, benchmarks, retention, runs, principals, pages)
    return _Parts(
        database,
        controller,
        workflows,
        benchmarks,
        retention,
        runs,
        server,
        notifier,
        watches,
        engine.wakeups,
        membership,
    )


def _cores_of(pools: Mapping[str, Pool] | None, local: int, name: str) -> int:
    """Cores of a run in a pool."""
    return local if pools is None or name not in pools else pools[name].usable_cores


def _machine_of(pools: Mapping[str, Pool] | None, name: str) -> Machine:
    """Memory and scratch space of a trainer in a pool; local trainers have this machine's."""
    if pools is None:
        return Machine(memory_bytes=memory_bytes())
    return pools[name].machine if name in pools else UNKNOWN


def _controller(settings: Settings, database: Database, tokens: RunTokens, executor: str) -> RunController:
    return RunController(
        database,
        tokens,
        token_seconds=settings.run_token_seconds,
        max_failures=settings.max_run_failures,
        idle_seconds=settings.run_idle_seconds,
        deadline_seconds=settings.run_deadline_seconds,
        executor=executor,
    )


async def _start_workers(settings: Settings, launcher: Launcher, parts: _Parts, stack: AsyncExitStack) -> None:
    """Resume pending work, and reconcile periodically."""
    workflows, membership = parts.workflows, parts.membership
    if membership is not None:
        membership.replica.start()
        stack.push_async_callback(asyncio.to_thread, membership.replica.shutdown)
    # Before the workflows, which would start second trainers for runs whose Jobs it has not listed yet.
    await launcher.start()
    await asyncio.to_thread(workflows.launch)
    stack.push_async_callback(asyncio.to_thread, workflows.close, seconds=settings.grace_seconds + 5)
    await parts.controller.recover()
    if not settings.hold:
        await parts.benchmarks.recover()
    if membership is not None:
        membership.join(workflows)
    benchmarks = None if settings.hold else parts.benchmarks
    following = asyncio.create_task(follow(parts.database, parts.notifier, parts.wakeups))
    stack.push_async_callback(_cancel, following)
    reconciling = asyncio.create_task(_reconcile(workflows, parts.controller, benchmarks))
    stack.push_async_callback(_cancel, reconciling)
    admitting = asyncio.create_task(_admit(workflows, parts.notifier))
    stack.push_async_callback(_cancel, admitting)
    clock = asyncio.create_task(parts.retention.follow_clock())
    stack.push_async_callback(_cancel, clock)
    if settings.retention_seconds and not settings.hold:
        collecting = asyncio.create_task(_collect(settings, parts))
        stack.push_async_callback(_cancel, collecting)


class _Membership:
    """This server's membership in the group of servers that share its database."""

    def __init__(self, settings: Settings, database: Database, fenced: Callable[[], None]) -> None:
        self._workflows: Workflows | None = None
        self._on_fenced = fenced
        self.stopping = threading.Event()
        self.replica = Replica(
            database,
            settings.executor_name or socket.gethostname(),
            owners=lambda: self._workflows.owners() if self._workflows else set(),
            take_over=lambda orphaned: self._workflows.take_over(orphaned) if self._workflows else None,
            fenced=self._handle_expiry,
            heartbeat_seconds=settings.heartbeat_seconds,
            lease_seconds=settings.lease_seconds,
        )

    def join(self, workflows: Workflows) -> None:
        """Let this server take over workflows from now on."""
        self._workflows = workflows

    def _handle_expiry(self) -> None:
        self.stopping.set()
        self._on_fenced()


def _exit_process() -> None:
    # At once: this process must not write any more, and a drain would wait for workflows that now run elsewhere, which
    # DBOS makes this process follow to their end. Trainers end with their parent; clients reconnect.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _token_secret(settings: Settings, database: Database, folder: Path) -> bytes:
    if settings.run_token_secret is not None:
        return settings.run_token_secret.get_secret_value().encode()
    if not database.shared:
        return load_or_create_secret(folder)
    with database.begin() as tx:
        return shared_secret(tx, "run_token", new_secret)


async def _reconcile(workflows: Workflows, controller: RunController, benchmarks: Benchmarks | None) -> None:
    """Periodically resume work that another server, or this one before a crash, did not finish."""
    log = structlog.get_logger("dressage.orchestrator")
    while True:
        await asyncio.sleep(_RECONCILE_SECONDS)
        try:
            await controller.reconcile()
            if benchmarks is not None:
                await benchmarks.recover()
            # Also on SQLite: a full disk may have prevented the record of a workflow.
            await asyncio.to_thread(workflows.start_pending)
            await asyncio.to_thread(workflows.reconcile)
        except DressageError as error:
            log.warning("could not reconcile", error=error.message)
        except Exception:
            log.exception("could not reconcile")


async def _admit(workflows: Workflows, notifier: Notifier) -> None:
    """Start waiting sessions as others end, on this server at once and on others after a poll."""
    log = structlog.get_logger("dressage.orchestrator")
    with notifier.subscribe(ENDED_TOPIC) as subscription:
        while True:
            await subscription.wait(_ADMISSION_POLL_SECONDS)
            try:
                await asyncio.to_thread(workflows.admit)
            except DressageError as error:
                log.warning("could not admit sessions", error=error.message)
            except Exception:
                log.exception("could not admit sessions")


async def _collect(settings: Settings, parts: _Parts) -> None:
    executor = parts.membership.replica.id if parts.membership else SINGLE_EXECUTOR
    interval = settings.retention_seconds
    await parts.retention.run(executor=executor, interval=interval, poll=min(interval, _RETENTION_POLL_SECONDS))


async def _clients(settings: Settings, stack: AsyncExitStack) -> dict[str, Any]:
    authorities = await asyncio.to_thread(read_authorities, settings.services_tls_ca_file)

    async def channel(address: str, token: SecretStr | None) -> grpc.aio.Channel:
        opened = connect(address, token=token, tls_ca=authorities)
        stack.push_async_callback(opened.close)
        return opened

    seconds = settings.call_seconds
    return {
        "agent": AgentClient(
            await channel(settings.llm_agent_address, settings.llm_agent_token), seconds=settings.task_seconds
        ),
        "judge": JudgeClient(await channel(settings.judge_address, settings.judge_token), seconds=seconds),
        "renderer": RendererClient(await channel(settings.renderer_address, settings.renderer_token), seconds=seconds),
    }


def _workflow_url(settings: Settings, url: str) -> str:
    """URL of DBOS's tables: our database on PostgreSQL, a separate file on SQLite, which allows one writer per file."""
    return url if settings.database_url else sqlite_url(settings.data_dir.resolve() / "workflows.db")


def _server(
    settings: Settings,
    engine: Engine,
    notifier: Notifier,
    service: Sessions,
    sessions: SessionServicer,
    benchmarks: Benchmarks,
    retention: Retention,
    runs: RunServicer,
    principals: Principals,
    pages: PageTokens,
) -> GrpcServer:
    gate, authenticate = PublicGate(service, principals), principals.authenticate
    # Exempt: trainers have run tokens, which the servicer of runs verifies itself.
    server = GrpcServer.from_settings(
        "orchestrator", settings, authenticate=authenticate, gate=gate, exempt=(RUN_SERVICE,)
    )
    environments, artifacts = (
        EnvironmentServicer(pages),
        ArtifactServicer(engine.store, service, pages, engine.renderer),
    )
    intents = IntentServicer(engine.agent, service, default_model=settings.default_model)
    bench = BenchmarkServicer(benchmarks, service, notifier, pages)
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
    maintenance = MaintenanceServicer(retention)
    add(
        maintenance_service_pb2_grpc.add_MaintenanceServiceServicer_to_server,
        maintenance,
        "dressage.v1.MaintenanceService",
    )
    add(run_service_pb2_grpc.add_RunServiceServicer_to_server, runs, RUN_SERVICE)
    return server


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
