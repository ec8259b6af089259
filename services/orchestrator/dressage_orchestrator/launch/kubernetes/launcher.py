"""Launches trainers as Kubernetes Jobs: see `KubernetesLauncher`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from dressage.errors import FailedPrecondition, Unavailable

from dressage_orchestrator.launch.kubernetes import pools
from dressage_orchestrator.launch.kubernetes.client import ClusterClient, ClusterError, Json
from dressage_orchestrator.launch.kubernetes.manifest import Installation, job_manifest, job_name
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.launch.kubernetes.reflector import Reflector
from dressage_orchestrator.launch.kubernetes.status import (
    REMEDIES,
    JobStatus,
    Stage,
    attempt_of,
    creation_failure_type,
    first_attempt_of,
    observe,
    run_of,
)
from dressage_orchestrator.launch.protocol import (
    AttemptResult,
    ExitKind,
    Launch,
    Notice,
    NoticeListener,
    ResultListener,
)

_ATTEMPTS = 10_000  # a Job on preemptible nodes may lose its pod often
_SCHEDULING_SECONDS = 15.0  # from a Job's creation to its container's start, on a node that has its image
_LOG_LINES = 5000
_TICK_SECONDS = 2.0
_SYNC_SECONDS = 60.0
_STOP_SECONDS = 30.0
_CANCEL_SECONDS = 1.0
_FIRST_RETRY_SECONDS = 2.0
_LONGEST_RETRY_SECONDS = 60.0
_FAILED_CREATION_AFTER_SECONDS = 5.0
_FAILED_CREATION_EVERY_SECONDS = 30.0


class Runs(Protocol):
    """State of runs in the database, which other replicas and earlier processes change as well."""

    async def hello_received(self, run: str, attempt: int) -> bool:
        """Whether the attempt's trainer has connected."""
        ...

    async def starting(self, run: str, attempt: int) -> bool:
        """Record that the attempt starts: a QUEUED run becomes STARTING."""
        ...

    async def is_abandoned(self, run: str) -> bool:
        """Whether the run was cancelled or has failed, so that its trainer has to be stopped."""
        ...


@dataclass
class _TrackedJob:
    """A Job of this installation.

    :param created: whether the API server has accepted it.
    :param lists: number of lists when it was created.
    :param observed: whether a list or watch has returned it.
    :param deleting: set when its deletion is requested.
    :param reported: attempts and types of the reported conditions.
    :param attempt: the newest attempt of its pods.
    """

    run: str
    first: int
    name: str
    created: bool = False
    lists: int = 0
    observed: bool = False
    started: bool = False
    ended: bool = False
    deleting: asyncio.Event = field(default_factory=asyncio.Event)
    reported: set[tuple[int, str]] = field(default_factory=set)
    attempt: int = 0
    task: asyncio.Task[None] | None = None
    create_seconds: float = 0.0

    @property
    def live(self) -> bool:
        return not self.ended and not self.deleting.is_set()


class KubernetesLauncher:
    """Runs trainers as Jobs. They continue after the end of this process and are adopted by the next one.

    :param pools: pools by name.
    :param installation: namespace, labels and owner of the Jobs.
    :param on_result: called when a Job has ended by itself, with retries until it returns.
    :param on_notice: called once for each condition of an attempt.
    :param hello_seconds: time for a trainer to connect after the start of its container.
    :param relist_seconds: interval of complete lists in addition to the watch.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        pools: Mapping[str, Pool],
        installation: Installation,
        runs: Runs,
        on_result: ResultListener,
        on_notice: NoticeListener,
        hello_seconds: float,
        relist_seconds: float,
    ) -> None:
        self._client = client
        self._pools = dict(pools)
        self._installation = installation
        self._runs = runs
        self._on_result = on_result
        self._on_notice = on_notice
        self._hello_seconds = hello_seconds
        self._tracked: dict[str, _TrackedJob] = {}
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._failed_creations: dict[str, list[str]] = {}
        self._failed_creations_read = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("dressage.launcher")
        self._jobs = Reflector(client, "jobs", installation.selector, seconds=relist_seconds, changed=self._job_changed)
        self._pods = Reflector(client, "pods", installation.selector, seconds=relist_seconds, changed=self._pod_changed)
        self.pools: frozenset[str] | None = frozenset(pools)
        self.attempts_per_launch = _ATTEMPTS
        self.scheduling_seconds = _SCHEDULING_SECONDS

    def cores(self, pool: str) -> int:
        """Number of cores that a run of the pool may use."""
        return self._pools[pool].usable_cores if pool in self._pools else 1

    async def start(self) -> int:
        """List the existing Jobs and start to watch them.

        :return: number of active Jobs.
        :raises FailedPrecondition: when the API server denies access.
        :raises Unavailable: when it cannot be reached for a minute.
        """
        deadline = time.monotonic() + _SYNC_SECONDS
        while True:
            try:
                await self._jobs.list()
                await self._pods.list()
                break
            except ClusterError as error:
                if error.status in (401, 403, 404):
                    message = f"the Kubernetes API denies access to Jobs and pods: {error.message}"
                    raise FailedPrecondition(message, reason="CLUSTER_REFUSES") from None
                if time.monotonic() > deadline:
                    raise Unavailable(error.message, reason="CLUSTER_UNAVAILABLE") from None
                self._log.warning("waiting for the API server", error=error.message)
                await asyncio.sleep(_FIRST_RETRY_SECONDS)
        # Track all Jobs at once, before they are reconciled one by one: a caller of `has_trainer` would create a second Job.
        for name, job in self._jobs.items.items():
            if run_of(job) and name not in self._tracked:
                self._track(name, job)
        for task in (self._jobs.run(), self._pods.run(), self._reconcile_all()):
            self._spawn(task)
        return len(self.active_runs())

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        """Create the Job for this and later attempts of a run (see `Launcher.submit`)."""
        name = job_name(self._installation.instance, launch.run, launch.attempt)
        if name in self._tracked:
            return
        tracked = _TrackedJob(launch.run, launch.attempt, name, create_seconds=time.monotonic())
        self._tracked[name] = tracked
        tracked.task = self._spawn(self._create(tracked, launch))

    def has_trainer(self, run: str, attempt: int) -> bool:
        """Whether the attempt is queued or running."""
        return any(t.live and t.run == run and t.first <= attempt for t in self._tracked.values())

    def active_runs(self) -> frozenset[str]:
        """Runs with an active Job."""
        return frozenset(t.run for t in self._tracked.values() if t.live)

    def trainer_connected(self, run: str, attempt: int) -> None:
        """Do nothing: the connection is recorded in the database, which all replicas read."""

    async def stop(self, run: str, attempt: int | None = None) -> None:
        """Delete a run's Jobs, which terminates their pods. Retry while the API server is unavailable."""
        jobs = [t for t in self._tracked.values() if t.run == run and (attempt is None or t.first <= attempt)]
        deleting = [self._spawn(self._delete(tracked)) for tracked in jobs if not tracked.ended]
        if deleting:
            await asyncio.wait(deleting, timeout=_STOP_SECONDS)

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        """Read the end of the logs of the run's pods that Kubernetes has kept (see `Launcher.logs`)."""
        owned = [(self._attempt_of(pod), pod) for pod in self._pods.items.values() if run_of(pod) == run]
        parts = []
        for attempt, pod in sorted(owned, key=lambda entry: entry[0]):
            try:
                text = await self._client.log(pod["metadata"]["name"], lines=_LOG_LINES)
            except ClusterError as error:
                if error.status == 0 or error.status >= 500:
                    raise Unavailable(f"the pod's log: {error.message}", reason="POD_LOG_UNAVAILABLE") from None
                continue  # its container has not started, or its node is gone
            parts.append(f"--- attempt {attempt}\n".encode() + text)
        return b"".join(parts)[-tail_bytes:] if parts else None

    def _attempt_of(self, pod: Json) -> int:
        return attempt_of(pod, first_attempt_of(pod))

    def delete_logs(self, run: str) -> None:
        """Do nothing: the logs end with the pods, which have a time to live."""

    async def close(self) -> None:
        """Stop watching; Jobs continue. A task that does not end within `_STOP_SECONDS` is abandoned and logged."""
        deadline = time.monotonic() + _STOP_SECONDS
        while running := [task for task in self._tasks if not task.done()]:
            if time.monotonic() > deadline:
                self._log.error("tasks of the launcher do not end", tasks=len(running))
                break
            for task in running:
                task.cancel()
            # Repeated, because a task may lose a cancellation that arrives together with the event it waits for.
            await asyncio.wait(running, timeout=_CANCEL_SECONDS)
        self._client.close()

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[assignment]
        self._tasks.add(task)
        task.add_done_callback(self._task_finished)
        return task

    def _task_finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("a task of the launcher failed", exc_info=task.exception())

    # Creating and deleting

    async def _create(self, tracked: _TrackedJob, launch: Launch) -> None:
        pool = self._pools.get(launch.pool)
        if pool is None:
            message = f"pool {launch.pool!r} does not exist; available pools: {', '.join(sorted(self._pools))}"
            await self._fail(tracked, message, reason="POOL_UNKNOWN", remedy="use one of the available pools")
            return
        problem = await self._node_problem(launch.pool, pool)
        if problem:
            await self._fail(tracked, problem, reason=pools.NO_GPU_NODE, remedy=REMEDIES[pools.NO_GPU_NODE])
            return
        manifest = job_manifest(launch, pool, self._installation)
        wait = _FIRST_RETRY_SECONDS
        while not tracked.deleting.is_set():
            try:
                created = await self._client.create_job(manifest)
            except ClusterError as error:
                if error.permanent:
                    await self._fail(tracked, error.message, reason="JOB_INVALID", remedy=REMEDIES["JOB_INVALID"])
                    return
                await self._notify_once(tracked, tracked.first, _create_failure(error), error.message)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await tracked.deleting.wait()
                wait = min(wait * 2, _LONGEST_RETRY_SECONDS)
                continue
            tracked.created, tracked.lists = True, self._jobs.lists
            self._log.info("Job created" if created else "Job exists", job=tracked.name, run=tracked.run)
            self._enqueue(tracked.name)
            return

    async def _node_problem(self, name: str, pool: Pool) -> str:
        """Return why a pool's GPUs are on no node; empty if one has them, or if that cannot be known."""
        if not pool.devices or pool.nodes_on_demand:
            return ""
        try:
            return pools.node_problem(name, pool, await self._client.nodes())
        except ClusterError as error:
            self._log.warning("cannot list the nodes, so GPUs are not checked", pool=name, error=error.message)
            return ""

    async def _delete(self, tracked: _TrackedJob) -> None:
        tracked.deleting.set()
        if tracked.task is not None and not tracked.task.done():
            await asyncio.wait([tracked.task])  # it may be creating the Job
        wait = _FIRST_RETRY_SECONDS
        while True:
            try:
                await self._client.delete_job(tracked.name)
                break
            except ClusterError as error:
                self._log.warning("cannot delete a Job yet", job=tracked.name, error=error.message)
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_RETRY_SECONDS)
        self._log.info("Job deleted", job=tracked.name, run=tracked.run)
        if tracked.name not in self._jobs.items:
            self._tracked.pop(tracked.name, None)

    async def _fail(self, tracked: _TrackedJob, message: str, *, reason: str, remedy: str) -> None:
        """Fail an attempt whose Job cannot be created."""
        tracked.ended = True
        self._tracked.pop(tracked.name, None)
        result = AttemptResult(
            tracked.run, tracked.first, ExitKind.FAILED, message, final=True, reason=reason, remedy=remedy
        )
        await self._on_result(result)

    # Changes of objects

    def _job_changed(self, job: Json, gone: bool) -> None:
        if run_of(job):
            self._enqueue(job["metadata"]["name"])

    def _pod_changed(self, pod: Json, gone: bool) -> None:
        job = (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name")
        if job:
            self._enqueue(job)

    def _enqueue(self, name: str) -> None:
        self._dirty.add(name)
        self._wake.set()

    async def _reconcile_all(self) -> None:
        """Reconcile each changed Job, and periodically all Jobs, because timeouts depend on the time."""
        self._dirty.update(self._jobs.items)
        tick = time.monotonic() + _TICK_SECONDS
        while True:
            with suppress(TimeoutError):
                # Not `wait_for`: before Python 3.12 it loses a cancellation that arrives together with the event.
                async with asyncio.timeout(max(0.0, tick - time.monotonic())):
                    await self._wake.wait()
            if time.monotonic() >= tick:
                tick = time.monotonic() + _TICK_SECONDS
                self._dirty.update(name for name, tracked in self._tracked.items() if not tracked.ended)
            self._wake.clear()
            names, self._dirty = self._dirty, set()
            for name in sorted(names):
                try:
                    await self._reconcile(name)
                except Exception:
                    # The database may be unavailable; the Job is reconciled again at the next tick.
                    self._log.exception("could not reconcile a Job", job=name)

    async def _reconcile(self, name: str) -> None:
        job = self._jobs.items.get(name)
        tracked = self._tracked.get(name)
        if job is None:
            if tracked is not None:
                await self._handle_missing_job(tracked)
            return
        if not run_of(job):
            return
        if tracked is None:
            tracked = self._track(name, job)
        tracked.created = True
        if tracked.ended or tracked.deleting.is_set():
            return
        if not tracked.observed:
            tracked.observed = True
            # A run that was cancelled while no orchestrator ran has left its Job behind.
            if job["metadata"].get("deletionTimestamp") is None and await self._runs.is_abandoned(tracked.run):
                self._spawn(self._delete(tracked))
                return
        owned = [pod for pod in self._pods.items.values() if _job_of(pod) == name]
        status = observe(job, owned, await self._creation_failures(tracked, owned))
        await self._apply(tracked, status)

    def _track(self, name: str, job: Json) -> _TrackedJob:
        tracked = _TrackedJob(run_of(job), first_attempt_of(job), name, created=True, create_seconds=time.monotonic())
        self._tracked[name] = tracked
        return tracked

    async def _apply(self, tracked: _TrackedJob, status: JobStatus) -> None:
        tracked.attempt = status.attempt
        for notice in status.notices:
            if (notice.attempt, notice.type) not in tracked.reported:
                await self._on_notice(notice)
                tracked.reported.add((notice.attempt, notice.type))
        if status.ended is not None:
            self._log.info("Job ended", job=tracked.name, run=tracked.run, kind=status.ended.kind.value)
            tracked.ended = True  # before the listener, which may submit the next attempt
            try:
                await self._on_result(status.ended)
            except BaseException:
                tracked.ended = False
                raise
            return
        if status.stage in (Stage.STARTING, Stage.RUNNING) and not tracked.started:
            await self._runs.starting(tracked.run, tracked.first)
            tracked.started = True
        overdue = status.since is not None and time.time() - status.since > self._hello_seconds
        if overdue and not await self._runs.hello_received(tracked.run, status.attempt):
            await self._handle_unresponsive(tracked, status)

    async def _handle_unresponsive(self, tracked: _TrackedJob, status: JobStatus) -> None:
        self._log.warning("trainer did not connect", job=tracked.name, run=tracked.run, attempt=status.attempt)
        message = f"no hello within {self._hello_seconds:g} s of its container's start"
        reason = "TRAINER_UNRESPONSIVE"
        result = AttemptResult(
            tracked.run,
            tracked.first,
            ExitKind.NO_HELLO,
            message,
            last_attempt=status.attempt,
            reason=reason,
            remedy=REMEDIES[reason],
        )
        tracked.deleting.set()  # before the listener, which may submit the next attempt
        try:
            await self._on_result(result)
        except BaseException:
            tracked.deleting.clear()
            raise
        self._spawn(self._delete(tracked))

    async def _handle_missing_job(self, tracked: _TrackedJob) -> None:
        """Handle a Job that was deleted from the cluster, or that no list since its creation contains."""
        if not tracked.created or (not tracked.observed and self._jobs.lists <= tracked.lists + 1):
            return
        self._tracked.pop(tracked.name, None)
        if tracked.ended or tracked.deleting.is_set():
            return
        self._log.warning("Job was deleted", job=tracked.name, run=tracked.run)
        reason = "JOB_DELETED"
        message = "the run's Job does not exist in the cluster"
        result = AttemptResult(
            tracked.run,
            tracked.first,
            ExitKind.FAILED,
            message,
            last_attempt=tracked.attempt,
            reason=reason,
            remedy=REMEDIES[reason],
        )
        try:
            await self._on_result(result)
        except BaseException:
            self._tracked.setdefault(tracked.name, tracked)
            raise

    async def _creation_failures(self, tracked: _TrackedJob, pods: list[Json]) -> list[str]:
        """Why a Job has no pod. Only events contain the reason; they are read for all Jobs at once, at a bounded rate."""
        now = time.monotonic()
        if pods or now - tracked.create_seconds < _FAILED_CREATION_AFTER_SECONDS:
            return []
        if now - self._failed_creations_read > _FAILED_CREATION_EVERY_SECONDS:
            self._failed_creations_read = now
            with suppress(ClusterError):
                self._failed_creations = await self._client.failed_creations()
        return self._failed_creations.get(tracked.name, [])

    async def _notify_once(self, tracked: _TrackedJob, attempt: int, kind: str, message: str) -> None:
        if (attempt, kind) not in tracked.reported:
            tracked.reported.add((attempt, kind))
            await self._on_notice(Notice(tracked.run, attempt, kind, message, REMEDIES[kind]))


def _job_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name", ""))


def _create_failure(error: ClusterError) -> str:
    if error.status in (401, 403, 404):
        kind = creation_failure_type(error.message)
        return kind if kind == "QUOTA_EXCEEDED" else "JOB_REFUSED"
    return "API_SERVER_UNAVAILABLE"
