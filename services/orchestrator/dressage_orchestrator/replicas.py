"""One of several servers on a PostgreSQL: it says that it lives, and takes over from those that no longer do.

Everything is looked at again at each beat, so no message, order or memory matters: workflows and runs of whoever is
not among the living are taken by who looks first, each exactly once (DBOS moves a workflow by one conditional update, a
run is claimed by another), and a server that dies while it takes over leaves the rest to the next look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from dressage_orchestrator.database import executors
from dressage_orchestrator.database.engine import Database, Fenced
from dressage_orchestrator.database.executors import Executor


class Replica:
    """This server among the others.

    :param name: stable over restarts and unlike any other server's: a pod's name.
    :param holders: the executors that workflows under way belong to; empty before this server can take any.
    :param take_over: moves all that belongs to these executors, who are not among the living.
    :param fenced: called once when this server was given up for dead: it must stop.
    :param beat_seconds: between two beats.
    :param lease_seconds: one whose beats stand still for so long is given up.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        holders: Callable[[], set[str]],
        take_over: Callable[[set[str]], None],
        fenced: Callable[[], None],
        beat_seconds: float,
        lease_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._holders = holders
        self._take_over = take_over
        self._fenced = fenced
        self._beat_seconds = beat_seconds
        self._lease_seconds = lease_seconds
        self._monotonic = monotonic
        self._seen: dict[str, tuple[int, float]] = {}
        self._leaving = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = structlog.get_logger("dressage.replicas")
        with database.begin() as tx:
            self.id = executors.register(tx, name)
        database.executor = self.id

    def start(self) -> None:
        """Begins to beat and to look after the others."""
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Gives this server's work to the others at once. Its workflows have stopped before."""
        self._leaving.set()
        if self._thread is not None:
            self._thread.join(self._lease_seconds)
        self._database.executor = None
        try:
            with self._database.begin() as tx:
                executors.give_up(tx, self.id)
        except Exception as error:  # the others will find out by themselves
            self._log.warning("could not say goodbye", error=str(error))

    def look(self) -> bool:
        """One beat; False when this server was given up for dead."""
        # In this order: who holds a workflow registered before that, so if it lives it is among the living read here.
        holders = self._holders()
        try:
            with self._database.begin() as tx:
                if not executors.beat(tx, self.id):
                    return False
                everyone = executors.everyone(tx)
        except Fenced:
            return False
        living = {self.id}
        for other in everyone:
            if other.id != self.id and not other.dead and not self._given_up(other):
                living.add(other.id)
        self._seen = {id_: seen for id_, seen in self._seen.items() if id_ in living}
        gone = holders - living
        if gone:
            self._log.info("taking over", executors=sorted(gone))
            self._take_over(gone)
        self._bury([other.id for other in everyone if other.dead and other.id not in gone])
        return True

    def _given_up(self, other: Executor) -> bool:
        """Whether its beats have stood still for too long, by this machine's own clock, and so it is dead now."""
        now = self._monotonic()
        beats, since = self._seen.get(other.id, (-1, now))
        if beats != other.beats:
            self._seen[other.id] = (other.beats, now)
            return False
        if now - since < self._lease_seconds:
            return False
        with self._database.begin() as tx:
            done = executors.give_up(tx, other.id, beats=other.beats)
        if done:
            self._log.warning("a server is silent and is taken over from", executor=other.id)
        return done

    def _bury(self, ids: list[str]) -> None:
        if ids:
            with self._database.begin() as tx:
                for id_ in ids:
                    executors.bury(tx, id_)

    def _run(self) -> None:
        while not self._leaving.wait(self._beat_seconds):
            try:
                if not self.look():
                    self._log.error("another server took over from this one, which stops", executor=self.id)
                    self._fenced()
                    return
            except Exception as error:
                # A database that is away is away for the others too: nobody's silence counts until it is back.
                self._seen.clear()
                self._log.warning("no beat", error=str(error))
