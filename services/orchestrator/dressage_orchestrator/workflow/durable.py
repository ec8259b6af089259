"""Workflows on DBOS: one for each session and epoch, named `{session}:{epoch}`.

DBOS is one per process, so this module holds the one `Engine` that the registered workflow function finds. What stops
here goes on when a server starts again on the same database: DBOS recovers its pending workflows, and sessions whose
workflow was never begun (the process died between the row and the start) are started.
"""

from __future__ import annotations

import contextvars
import threading
import time

import structlog
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID
from dbos import error as dbos_errors
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator import metrics
from dressage_orchestrator.database import sessions
from dressage_orchestrator.workflow.flow import WAKE_TOPIC, Engine, Flow
from dressage_orchestrator.workflow.outcome import Interrupted
from dressage_orchestrator.workflow.session import run_session

APPLICATION_VERSION = "1"
"""Of the order of steps: changed only when workflows in flight may be lost; otherwise steps change behind patches."""

_RECOVERY_ATTEMPTS = 1000
_POLL_SECONDS = 0.1
_FORGOTTEN_SECONDS = 20.0
_ACTIVE = frozenset({v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING})


class _Here:
    """The engine of this process and its workflows under way."""

    engine: Engine | None = None
    under_way: set[str] = set()
    lock = threading.Lock()


@DBOS.workflow(name="session", max_recovery_attempts=_RECOVERY_ATTEMPTS)
def session_workflow(session: str, epoch: int) -> str:
    """The workflow of one session in one epoch."""
    engine = _Here.engine
    if engine is None or engine.stopping.is_set():
        raise Interrupted
    key = _workflow_id(session, epoch)
    with _Here.lock:
        _Here.under_way.add(key)
    try:
        with structlog.contextvars.bound_contextvars(session=session):
            return run_session(Flow(engine, session, epoch))
    finally:
        with _Here.lock:
            _Here.under_way.discard(key)


def _workflow_id(session: str, epoch: int) -> str:
    return f"{session}:{epoch}"


class Workflows:
    """Starts, wakes and stops session workflows.

    :param system_database_url: where DBOS keeps what steps gave.
    :param executor_id: of this server; the same after a restart, so that it recovers its own.
    """

    def __init__(self, engine: Engine, *, system_database_url: str, executor_id: str = "local") -> None:
        if _Here.engine is not None:
            raise FailedPrecondition("an orchestrator runs in this process already", reason="ALREADY_RUNNING")
        self._engine = engine
        self._log = structlog.get_logger("dressage.workflows")
        self._config: DBOSConfig = {
            "name": "dressage",
            "system_database_url": system_database_url,
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
        with self._engine.database.begin() as tx:
            active = [(s.name.partition("/")[2], s.epoch) for s in sessions.in_states(tx, _ACTIVE)]
        _Here.engine = self._engine
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
        """Has the workflows of dead executors go on, here or on any living server.

        Moving one is a conditional update, so it may be asked for by all at once and again. What the dead one may yet
        write into a workflow that was moved is refused by DBOS, which knows the workflow's owner.
        """
        metrics.WORKFLOW_RECOVERIES.inc(len(DBOS._recover_pending_workflows(sorted(executors))))

    def start_forgotten(self) -> None:
        """Starts the sessions whose server died between storing them and starting their workflow."""
        with self._engine.database.begin() as tx:
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
        """Starts a session's workflow; one that was started before is left as it is."""
        key = _workflow_id(session, epoch)
        if DBOS.get_workflow_status(key) is not None:
            return
        with SetWorkflowID(key):
            DBOS.start_workflow(session_workflow, session, epoch)

    def wake(self, session: str, why: str) -> None:
        """Has a waiting workflow look again; a hint, so one that is not there is no error."""
        if _Here.engine is not self._engine:
            return
        with self._engine.database.begin() as tx:
            epoch = sessions.get(tx, session).epoch
        try:
            # In a context of its own, so that it is nobody's step, whoever's thread this is.
            contextvars.Context().run(DBOS.send, _workflow_id(session, epoch), why, topic=WAKE_TOPIC)
        except dbos_errors.DBOSNonExistentWorkflowError:
            self._log.debug("nobody to wake", session=session, why=why)

    def close(self, *, seconds: float) -> None:
        """Has the workflows leave at once, unrecorded, and stops DBOS.

        :param seconds: how long they may take.
        """
        self._engine.stopping.set()
        deadline = time.monotonic() + seconds
        woken: set[str] = set()
        while time.monotonic() < deadline:
            with _Here.lock:
                left = set(_Here.under_way)
            if not left:
                break
            for key in left - woken:
                woken.add(key)
                DBOS.send(key, "stopping", topic=WAKE_TOPIC)
            time.sleep(_POLL_SECONDS / 2)
        DBOS.destroy()
        _Here.engine = None
        _Here.under_way = set()
