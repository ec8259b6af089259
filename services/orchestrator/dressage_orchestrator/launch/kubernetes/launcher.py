"""Trainers as Kubernetes Jobs: see `KubernetesLauncher`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from dressage.errors import FailedPrecondition, Unavailable

from dressage_orchestrator.launch.kubernetes.client import ClusterClient, ClusterError, Json
from dressage_orchestrator.launch.kubernetes.manifest import Place, job_manifest, job_name
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.launch.kubernetes.reflector import Reflector
from dressage_orchestrator.launch.kubernetes.remedies import REMEDIES
from dressage_orchestrator.launch.kubernetes.status import (
    Stage,
    View,
    attempt_of,
    create_refused,
    first_attempt_of,
    observe,
    run_of,
)
from dressage_orchestrator.launch.protocol import Ended, ExitKind, Launch, Listener, Notice, Noticer

_ATTEMPTS = 10_000  # a Job on preemptible nodes may lose its pod often
_PLACING_SECONDS = 15.0  # from a Job's creation to its container's start, on a node that has its image
_LOG_LINES = 5000
_TICK_SECONDS = 2.0
_SYNC_SECONDS = 60.0
_STOP_SECONDS = 30.0
_CANCEL_SECONDS = 1.0
_FIRST_RETRY_SECONDS = 2.0
_LONGEST_RETRY_SECONDS = 60.0
_REFUSAL_AFTER_SECONDS = 5.0
_REFUSAL_EVERY_SECONDS = 30.0


class Runs(Protocol):
    """What the launcher asks of the database, since other replicas and earlier processes know things too."""

    async def hello_received(self, run: str, attempt: int) -> bool:
        """Whether the attempt's trainer has said hello."""
        ...

    async def starting(self, run: str, attempt: int) -> bool:
        """The attempt has a place: its run is STARTING, if it was QUEUED."""
        ...

    async def abandoned(self, run: str) -> bool:
        """Whether the run was cancelled or has failed, so that its trainer is to end."""
        ...


@dataclass
class _Tracked:
    """One Job of ours.

    :param created: whether the API server has it, as far as we know.
    :param listed: how many lists had been made when it was created.
    :param attempt: the newest attempt seen.
    """

    run: str
    first: int
    name: str
    created: bool = False
    listed: int = 0
    seen: bool = False
    started: bool = False
    ended: bool = False
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)
    told: set[tuple[int, str]] = field(default_factory=set)
    attempt: int = 0
    task: asyncio.Task[None] | None = None
    made: float = 0.0

    @property
    def live(self) -> bool:
        return not self.ended and not self.unwanted.is_set()


class KubernetesLauncher:
    """See `Launcher`. Jobs outlive this process: another one that starts adopts them.

    :param pools: by name.
    :param place: where Jobs go, and whose they are.
    :param on_end: told when a Job has ended by itself, as often as it takes until it returns.
    :param on_notice: told once of each condition of an attempt.
    :param hello_seconds: a container that has run so long without its trainer's hello is given up.
    :param relist_seconds: how often all is listed although the watch is quiet.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        pools: Mapping[str, Pool],
        place: Place,
        runs: Runs,
        on_end: Listener,
        on_notice: Noticer,
        hello_seconds: float,
        relist_seconds: float,
    ) -> None:
        self._client = client
        self._pools = dict(pools)
        self._place = place
        self._runs = runs
        self._on_end = on_end
        self._on_notice = on_notice
        self._hello_seconds = hello_seconds
        self._tracked: dict[str, _Tracked] = {}
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._refusals: dict[str, list[str]] = {}
        self._refusals_read = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("dressage.launcher")
        self._jobs = Reflector(client, "jobs", place.selector, seconds=relist_seconds, changed=self._job_changed)
        self._pods = Reflector(client, "pods", place.selector, seconds=relist_seconds, changed=self._pod_changed)
        self.pools: frozenset[str] | None = frozenset(pools)
        self.attempts_per_launch = _ATTEMPTS
        self.placing_seconds = _PLACING_SECONDS

    def cores(self, pool: str) -> int:
        """Cores that a run of the pool may use."""
        return self._pools[pool].usable_cores if pool in self._pools else 1

    async def start(self) -> int:
        """Takes stock of the Jobs that there are and begins to watch; how many are under way.

        :raises FailedPrecondition: when the API server refuses.
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
                    message = f"the Kubernetes API refuses to list Jobs and pods: {error.message}"
                    raise FailedPrecondition(message, reason="CLUSTER_REFUSES") from None
                if time.monotonic() > deadline:
                    raise Unavailable(error.message, reason="CLUSTER_UNAVAILABLE") from None
                self._log.warning("waiting for the API server", error=error.message)
                await asyncio.sleep(_FIRST_RETRY_SECONDS)
        # At once, not when each has been looked at: who asks now whether a run has a Job would make it another one.
        for name, job in self._jobs.items.items():
            if run_of(job) and name not in self._tracked:
                self._track(name, job)
        for task in (self._jobs.run(), self._pods.run(), self._reconcile_all()):
            self._spawn(task)
        return len(self.known())

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        """Creates the Job of a run's attempts from this one on (see `Launcher.submit`)."""
        name = job_name(self._place.instance, launch.run, launch.attempt)
        if name in self._tracked:
            return
        tracked = _Tracked(launch.run, launch.attempt, name, made=time.monotonic())
        self._tracked[name] = tracked
        tracked.task = self._spawn(self._create(tracked, launch))

    def knows(self, run: str, attempt: int) -> bool:
        """Whether the attempt is queued or under way."""
        return any(t.live and t.run == run and t.first <= attempt for t in self._tracked.values())

    def known(self) -> frozenset[str]:
        """Runs that have a Job queued or under way."""
        return frozenset(t.run for t in self._tracked.values() if t.live)

    def said_hello(self, run: str, attempt: int) -> None:
        """Its trainer is there. The database knows, and so does every other replica."""

    async def stop(self, run: str, attempt: int | None = None) -> None:
        """Deletes a run's Jobs; their pods are told to end. Goes on trying while the API server is away."""
        found = [t for t in self._tracked.values() if t.run == run and (attempt is None or t.first <= attempt)]
        deleting = [self._spawn(self._delete(tracked)) for tracked in found if not tracked.ended]
        if deleting:
            await asyncio.wait(deleting, timeout=_STOP_SECONDS)

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        """The ends of the logs of the run's pods, for as long as Kubernetes keeps those (see `Launcher.logs`)."""
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

    async def close(self) -> None:
        """Stops watching; Jobs go on. A task that does not end within half a minute is left behind, and that is logged."""
        deadline = time.monotonic() + _STOP_SECONDS
        while left := [task for task in self._tasks if not task.done()]:
            if time.monotonic() > deadline:
                self._log.error("tasks of the launcher do not end", tasks=len(left))
                break
            for task in left:
                task.cancel()
            # Again if need be: a task may lose its cancellation where it comes together with what it waits for.
            await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        self._client.close()

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[assignment]
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("a task of the launcher failed", exc_info=task.exception())

    # Creating and deleting

    async def _create(self, tracked: _Tracked, launch: Launch) -> None:
        pool = self._pools.get(launch.pool)
        if pool is None:
            message = f"there is no pool {launch.pool!r}; there are {', '.join(sorted(self._pools))}"
            await self._end(tracked, message, reason="POOL_UNKNOWN", remedy="name a pool that there is")
            return
        manifest = job_manifest(launch, pool, self._place)
        wait = _FIRST_RETRY_SECONDS
        while not tracked.unwanted.is_set():
            try:
                created = await self._client.create_job(manifest)
            except ClusterError as error:
                if error.lasting:
                    await self._end(tracked, error.message, reason="JOB_INVALID", remedy=REMEDIES["JOB_INVALID"])
                    return
                await self._tell(tracked, tracked.first, _create_failure(error), error.message)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await tracked.unwanted.wait()
                wait = min(wait * 2, _LONGEST_RETRY_SECONDS)
                continue
            tracked.created, tracked.listed = True, self._jobs.lists
            self._log.info("Job created" if created else "Job exists", job=tracked.name, run=tracked.run)
            self._touch(tracked.name)
            return

    async def _delete(self, tracked: _Tracked) -> None:
        tracked.unwanted.set()
        if tracked.task is not None and not tracked.task.done():
            await asyncio.wait([tracked.task])  # it may be creating the Job just now
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

    async def _end(self, tracked: _Tracked, message: str, *, reason: str, remedy: str) -> None:
        """Ends an attempt for good whose Job never was."""
        tracked.ended = True
        self._tracked.pop(tracked.name, None)
        word = Ended(tracked.run, tracked.first, ExitKind.FAILED, message, final=True, reason=reason, remedy=remedy)
        await self._on_end(word)

    # What the API server tells

    def _job_changed(self, job: Json, gone: bool) -> None:
        if run_of(job):
            self._touch(job["metadata"]["name"])

    def _pod_changed(self, pod: Json, gone: bool) -> None:
        job = (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name")
        if job:
            self._touch(job)

    def _touch(self, name: str) -> None:
        self._dirty.add(name)
        self._wake.set()

    async def _reconcile_all(self) -> None:
        """Looks at each Job of which there is news, and now and then at all of them, as time passes for them too."""
        self._dirty.update(self._jobs.items)
        tick = time.monotonic() + _TICK_SECONDS
        while True:
            with suppress(TimeoutError):
                # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
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
                    # The database may be away: the word is said again at the next tick.
                    self._log.exception("a Job could not be dealt with yet", job=name)

    async def _reconcile(self, name: str) -> None:
        job = self._jobs.items.get(name)
        tracked = self._tracked.get(name)
        if job is None:
            if tracked is not None:
                await self._missing(tracked)
            return
        if not run_of(job):
            return
        if tracked is None:
            tracked = self._track(name, job)
        tracked.created = True
        if tracked.ended or tracked.unwanted.is_set():
            return
        if not tracked.seen:
            tracked.seen = True
            if job["metadata"].get("deletionTimestamp") is None and await self._runs.abandoned(tracked.run):
                self._spawn(self._delete(tracked))
                return
        owned = [pod for pod in self._pods.items.values() if _job_of(pod) == name]
        view = observe(job, owned, await self._refused(tracked, owned))
        await self._act(tracked, view)

    def _track(self, name: str, job: Json) -> _Tracked:
        tracked = _Tracked(run_of(job), first_attempt_of(job), name, created=True, made=time.monotonic())
        self._tracked[name] = tracked
        return tracked

    async def _act(self, tracked: _Tracked, view: View) -> None:
        tracked.attempt = view.attempt
        for notice in view.notices:
            if (notice.attempt, notice.type) not in tracked.told:
                await self._on_notice(notice)
                tracked.told.add((notice.attempt, notice.type))
        if view.ended is not None:
            self._log.info("Job ended", job=tracked.name, run=tracked.run, kind=view.ended.kind.value)
            tracked.ended = True  # before the listener, which may submit the next attempt
            try:
                await self._on_end(view.ended)
            except BaseException:
                tracked.ended = False
                raise
            return
        if view.stage in (Stage.STARTING, Stage.RUNNING) and not tracked.started:
            await self._runs.starting(tracked.run, tracked.first)
            tracked.started = True
        silent = view.since is not None and time.time() - view.since > self._hello_seconds
        if silent and not await self._runs.hello_received(tracked.run, view.attempt):
            await self._silent(tracked, view)

    async def _silent(self, tracked: _Tracked, view: View) -> None:
        self._log.warning("trainer is silent", job=tracked.name, run=tracked.run, attempt=view.attempt)
        message = f"no hello within {self._hello_seconds:g} s of its container's start"
        reason = "TRAINER_SILENT"
        word = Ended(
            tracked.run,
            tracked.first,
            ExitKind.NO_HELLO,
            message,
            last_attempt=view.attempt,
            reason=reason,
            remedy=REMEDIES[reason],
        )
        tracked.unwanted.set()  # before the listener, which may submit the next attempt
        try:
            await self._on_end(word)
        except BaseException:
            tracked.unwanted.clear()
            raise
        self._spawn(self._delete(tracked))

    async def _missing(self, tracked: _Tracked) -> None:
        """A Job that the API server had and has no more, or that we made and no list has shown since."""
        if not tracked.created or (not tracked.seen and self._jobs.lists <= tracked.listed + 1):
            return
        self._tracked.pop(tracked.name, None)
        if tracked.ended or tracked.unwanted.is_set():
            return
        self._log.warning("Job is gone", job=tracked.name, run=tracked.run)
        reason = "JOB_DELETED"
        message = "its Job is gone from the cluster"
        word = Ended(
            tracked.run,
            tracked.first,
            ExitKind.FAILED,
            message,
            last_attempt=tracked.attempt,
            reason=reason,
            remedy=REMEDIES[reason],
        )
        try:
            await self._on_end(word)
        except BaseException:
            self._tracked.setdefault(tracked.name, tracked)
            raise

    async def _refused(self, tracked: _Tracked, pods: list[Json]) -> list[str]:
        """Why a Job has no pod: only events tell. They are read for all Jobs at once, and not often."""
        now = time.monotonic()
        if pods or now - tracked.made < _REFUSAL_AFTER_SECONDS:
            return []
        if now - self._refusals_read > _REFUSAL_EVERY_SECONDS:
            self._refusals_read = now
            with suppress(ClusterError):
                self._refusals = await self._client.refusals()
        return self._refusals.get(tracked.name, [])

    async def _tell(self, tracked: _Tracked, attempt: int, kind: str, message: str) -> None:
        if (attempt, kind) not in tracked.told:
            tracked.told.add((attempt, kind))
            await self._on_notice(Notice(tracked.run, attempt, kind, message, REMEDIES[kind]))


def _job_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name", ""))


def _create_failure(error: ClusterError) -> str:
    if error.status in (401, 403, 404):
        kind = create_refused(error.message)
        return kind if kind == "QUOTA_EXCEEDED" else "JOB_REFUSED"
    return "API_SERVER_UNAVAILABLE"
