"""Workflows on DBOS: one for each session and epoch, named `{session}:{epoch}`.

DBOS is one per process, so this module holds the one `Engine` that the registered workflow function finds. What stops
here continues when a server starts again on the same database: DBOS recovers its pending workflows, and sessions
whose workflow was never begun (the process died between the row and the start) are started. `reconcile` sees to
sessions whose row says that they run while their workflow has ended, for whatever reason: they are resumed a few
times, then closed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import structlog
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator import metrics, names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import effects, runs, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.workflow_engine import make_workflow_engine
from dressage_orchestrator.lifecycle.checkpoint_judging import CHECKPOINTS, judge_batch
from dressage_orchestrator.lifecycle.context import Engine, Json, SessionContext
from dressage_orchestrator.lifecycle.loop import run_session
from dressage_orchestrator.lifecycle.outcome import Interrupted
from dressage_orchestrator.lifecycle.registry import Methods

APPLICATION_VERSION = "2"
"""Of the order of steps: changed only when workflows in flight may be lost; otherwise steps change behind patches."""

_RECOVERY_ATTEMPTS = 1000
_POLL_SECONDS = 0.1
_FORGOTTEN_SECONDS = 20.0
_ACTIVE = frozenset({v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING})
_LIVE_WORKFLOWS = ("PENDING", "ENQUEUED", "DELAYED")
_MAX_RESUMES = 3
"""Times that `reconcile` resumes a session before it closes it."""


class _Here:
    """The engine of this process, its methods, and its workflows under way."""

    engine: Engine | None = None
    methods: Methods = Methods({})
    under_way: set[str] = set()
    lock = threading.Lock()


@contextlib.contextmanager
def _under_way(session: str, key: str) -> Iterator[Engine]:
    """Counts a workflow of this process while it runs.

    :raises Interrupted: when the server stops.
    """
    engine = _Here.engine
    if engine is None or engine.stopping.is_set():
        raise Interrupted
    with _Here.lock:
        _Here.under_way.add(key)
    try:
        with structlog.contextvars.bound_contextvars(session=session):
            yield engine
    finally:
        with _Here.lock:
            _Here.under_way.discard(key)


@DBOS.workflow(name="session", max_recovery_attempts=_RECOVERY_ATTEMPTS)
def session_workflow(session: str, epoch: int) -> str:
    """The workflow of one session in one epoch."""
    with _under_way(session, _workflow_id(session, epoch)) as engine:
        context = SessionContext(engine, session, epoch, children={CHECKPOINTS: checkpoints_workflow})
        with contextlib.closing(context):
            return run_session(context, _Here.methods.of(context.spec))


@DBOS.workflow(name="judge_checkpoints", max_recovery_attempts=_RECOVERY_ATTEMPTS)
def checkpoints_workflow(session: str, epoch: int, batch: Json) -> str:
    """Judges checkpoints of a session's training while it runs."""
    with _under_way(session, f"{_workflow_id(session, epoch)}:{batch['id']}") as engine:
        with contextlib.closing(SessionContext(engine, session, epoch)) as context:
            judge_batch(context, batch)
        engine.wakeups.wake(session)  # its workflow may wait for this one
    return "done"


def _workflow_id(session: str, epoch: int) -> str:
    return f"{session}:{epoch}"


class Workflows:
    """Starts, wakes and stops session workflows.

    :param system_database_url: where DBOS keeps what steps gave.
    :param executor_id: of this server; the same after a restart, so that it recovers its own.
    """

    def __init__(
        self, engine: Engine, methods: Methods, *, system_database_url: str, executor_id: str = "local"
    ) -> None:
        if _Here.engine is not None:
            raise FailedPrecondition("an orchestrator runs in this process already", reason="ALREADY_RUNNING")
        self._engine = engine
        self._methods = methods
        self._executor = executor_id
        self._idle: set[str] = set()
        self._log = structlog.get_logger("dressage.workflows")
        # On SQLite an engine of our own, with which DBOS waits out a full disk instead of losing a workflow's thread.
        self._workflow_engine = None if engine.database.shared else make_workflow_engine(system_database_url)
        self._config: DBOSConfig = {
            "name": "dressage",
            "system_database_url": system_database_url,
            "system_database_engine": self._workflow_engine,
            "application_version": APPLICATION_VERSION,
            "executor_id": executor_id,
            "serializer": DBOSPortableJSONSerializer(),
            "run_migrations": not engine.database.shared,  # made under our lock, when the database was opened
            "notification_listener_polling_interval_sec": _POLL_SECONDS,
            "log_level": "WARNING",
            "enable_otlp": False,
        }

    def launch(self) -> None:
        """Begins; takes up every session that was under way. Blocks for the database's migrations."""
        with self._engine.database.read() as tx:
            active = [(s.name.partition("/")[2], s.epoch) for s in sessions.in_states(tx, _ACTIVE)]
        _Here.engine, _Here.methods = self._engine, self._methods
        DBOS(config=self._config)
        DBOS.launch()
        if self._engine.database.shared:
            return  # what is under way is others', or a dead one's and taken over as such
        for session, epoch in active:
            metrics.WORKFLOW_RECOVERIES.inc()
            self.start(session, epoch)

    def holders(self) -> set[str]:
        """The executors that workflows under way belong to; none before `launch`."""
        if _Here.engine is not self._engine:
            return set()
        pending = DBOS.list_workflows(status="PENDING", load_input=False, load_output=False)
        return {entry.executor_id for entry in pending if entry.executor_id}

    def take_over(self, executors: set[str]) -> None:
        """Has the workflows of dead executors continue, here or on any living server.

        Moving one is a conditional update, so it may be asked for by all at once and again. What the dead one may yet
        write into a workflow that was moved is refused by DBOS, which knows the workflow's owner.
        """
        metrics.WORKFLOW_RECOVERIES.inc(len(DBOS._recover_pending_workflows(sorted(executors))))

    def start_forgotten(self) -> None:
        """Starts the sessions whose server died between storing them and starting their workflow."""
        with self._engine.database.read() as tx:
            oldest = tx.now.timestamp() - _FORGOTTEN_SECONDS
            waiting = [
                (session.name.partition("/")[2], session.epoch)
                for session in sessions.in_states(tx, frozenset({v1.SESSION_STATE_PENDING}))
                if session.update_time.ToMicroseconds() / 1e6 < oldest
            ]
        for session, epoch in waiting:
            self.start(session, epoch)

    def check_launched(self) -> None:
        """Refuses what needs workflows where none run.

        :raises FailedPrecondition: on a server that was started without them.
        """
        if _Here.engine is not self._engine:
            raise FailedPrecondition("this server only reads; start one with `dressage serve`", reason="READ_ONLY")

    def start(self, session: str, epoch: int) -> None:
        """Starts a session's workflow; one that was started before stays as it is."""
        key = _workflow_id(session, epoch)
        if DBOS.get_workflow_status(key) is not None:
            return
        with SetWorkflowID(key):
            DBOS.start_workflow(session_workflow, session, epoch)

    def wake(self, session: str) -> None:
        """Has a waiting workflow look again, at once if it runs here."""
        self._engine.wakeups.wake(session)

    def reconcile(self) -> None:
        """Resumes or closes sessions whose row says that they run while their workflow has ended; called now and then.

        A workflow ends so when its own records cannot be written, or by a fault of ours. One whose thread has died
        here without a record is taken up again.
        """
        with self._engine.database.read() as tx:
            active = [(found.name.partition("/")[2], found.epoch) for found in sessions.in_states(tx, _ACTIVE)]
        for session, epoch in active:
            found = DBOS.get_workflow_status(_workflow_id(session, epoch))
            if found is not None and found.status not in _LIVE_WORKFLOWS:
                self._reopen(session, epoch, found.status)
        pending = DBOS.list_workflows(status="PENDING", executor_id=self._executor, load_input=False, load_output=False)
        idle = {entry.workflow_id for entry in pending if not self._runs_here(entry.workflow_id)}
        for key in sorted(idle & self._idle):  # seen twice, it has neither just begun nor just ended
            self._log.warning("a workflow has no thread; it is taken up again", workflow=key)
            DBOS.resume_workflow(key)
        self._idle = idle

    @staticmethod
    def _runs_here(key: str) -> bool:
        with _Here.lock:
            return key in _Here.under_way

    def _reopen(self, session: str, epoch: int, status: str) -> None:
        """Starts the next epoch of a session whose workflow ended before it; after some of them, closes it instead."""

        def write(tx: Transaction) -> int | None:
            tx.lock(names.session_name(session))
            found = sessions.get(tx, session)
            if found.epoch != epoch or found.state not in _ACTIVE:
                return None  # it ended in the meantime, or another server was first
            count = sum(effects.known(tx, session, f"reconciled/{number}") for number in range(_MAX_RESUMES))
            if count == _MAX_RESUMES:
                _close(tx, session, status)
                return None
            effects.first_time(tx, session, f"reconciled/{count}")
            sessions.change(tx, session, _next_epoch)
            return epoch + 1

        with self._engine.database.begin() as tx:
            resumed = write(tx)
        self._log.error(
            "a workflow ended before its session", session=session, status=status, resumed=resumed is not None
        )
        if resumed is not None:
            metrics.WORKFLOW_RECOVERIES.inc()
            self.start(session, resumed)

    def close(self, *, seconds: float) -> None:
        """Has the workflows leave at once, unrecorded, and stops DBOS.

        :param seconds: how long they may take.
        """
        self._engine.stopping.set()
        self._engine.wakeups.close()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with _Here.lock:
                if not _Here.under_way:
                    break
            time.sleep(_POLL_SECONDS / 2)
        DBOS.destroy()
        if self._workflow_engine is not None:
            self._workflow_engine.dispose()
        _Here.engine, _Here.methods = None, Methods({})
        _Here.under_way = set()


def _next_epoch(session: v1.Session) -> None:
    session.epoch += 1
    session.state = v1.SESSION_STATE_PENDING


def _close(tx: Transaction, session: str, status: str) -> None:
    message = (
        f"its workflow ended {_MAX_RESUMES + 1} times before the session did ({status.lower()}); see the server log"
    )

    def fail(found: v1.Session) -> None:
        found.state, found.state_reason = v1.SESSION_STATE_FAILED, message
        found.failure.CopyFrom(v1.Failure(reason="WORKFLOW_ENDED", message=message, remedy="dressage sessions resume"))
        found.end_time.CopyFrom(timestamp(tx.now))

    for row in runs.live(tx, session):
        runs.end(tx, row.run.name, v1.RUN_STATE_CANCELLED)
    sessions.change(tx, session, fail)
