"""Faults, and schedules of them that a seed determines."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.installation import SERVICES, Installation
from tests.chaos.sessions import Provider

SANDBOX = "sandbox"
"""Any process below a trainer, the judge or the renderer."""
_WAIT_FOR_CHILD_SECONDS = 4.0
_REPLY = re.compile(r"/\d+-\d+\.json$")
_IDLE = {"parameters": ("judge", "renderer"), "program": ("judge", "renderer"), "code": ("renderer",), "reward": ()}
"""Services that a session of a method calls seldom or never; they are killed seldom."""


@dataclass(frozen=True)
class Fault:
    """A fault of a schedule.

    :param at: when, as a share of the events of an undisturbed session.
    :param delay: seconds after that event.
    :param kind: kill, term, disk, store, database, clock, cut, delay or duplicate.
    :param target: a process kind, disk, mode of the store, or link.
    :param seconds: how long it lasts, or the clock's offset.
    """

    at: float
    delay: float
    kind: str
    target: str
    seconds: float


def schedule(seed: int, method: str, running: Installation, *, kills: int) -> list[Fault]:
    """Return the faults of a session, in order: so many kills, at half as many moments, and two of other kinds."""
    rng = random.Random(f"{seed} {method}")
    services = [name for name in SERVICES for _ in range(1 if name in _IDLE[method] else 4)]
    targets = [*services, *["trainer"] * 4, *[SANDBOX] * 4]
    moments = [(rng.uniform(0, 0.97), rng.uniform(0, 1)) for _ in range((kills + 1) // 2)]
    faults = [Fault(*rng.choice(moments), "kill", rng.choice(targets), rng.uniform(0, 0.5)) for _ in range(kills)]
    kinds = ["term", "cut", "delay", "duplicate"]
    kinds += ["disk"] if running.disks else []
    kinds += ["store", "store", "database"] if running.kind == "postgres" else []
    kinds += ["clock"] if running.clock else []
    faults += [_other(rng, kind, services, running) for kind in rng.sample(kinds, 2)]
    return sorted(faults, key=lambda fault: fault.at)


def _other(rng: random.Random, kind: str, services: list[str], running: Installation) -> Fault:
    at, delay, seconds = rng.uniform(0, 0.97), rng.uniform(0, 1), rng.uniform(0.5, 3)
    match kind:
        case "term":
            return Fault(at, delay, kind, rng.choice([*services, "trainer"]), seconds)
        case "disk":
            return Fault(at, delay, kind, rng.choice(sorted(running.disks)), seconds)
        case "store":
            return Fault(at, delay, kind, rng.choice(["busy", "absent", "slow"]), seconds)
        case "database":
            return Fault(at, delay, kind, "postgres", seconds)
        case "clock":
            # A store refuses requests whose time differs from its own by a quarter of an hour.
            furthest = 600 if running.kind == "postgres" else 7200
            return Fault(at, delay, kind, "services", round(rng.uniform(-furthest, furthest)))
        case _:
            links = [name for name in running.links if name != "services>store"]
            return Fault(at, delay, kind, rng.choice(links), seconds)


class Disturber:
    """Applies faults to an installation.

    :param session: the session's id, whose journal states which requests were not journalled when llm-agent was killed.
    """

    def __init__(self, running: Installation, provider: Provider, session: str, *, seed: int) -> None:
        self._running = running
        self._provider = provider
        self._session = session
        self._rng = random.Random(seed)
        self.applied: list[dict[str, Any]] = []
        self.repeats = 0
        """Requests that may come again: those that llm-agent had sent and not journalled when it was killed."""

    def apply(self, faults: Sequence[Fault]) -> None:
        """Cause the faults of one moment, end them, and start what they ended."""
        for fault in faults:
            entry: dict[str, Any] = {"kind": fault.kind, "target": fault.target, "seconds": round(fault.seconds, 2)}
            action: Callable[[Fault, dict[str, Any]], None] = getattr(self, f"_{fault.kind}")
            action(fault, entry)
            self.applied.append(entry)
        self._running.wait_until_up()

    def _kill(self, fault: Fault, entry: dict[str, Any]) -> None:
        target = fault.target
        if target not in SERVICES and not self._kill_child(target, entry):
            entry["target"] = target = self._rng.choice(SERVICES)  # there is no such process
        if target in SERVICES:
            self._running.start(target)  # it may have been killed at the same moment, and dies while it starts
            self._running.kill(target)
            if target == "llm_agent":
                self._note_lost()
            time.sleep(fault.seconds)

    def _kill_child(self, target: str, entry: dict[str, Any], number: int = signal.SIGKILL) -> bool:
        deadline = time.monotonic() + _WAIT_FOR_CHILD_SECONDS
        while True:
            processes = self._running.children()
            kinds = sorted(kind for kind in processes if (kind == target or (target == SANDBOX and kind != "trainer")))
            if kinds:
                break
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        entry["target"] = kind = self._rng.choice(kinds)
        with contextlib.suppress(psutil.Error):
            self._rng.choice(processes[kind]).send_signal(number)
        return True

    def _note_lost(self) -> None:
        entries = self._running.store.list(f"sessions/{self._session}/llm/")
        journalled = sum(bool(_REPLY.search(entry.key)) for entry in entries)
        self.repeats = max(self.repeats, self._provider.received() - journalled)

    def _term(self, fault: Fault, entry: dict[str, Any]) -> None:
        if fault.target not in SERVICES:
            entry["target"] = fault.target if self._kill_child(fault.target, entry, signal.SIGTERM) else "none"
            return
        self._running.wait_until_up()
        self._running.terminate(fault.target)
        if fault.target == "llm_agent":
            self._note_lost()

    def _disk(self, fault: Fault, entry: dict[str, Any]) -> None:
        with filled(self._running.disks[fault.target]):
            time.sleep(fault.seconds)

    def _store(self, fault: Fault, entry: dict[str, Any]) -> None:
        with self._treated("services>store", fault.target, fault.seconds, delay=0.3):
            pass

    def _database(self, fault: Fault, entry: dict[str, Any]) -> None:
        assert self._running.database is not None
        self._running.database.stop()
        time.sleep(fault.seconds)
        self._running.database.start()

    def _clock(self, fault: Fault, entry: dict[str, Any]) -> None:
        assert self._running.clock is not None
        self._running.clock.jump(fault.seconds)

    def _cut(self, fault: Fault, entry: dict[str, Any]) -> None:
        entry["connections"] = self._running.links[fault.target].cut()

    def _delay(self, fault: Fault, entry: dict[str, Any]) -> None:
        with self._treated(fault.target, "slow", fault.seconds, delay=0.5):
            pass

    def _duplicate(self, fault: Fault, entry: dict[str, Any]) -> None:
        entry["connections"] = self._running.links[fault.target].duplicate()

    @contextlib.contextmanager
    def _treated(self, link: str, mode: Any, seconds: float, *, delay: float) -> Iterator[None]:
        self._running.links[link].treat(mode, delay=delay)
        try:
            time.sleep(seconds)
            yield
        finally:
            self._running.links[link].treat("open")


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Fill a small file system to its last byte until the end of the block."""
    path = folder / ".filler"
    try:
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        yield
    finally:
        path.unlink(missing_ok=True)


def counts(lines: list[Mapping[str, Any]]) -> dict[str, int]:
    """Return how often each kind of process was killed."""
    result: dict[str, int] = {}
    for line in lines:
        for fault in line["faults"]:
            if fault["kind"] == "kill":
                result[fault["target"]] = result.get(fault["target"], 0) + 1
    return result
