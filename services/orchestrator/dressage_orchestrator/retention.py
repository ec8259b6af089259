"""Removes what the retention settings no longer keep: of the database, the artifact store, DBOS and the trainers' logs.

Each removal is repeatable and ends with its rows, so that a crash in between is continued by the next run. A session is removed
only after it was claimed, from when on it cannot be undeleted. Artifacts stay while a message of a kept session or benchmark
contains a key of them, and where `evidence` cannot exclude that the database or the clock is wrong.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
from dressage.api.v1 import maintenance_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.errors import DressageError

from dressage_orchestrator import evidence, resource_names
from dressage_orchestrator.clock import DAY, micros
from dressage_orchestrator.database import benchmarks, executors, retention, sessions
from dressage_orchestrator.database.engine import Database, Transaction
from dressage_orchestrator.launch.protocol import Launcher
from dressage_orchestrator.lifecycle.workflows import Workflows
from dressage_orchestrator.settings import Settings

_LEASE = "retention"
_CLOCK_SECONDS = 3600.0
_PAGE = 1000
_BATCH = 100
_FOLDER = "sessions/"
_SESSION = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")
_INTERRUPTED_DAYS = 1.0
"""Age of temporary files that no write can need any more."""


@dataclass(frozen=True)
class Policy:
    """How many days what is kept; see the settings ``retention_*``.

    :param ended: None: ended sessions are never deleted.
    :param gap: days without a server after which the clock counts as set forward; None: any number.
    """

    deleted: float
    ended: float | None
    history: float
    events: float
    requests: float
    unreferenced: float
    gap: float | None = None

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """Read the policy from the settings."""
        return cls(
            deleted=settings.retention_deleted_days,
            ended=settings.retention_ended_days or None,
            history=settings.retention_history_days,
            events=settings.retention_events_days,
            requests=settings.retention_request_days,
            unreferenced=settings.retention_unreferenced_days,
            gap=settings.retention_gap_days or None,
        )


class Retention:
    """Collects garbage.

    :param launcher: returns the launcher, which keeps logs of trainers.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        database: Database,
        store: ArtifactStore,
        workflows: Workflows,
        launcher: Callable[[], Launcher | None],
    ) -> None:
        self._policy = policy
        self._database = database
        self._store = store
        self._workflows = workflows
        self._launcher = launcher
        self._log = structlog.get_logger("dressage.retention")

    async def run(self, *, executor: str, interval: float, poll: float) -> None:
        """Collect garbage periodically, if this server holds the lease.

        :param interval: seconds between two collections.
        :param poll: seconds between two attempts to begin one.
        """
        while True:
            try:
                if await asyncio.to_thread(self.begin, executor, interval):
                    await self._collect_all()
            except DressageError as error:
                self._log.warning("could not collect garbage; the next collection continues", error=error.message)
            except Exception:
                self._log.exception("could not collect garbage")
            await asyncio.sleep(poll)

    async def _collect_all(self) -> None:
        parts = self.collect(validate_only=False)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            if part.refusal:
                self._log.warning("not removed", name=part.name, artifacts=part.artifacts, reason=part.refusal)
                continue
            self._log.info(
                "removed", kind=pb.GarbageKind.Name(part.kind), name=part.name, artifacts=part.artifacts, rows=part.rows
            )

    def begin(self, executor: str, interval: float) -> bool:
        """Begin a periodic collection, if it is due and no other server collects."""
        self.record_clock()
        with self._database.begin() as tx:
            return executors.begin_turn(tx, _LEASE, executor, seconds=interval)

    def record_clock(self) -> str:
        """Record the current time, unless the clock is not trusted; return why it is not."""
        with self._database.begin() as tx:
            problem = evidence.clock_problem(tx, self._policy.gap)
            if not problem:
                evidence.record_clock(tx)
        return problem

    async def follow_clock(self) -> None:
        """Record the time each hour, also in servers that collect nothing by themselves, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.record_clock)
            except DressageError as error:
                self._log.warning("could not record the time", error=error.message)
            await asyncio.sleep(_CLOCK_SECONDS)

    def collect(self, *, validate_only: bool, force: bool = False) -> Iterator[pb.CollectGarbageResponse]:
        """Remove garbage, and yield each part once it is removed.

        A failure of one part does not prevent the others.

        :param validate_only: remove nothing, and yield what would be removed.
        :param force: remove also what would be refused because the database or the clock may be wrong.
        :raises DressageError: at the end, the first failure.
        """
        failures: list[DressageError] = []
        if not validate_only:
            self._workflows.check_launched()
        with self._database.read() as tx:
            problem = evidence.clock_problem(tx, self._policy.gap)
        if problem and not force:
            yield pb.CollectGarbageResponse(refusal=problem)
            return
        if problem and not validate_only:
            with self._database.begin() as tx:
                evidence.record_clock(tx)
        for parts in (
            self._ended_sessions,
            self._deleted_sessions,
            self._history,
            self._events,
            # Who accepts the clock has not seen what is wrong with the artifacts yet.
            partial(self._artifacts, force=force and not problem),
            self._benchmarks,
            self._request_ids,
            self._remains,
        ):
            yield from parts(validate_only, failures)
        if failures:
            raise failures[0]

    @contextmanager
    def _collect_failure(self, failures: list[DressageError], name: str) -> Iterator[None]:
        try:
            yield
        except DressageError as error:
            self._log.warning("could not remove", name=name, error=error.message)
            failures.append(error)

    def _ended_sessions(self, dry: bool, failures: list[DressageError]) -> Iterator[pb.CollectGarbageResponse]:
        """Delete sessions that ended long ago, as `DeleteSession` does."""
        if self._policy.ended is None:
            return
        moment = self._before(self._policy.ended)
        for ids in self._batches(lambda tx, after: retention.kept_before(tx, moment, after=after)):
            for session in sorted(self._without_references(frozenset(ids))):
                with self._collect_failure(failures, session):
                    if not dry and not self._delete_ended(session, moment):
                        continue
                    yield _part(pb.GARBAGE_KIND_ENDED_SESSION, session)

    def _delete_ended(self, session: str, moment: int) -> bool:
        with self._database.begin() as tx:
            tx.lock(resource_names.session_name(session))
            current = sessions.get(tx, session)
            ended = current.state in sessions.ENDED and current.end_time.ToMicroseconds() <= moment
            if ended and not current.HasField("delete_time"):
                sessions.delete(tx, session, grace_seconds=self._policy.deleted * DAY)
            return ended

    def _deleted_sessions(self, dry: bool, failures: list[DressageError]) -> Iterator[pb.CollectGarbageResponse]:
        """Remove deleted sessions whose grace period has ended."""
        for batch in self._deleted_batches():
            due = frozenset(resource_names.parse_session(entry.name) for entry in batch if self._is_due(entry))
            for session in sorted(self._without_references(due)):
                with self._collect_failure(failures, session):
                    part = self._remove(session, dry=dry)
                    if part is not None:
                        yield part

    def _deleted_batches(self) -> Iterator[list[v1.Session]]:
        after = ""
        while True:
            with self._database.read() as tx:
                batch = retention.deleted_sessions(tx, after=after)
            if not batch:
                return
            yield batch
            after = resource_names.parse_session(batch[-1].name)

    def _is_due(self, session: v1.Session) -> bool:
        return session.HasField("purge_time") and session.purge_time.ToMicroseconds() <= micros(self._database.clock())

    def _remove(self, session: str, *, dry: bool) -> pb.CollectGarbageResponse | None:
        part = _part(pb.GARBAGE_KIND_DELETED_SESSION, session)
        prefix = f"{resource_names.session_name(session)}/"
        if dry:
            part.artifacts, part.bytes, *_ = self._measure(prefix)
            return part
        with self._database.begin() as tx:
            if not retention.claim(tx, session, due=self._is_due):
                return None  # undeleted meanwhile
            runs = retention.run_names(tx, session)
        self._workflows.delete_history(session)
        part.artifacts, part.bytes, *_ = self._measure(prefix)
        self._store.delete_prefix(prefix)
        self._delete_logs(runs)
        with self._database.begin() as tx:
            part.rows = retention.delete_session(tx, session)
        return part

    def _history(self, dry: bool, failures: list[DressageError]) -> Iterator[pb.CollectGarbageResponse]:
        """Remove what only a running session needs."""
        moment = self._before(self._policy.history)

        def remove(session: str) -> int:
            self._workflows.delete_history(session)
            with self._database.read() as tx:
                runs = retention.run_names(tx, session)
            self._delete_logs(runs)
            with self._database.begin() as tx:
                return retention.delete_history(tx, session, before=moment)

        yield from self._parts_of_ended(
            pb.GARBAGE_KIND_HISTORY, retention.Removal.HISTORY, moment, remove, dry, failures
        )

    def _events(self, dry: bool, failures: list[DressageError]) -> Iterator[pb.CollectGarbageResponse]:
        moment = self._before(self._policy.events)

        def remove(session: str) -> int:
            with self._database.begin() as tx:
                return retention.delete_events(tx, session, before=moment)

        yield from self._parts_of_ended(pb.GARBAGE_KIND_EVENTS, retention.Removal.EVENTS, moment, remove, dry, failures)

    def _parts_of_ended(
        self,
        kind: pb.GarbageKind.ValueType,
        lacking: retention.Removal,
        moment: int,
        remove: Callable[[str], int],
        dry: bool,
        failures: list[DressageError],
    ) -> Iterator[pb.CollectGarbageResponse]:
        """Remove a part of each session that ended before a time and still has it."""
        for ids in self._batches(lambda tx, after: retention.ended_before(tx, moment, lacking=lacking, after=after)):
            for session in ids:
                with self._collect_failure(failures, session):
                    part = _part(kind, session)
                    part.rows = 0 if dry else remove(session)
                    yield part

    def _artifacts(
        self, dry: bool, failures: list[DressageError], *, force: bool
    ) -> Iterator[pb.CollectGarbageResponse]:
        """Remove artifacts of sessions that do not exist, if they are old and nothing refers to them."""
        oldest = self._moment(self._policy.unreferenced)
        names = [name for name in self._store.folders(_FOLDER) if _SESSION.match(name)]
        missing: list[str] = []
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            missing += sorted(frozenset(batch) - self._existing(batch))
        if not missing:
            return
        references = self._references(frozenset())
        with self._database.read() as tx:
            database = evidence.Evidence.of(tx, sessions=len(names), missing=len(missing))
        for session in missing:
            with self._collect_failure(failures, session):
                prefix = f"{_FOLDER}{session}/"
                part = _part(pb.GARBAGE_KIND_ARTIFACTS, session)
                part.artifacts, part.bytes, first, newest = self._measure(prefix)
                if session in references or newest >= oldest or not part.artifacts or self._existing([session]):
                    continue
                part.refusal = "" if force else database.problem(first)
                if not dry and not part.refusal:
                    self._store.delete_prefix(prefix)
                yield part

    def _benchmarks(self, dry: bool, failures: list[DressageError]) -> Iterator[pb.CollectGarbageResponse]:
        with self._database.read() as tx:
            names = retention.benchmarks_without_sessions(tx, self._before(self._policy.deleted))
        for name in names:
            with self._collect_failure(failures, name):
                part = pb.CollectGarbageResponse(kind=pb.GARBAGE_KIND_BENCHMARK, name=name)
                if not dry:
                    with self._database.begin() as tx:
                        part.rows = retention.delete_benchmark(tx, name)
                yield part

    def _request_ids(self, dry: bool, failures: list[DressageError]) -> Iterator[pb.CollectGarbageResponse]:
        moment = self._before(self._policy.requests)
        part = pb.CollectGarbageResponse(kind=pb.GARBAGE_KIND_REQUEST_IDS)
        with self._database.read() as tx:
            pending = benchmarks.pending(tx)
            part.rows = retention.count_request_ids(tx, moment, pending)
        if not dry:
            with self._database.begin() as tx:
                part.rows = retention.delete_request_ids(tx, moment, benchmarks.pending(tx))
        if part.rows:
            yield part

    def _remains(self, dry: bool, failures: list[DressageError]) -> Iterator[pb.CollectGarbageResponse]:
        if dry:
            return  # they are few, and counting them takes as long as their removal
        with self._collect_failure(failures, ""):
            # Ages of files are those of the machine's clock.
            count = self._store.delete_remains(datetime.now(tz=UTC) - timedelta(days=_INTERRUPTED_DAYS))
            if count:
                yield pb.CollectGarbageResponse(kind=pb.GARBAGE_KIND_INTERRUPTED_WRITES, artifacts=count)

    def _batches(self, query: Callable[[Transaction, str], list[str]]) -> Iterator[list[str]]:
        """Yield batches of ids in order; what could not be removed is not tried again."""
        after = ""
        while True:
            with self._database.read() as tx:
                ids = query(tx, after)  # type: ignore[arg-type]
            if not ids:
                return
            yield ids
            after = ids[-1]

    def _without_references(self, due: frozenset[str]) -> frozenset[str]:
        """Return those of the sessions to which nothing refers that stays; what stays may refer to further ones."""
        while due and (references := due & self._references(due)):
            due -= references
        return due

    def _references(self, without: frozenset[str]) -> set[str]:
        with self._database.read() as tx:
            return retention.referenced_sessions(tx, without=without)

    def _existing(self, ids: Sequence[str]) -> set[str]:
        with self._database.read() as tx:
            return retention.existing(tx, ids)

    def _delete_logs(self, runs: Sequence[str]) -> None:
        launcher = self._launcher()
        if launcher is not None:
            for run in runs:
                launcher.delete_logs(run)

    def _measure(self, prefix: str) -> tuple[int, int, datetime, datetime]:
        """Return the number of artifacts with a prefix, their size in bytes, and when the first and the newest were written."""
        count, size, after = 0, 0, ""
        first, newest = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
        while page := self._store.page(prefix, after=after, limit=_PAGE):
            count, size, after = count + len(page), size + sum(info.size for info in page), page[-1].key
            first = min(first, *(info.modified for info in page))
            newest = max(newest, *(info.modified for info in page))
        return count, size, first, newest

    def _moment(self, days: float) -> datetime:
        return self._database.clock() - timedelta(days=days)

    def _before(self, days: float) -> int:
        return micros(self._moment(days))


def _part(kind: pb.GarbageKind.ValueType, session: str) -> pb.CollectGarbageResponse:
    return pb.CollectGarbageResponse(kind=kind, name=resource_names.session_name(session))
