"""Workflows on DBOS: one for each session and epoch, named `{session}:{epoch}`.

DBOS is a singleton of the process, so this module holds the `Engine` that the registered workflow function uses. Interrupted
workflows continue when a server starts on the same database: DBOS recovers its pending workflows, and sessions whose workflow
was never started (the process died between the row and the start) are started. `reconcile` handles sessions in a running state
whose workflow has ended for any reason: they are resumed a few times, then failed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator

import structlog
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dressage.errors import FailedPrecondition, Unavailable

from dressage_orchestrator import metrics
from dressage_orchestrator.database import queue, workflows
from dressage_orchestrator.database.engine import POOL_SECONDS, POOL_SIZE, Transaction, make_workflow_engine
from dressage_orchestrator.lifecycle.checkpoint_judging import CHECKPOINTS, judge_batch
from dressage_orchestrator.lifecycle.context import Engine, Json, SessionContext
from dressage_orchestrator.lifecycle.loop import run_session
from dressage_orchestrator.lifecycle.outcome import Interrupted
from dressage_orchestrator.lifecycle.registry import Methods

APPLICATION_VERSION = "1"
"""Version of the order of steps.

From the first release on, change steps with DBOS patches: a session whose history is of other steps ends with
`WORKFLOW_HISTORY_MISMATCH`. Where that is not possible, change the version: workflows of another one are not continued, and
`reconcile` begins the next epoch of their sessions."""

# DBOS gives a workflow up after this many recoveries; crashes of servers must not end a session.
_RECOVERY_ATTEMPTS = 1000
_POLL_SECONDS = 0.1
_LIVE_WORKFLOWS = ("PENDING", "ENQUEUED", "DELAYED")


class _Process:
    """Engine, methods and running workflows of this process."""

    engine: Engine | None = None
    methods: Methods = Methods({})
    running: Counter[str] = Counter()
    """Executions of each workflow. A resumed workflow has two until the earlier one, which no longer owns it, writes."""
    held_sessions: set[str] = set()
    """Sessions of earlier servers that stay interrupted."""
    lock = threading.Lock()


@contextlib.contextmanager
def _running(session: str, key: str) -> Iterator[Engine]:
    """Register a workflow as running in this process.

    :raises Interrupted: when the server stops, or the session is held.
    """
    engine = _Process.engine
    if engine is None or engine.stopping.is_set() or session in _Process.held_sessions:
        raise Interrupted
    with _Process.lock:
        _Process.running[key] += 1
    try:
        with structlog.contextvars.bound_contextvars(session=session):
            yield engine
    finally:
        with _Process.lock:
            _Process.running -= Counter([key])


@DBOS.workflow(name="session", max_recovery_attempts=_RECOVERY_ATTEMPTS)
def session_workflow(session: str, epoch: int) -> str:
    """The workflow of one session in one epoch."""
    with _running(session, _workflow_id(session, epoch)) as engine:
        context = SessionContext(engine, session, epoch, children={CHECKPOINTS: checkpoints_workflow})
        with contextlib.closing(context):
            return run_session(context, _Process.methods.of(context.spec))


@DBOS.workflow(name="judge_checkpoints", max_recovery_attempts=_RECOVERY_ATTEMPTS)
def checkpoints_workflow(session: str, epoch: int, batch: Json) -> str:
    """Judge checkpoints of a session during its training."""
    with _running(session, f"{_workflow_id(session, epoch)}:{batch['id']}") as engine:
        try:
            with contextlib.closing(SessionContext(engine, session, epoch)) as context:
                judge_batch(context, batch)
        finally:
            engine.wakeups.wake(session)  # the session's workflow may wait for this child
    return "done"


def _workflow_id(session: str, epoch: int) -> str:
    return f"{session}:{epoch}"


class Workflows:
    """Starts, wakes and stops session workflows.

    :param system_database_url: database in which DBOS records results of steps.
    :param executor_id: id of this server; on SQLite the same after a restart, so that it recovers its workflows.
    """

    def __init__(
        self, engine: Engine, methods: Methods, *, system_database_url: str, executor_id: str = "local"
    ) -> None:
        if _Process.engine is not None:
            raise FailedPrecondition("an orchestrator is already running in this process", reason="ALREADY_RUNNING")
        self._engine = engine
        self._methods = methods
        self._executor = executor_id
        self._idle: set[str] = set()
        self._launched = False
        self._log = structlog.get_logger("dressage.workflows")
        # On SQLite a custom engine, with which DBOS waits until a full disk has space instead of losing a workflow's thread.
        self._workflow_engine = None if engine.database.shared else make_workflow_engine(system_database_url)
        self._config: DBOSConfig = {
            "name": "dressage",
            "system_database_url": system_database_url,
            "system_database_engine": self._workflow_engine,
            # Fixed: DBOS's default is a digest of the source, so that each upgrade would abandon all pending workflows.
            "application_version": APPLICATION_VERSION,
            "executor_id": executor_id,
            "serializer": DBOSPortableJSONSerializer(),
            "run_migrations": not engine.database.shared,  # a shared database was migrated under a lock when it was opened
            "notification_listener_polling_interval_sec": _POLL_SECONDS,
            "log_level": "WARNING",
            "enable_otlp": False,
            # As on SQLite, threads of workflows wait in the pool, so that they leave the interpreter's lock to requests.
            "sys_db_pool_size": POOL_SIZE,
            "db_engine_kwargs": {"pool_timeout": POOL_SECONDS},
        }

    def launch(self) -> None:
        """Start DBOS and resume all active sessions, or hold them. Blocks during migrations of the database."""
        active = workflows.active(self._engine.database)
        if self._engine.settings.hold and not self._engine.database.shared:
            active_sessions = workflows.active(self._engine.database, queued=True)
            _Process.held_sessions, active = {session for session, _ in active_sessions}, []
        if not self._engine.database.shared:
            workflows.end_downtime(self._engine.database, [session for session, _ in active])
        _Process.engine, _Process.methods = self._engine, self._methods
        DBOS(config=self._config)
        DBOS.launch()
        self._launched = True
        if self._engine.database.shared:
            return  # active sessions belong to live servers, or are taken over from expired ones
        for session, epoch in active:
            metrics.WORKFLOW_RECOVERIES.inc()
            self.start(session, epoch)

    def is_held(self, session: str) -> bool:
        """Return whether a session of an earlier server stays interrupted."""
        return session in _Process.held_sessions

    def release(self, session: str) -> bool:
        """Resume a session that is held; return whether it was."""
        with _Process.lock:
            if session not in _Process.held_sessions:
                return False
            _Process.held_sessions.discard(session)
        for active, epoch in workflows.active(self._engine.database):
            if active == session:
                workflows.end_downtime(self._engine.database, [session])
                self._restart(_workflow_id(session, epoch), session, epoch)
        self.admit()
        return True

    def _restart(self, key: str, session: str, epoch: int) -> None:
        if DBOS.get_workflow_status(key) is None:
            self.start(session, epoch)
        else:
            metrics.WORKFLOW_RECOVERIES.inc()
            DBOS.resume_workflow(key)

    def owners(self) -> set[str]:
        """Executors that own pending workflows; none before `launch`."""
        if _Process.engine is not self._engine:
            return set()
        pending = DBOS.list_workflows(status="PENDING", load_input=False, load_output=False)
        return {entry.executor_id for entry in pending if entry.executor_id}

    def take_over(self, executors: set[str]) -> None:
        """Resume the workflows of expired executors on this or any other live server.

        A workflow is moved by a conditional update, so concurrent and repeated calls are safe. DBOS rejects later writes of
        the expired executor, because it records the owner of each workflow.
        """
        pending = DBOS.list_workflows(
            status="PENDING", executor_id=sorted(executors), load_input=False, load_output=False
        )
        workflows.end_downtime(self._engine.database, {entry.workflow_id.partition(":")[0] for entry in pending})
        # After the downtime was counted: the first event of a resumed workflow would end it.
        metrics.WORKFLOW_RECOVERIES.inc(len(DBOS._recover_pending_workflows(sorted(executors))))

    def start_pending(self) -> None:
        """Start sessions whose server died after storing them and before starting their workflow."""
        for session, epoch in workflows.waiting(self._engine.database):
            if not self.is_held(session):
                self.start(session, epoch)

    def enqueue(self, tx: Transaction, session: str) -> list[workflows.Epoch]:
        """Let a PENDING session wait for its admission, and admit those that are next.

        :return: the admitted sessions; the caller starts their workflows after the commit.
        """
        queue.enter(tx, session)
        return self._admit(tx)

    def admit(self) -> None:
        """Start the sessions of the queue for which there is a place."""
        database = self._engine.database
        with database.read() as reading:
            if not queue.anyone_waits(reading):
                return
        with database.begin() as tx:
            admitted = self._admit(tx)
        for session, epoch in admitted:
            self.start(session, epoch)

    def _admit(self, tx: Transaction) -> list[workflows.Epoch]:
        return workflows.admit(tx, self._engine.settings.max_running_sessions, held_sessions=_Process.held_sessions)

    def check_launched(self) -> None:
        """Check that this server runs workflows.

        :raises FailedPrecondition: on a read-only server.
        :raises Unavailable: while the server starts or stops.
        """
        if not self._engine.settings.recover:
            raise FailedPrecondition("this server is read-only; start one with `dressage serve`", reason="READ_ONLY")
        if not self._launched or _Process.engine is not self._engine:
            raise Unavailable("the server starts or stops; repeat the request", reason="SERVER_STARTING")

    def start(self, session: str, epoch: int) -> None:
        """Start a session's workflow; do nothing if it was started before."""
        key = _workflow_id(session, epoch)
        if DBOS.get_workflow_status(key) is not None:
            return
        with SetWorkflowID(key):
            DBOS.start_workflow(session_workflow, session, epoch)

    def delete_history(self, session: str) -> int:
        """Delete what DBOS recorded of a session's workflows; return their number.

        :raises FailedPrecondition: on a read-only server, or while one of them runs.
        """
        self.check_launched()
        prefix = _workflow_id(session, 0)[:-1]
        entries = DBOS.list_workflows(workflow_id_prefix=prefix, load_input=False, load_output=False)
        running = [entry.workflow_id for entry in entries if entry.status in _LIVE_WORKFLOWS]
        if running:
            raise FailedPrecondition(f"workflow {running[0]} has not ended", reason="WORKFLOW_RUNNING")
        if entries:
            DBOS.delete_workflows([entry.workflow_id for entry in entries])
        return len(entries)

    def wake(self, session: str) -> None:
        """Wake the session's workflow if it waits in this process."""
        self._engine.wakeups.wake(session)

    def reconcile(self) -> None:
        """Resume or fail active sessions whose workflow has ended; called periodically.

        This happens when DBOS cannot write its records, or because of an internal error. A workflow whose thread has died in
        this process without a record is resumed as well.
        """
        active = workflows.active(self._engine.database)  # before the workflows, which end after their sessions
        listed = DBOS.list_workflows(status=list(_LIVE_WORKFLOWS), load_input=False, load_output=False)
        live = {entry.workflow_id for entry in listed}
        for session, epoch in active:
            if _workflow_id(session, epoch) in live or self.is_held(session):
                continue
            workflow = DBOS.get_workflow_status(_workflow_id(session, epoch))
            if workflow is not None and workflow.status not in _LIVE_WORKFLOWS:
                self._reopen(session, epoch, workflow.status)
        pending = DBOS.list_workflows(status="PENDING", executor_id=self._executor, load_input=False, load_output=False)
        idle = {
            entry.workflow_id
            for entry in pending
            if not self._runs_here(entry.workflow_id) and not self.is_held(entry.workflow_id.partition(":")[0])
        }
        for entry in pending:
            if entry.app_version not in (None, APPLICATION_VERSION) and not self._runs_here(entry.workflow_id):
                self._log.warning("a workflow of another version is not continued", workflow=entry.workflow_id)
                DBOS.cancel_workflow(entry.workflow_id)  # its session is reopened the next time
                idle.discard(entry.workflow_id)
        for key in sorted(idle & self._idle):  # idle in two calls: it is neither starting nor ending
            self._log.warning("a workflow has no thread; it is resumed", workflow=key)
            DBOS.resume_workflow(key)
        self._idle = idle

    @staticmethod
    def _runs_here(key: str) -> bool:
        with _Process.lock:
            return key in _Process.running

    def _reopen(self, session: str, epoch: int, status: str) -> None:
        """Start the next epoch of a session whose workflow ended early; fail the session after some of them."""
        resumed = workflows.reopen(self._engine.database, session, epoch, status=status)
        self._log.error(
            "a workflow ended before its session", session=session, status=status, resumed=resumed is not None
        )
        if resumed is not None:
            metrics.WORKFLOW_RECOVERIES.inc()
            self.start(session, resumed)

    def close(self, *, seconds: float) -> None:
        """Interrupt all workflows without recording an end, and stop DBOS.

        :param seconds: maximum time to wait for the workflows.
        """
        # Before the waits end: a workflow that one of them releases must find that the server stops.
        self._engine.stopping.set()
        self._engine.wakeups.close()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with _Process.lock:
                if not _Process.running:
                    break
            time.sleep(_POLL_SECONDS / 2)
        DBOS.destroy()
        if self._workflow_engine is not None:
            self._workflow_engine.dispose()
        _Process.engine, _Process.methods = None, Methods({})
        _Process.running, _Process.held_sessions = Counter(), set()
