"""Heartbeats and takeover among the servers that share a PostgreSQL database.

Each heartbeat evaluates the whole state again, so no message, order or memory is required. Workflows and runs of expired
servers are taken over by the first server that finds them, each exactly once: DBOS moves a workflow by one conditional update,
and a run is claimed by another. If a server dies during a takeover, the rest is taken over at a later heartbeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from dressage_orchestrator.database import executors
from dressage_orchestrator.database.engine import Database, ExecutorFenced
from dressage_orchestrator.database.executors import Executor


class Replica:
    """This server among the replicas.

    :param name: stable over restarts and unique among the servers, for example the name of the pod.
    :param owners: returns the executors that own pending workflows; empty before this server can take any over.
    :param take_over: moves all work of these expired executors.
    :param fenced: called once when another server has expired this one, which must stop.
    :param heartbeat_seconds: interval of heartbeats.
    :param lease_seconds: a server whose heartbeat counter has not changed for this long is expired.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        owners: Callable[[], set[str]],
        take_over: Callable[[set[str]], None],
        fenced: Callable[[], None],
        heartbeat_seconds: float,
        lease_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._owners = owners
        self._take_over = take_over
        self._fenced = fenced
        self._heartbeat_seconds = heartbeat_seconds
        self._lease_seconds = lease_seconds
        self._monotonic = monotonic
        self._last_heartbeats: dict[str, tuple[int, float]] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = structlog.get_logger("dressage.replicas")
        with database.begin() as tx:
            self.id = executors.register(tx, name)
        database.executor = self.id

    def start(self) -> None:
        """Start sending heartbeats and watching the other servers."""
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Release this server's work to the others at once. Call it after its workflows have stopped."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._lease_seconds)
        self._database.executor = None
        try:
            with self._database.begin() as tx:
                executors.expire(tx, self.id)
        except Exception as error:  # the lease expires without it
            self._log.warning("could not release the lease", error=str(error))

    def heartbeat(self) -> bool:
        """Send one heartbeat, and take over from expired servers.

        :return: False when this server has been expired.
        """
        # Owners are read first: an executor registers before it owns a workflow, so the list below contains each live owner.
        owners = self._owners()
        try:
            with self._database.begin() as tx:
                if not executors.heartbeat(tx, self.id):
                    return False
                registered = executors.list_all(tx)
        except ExecutorFenced:
            return False
        alive = {self.id}
        for other in registered:
            if other.id != self.id and not other.expired and not self._expire_if_due(other):
                alive.add(other.id)
        self._last_heartbeats = {id_: last for id_, last in self._last_heartbeats.items() if id_ in alive}
        orphaned = owners - alive
        if orphaned:
            self._log.info("taking over", executors=sorted(orphaned))
            self._take_over(orphaned)
        self._delete_expired([other.id for other in registered if other.expired and other.id not in orphaned])
        return True

    def _expire_if_due(self, other: Executor) -> bool:
        """Expire a server whose counter has not changed during the lease, measured by this machine's clock."""
        now = self._monotonic()
        heartbeats, since = self._last_heartbeats.get(other.id, (-1, now))
        if heartbeats != other.heartbeats:
            self._last_heartbeats[other.id] = (other.heartbeats, now)
            return False
        if now - since < self._lease_seconds:
            return False
        with self._database.begin() as tx:
            expired = executors.expire(tx, other.id, heartbeats=other.heartbeats)
        if expired:
            self._log.warning("lease of a server expired", executor=other.id)
        return expired

    def _delete_expired(self, ids: list[str]) -> None:
        if ids:
            with self._database.begin() as tx:
                for id_ in ids:
                    executors.delete_expired(tx, id_)

    def _run(self) -> None:
        while not self._stopping.wait(self._heartbeat_seconds):
            try:
                if not self.heartbeat():
                    self._log.error("another server has taken over; this server stops", executor=self.id)
                    self._fenced()
                    return
            except Exception as error:
                # During an outage of the database no server can send heartbeats, so none may be expired because of it.
                self._last_heartbeats.clear()
                self._log.warning("heartbeat failed", error=str(error))
