"""Disturbs sessions and compares each with an undisturbed session of the same seed: `python -m tests.chaos.runner --help`.

Appends a JSON line for each disturbed session to a file. Seeds that are in the file already are skipped, so that the command
continues where it was interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dressage.api.v1 import event_pb2 as ev

from tests.chaos.faults import Disturber, Fault, schedule
from tests.chaos.installation import Installation, Kind, installation
from tests.chaos.outcome import Outcome, collect, differences
from tests.chaos.sessions import METHODS, Provider, spec

_VARIANTS = 2
"""Sessions of each method, by seed; the schedules differ for every seed."""
_SESSION_SECONDS = 600.0
_BLOCK = 4
"""Seeds in a row on one kind of installation."""
_POLL_SECONDS = 0.1
_LOGS = Path("build")
"""For the logs of installations whose session had differences."""


Undisturbed = dict[tuple[str, int], tuple[Outcome, int]]


class Stuck(Exception):
    """A session that does not end; the arguments are a message and the faults so far."""


@dataclass
class Chaos:
    """Runs sessions on one installation, one at a time.

    :param running: the installation.
    :param undisturbed: outcomes and numbers of events of undisturbed sessions by method and variant, which installations share.
    """

    running: Installation
    provider: Provider
    undisturbed: Undisturbed = field(default_factory=dict)
    _sessions: int = 0

    def calm(self, method: str, variant: int) -> tuple[Outcome, int]:
        """Return what an undisturbed session leaves, and its number of events; it runs once."""
        if (method, variant) not in self.undisturbed:
            outcome, _, events = self._run(method, variant, [], seed=0, length=0)
            self.undisturbed[method, variant] = (outcome, events)
        return self.undisturbed[method, variant]

    def disturbed(self, seed: int, method: str, *, kills: int, faults: list[Fault] | None = None) -> dict[str, Any]:
        """Disturb one session; returns a line of the results."""
        variant = seed // _BLOCK // 2 % _VARIANTS
        calm, length = self.calm(method, variant)
        chosen = schedule(seed, method, self.running, kills=kills) if faults is None else faults
        begun = time.monotonic()
        try:
            outcome, disturber, _ = self._run(method, variant, chosen, seed=seed, length=length)
            lines = differences(calm, outcome, repeats=disturber.repeats)
            applied, repeats = disturber.applied, sum(outcome.requests.values()) - sum(calm.requests.values())
        except Stuck as error:
            lines, applied, repeats = [f"stuck: {error}"], error.args[1], 0
        return {
            "seed": seed,
            "method": method,
            "installation": self.running.kind,
            "variant": variant,
            "clock": self.running.clock is not None,
            "faults": applied,
            "kills": sum(entry["kind"] == "kill" for entry in applied),
            "repeats": repeats,
            "differences": lines,
            "seconds": round(time.monotonic() - begun, 1),
        }

    def _run(
        self, method: str, variant: int, faults: list[Fault], *, seed: int, length: int
    ) -> tuple[Outcome, Disturber, int]:
        self._sessions += 1
        session = f"chaos-{self._sessions:05d}"
        self.provider.begin(variant)
        disturber = Disturber(self.running, self.provider, session, seed=seed)
        with self.running.client() as client:
            client.create_session(spec(method, variant), session_id=session)
            watcher = _Watcher(self.running, session)
            self._disturb(disturber, faults, watcher, length)
            events = watcher.result(_SESSION_SECONDS, disturber)
            requests = self.provider.requests(lambda text: text.replace(session, "SESSION"))
            outcome = collect(client, self.running.store, session, events, requests)
        if self.running.clock is not None:
            self.running.clock.jump(0)
        self.running.store.delete_prefix(f"sessions/{session}/")
        return outcome, disturber, watcher.seen()

    def _disturb(self, disturber: Disturber, faults: list[Fault], watcher: _Watcher, length: int) -> None:
        for (at, delay), group in itertools.groupby(faults, key=lambda fault: (fault.at, fault.delay)):
            while watcher.seen() < at * length and not watcher.ended():
                time.sleep(_POLL_SECONDS)
            time.sleep(delay)
            if watcher.ended():
                return
            disturber.apply([*group])


class _Watcher:
    """Collects a session's events in a thread, as a client does that reconnects."""

    def __init__(self, running: Installation, session: str) -> None:
        self._events: list[ev.Event] = []
        self._error: BaseException | None = None
        self._running, self._session = running, session
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        try:
            with self._running.client() as client:
                for answer in client.watch_session(self._session):
                    self._events.append(answer.event)
        except BaseException as error:
            self._error = error

    def seen(self) -> int:
        """Return the number of events so far, without progress, whose number is a matter of time."""
        return sum(event.WhichOneof("payload") != "progress" for event in self._events)

    def ended(self) -> bool:
        """Return whether the session has ended."""
        return not self._thread.is_alive()

    def result(self, seconds: float, disturber: Disturber) -> list[ev.Event]:
        """Return the events.

        :raises Stuck: if the session does not end within so many seconds.
        """
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise Stuck(f"it does not end within {seconds:g} s", disturber.applied)
        if self._error is not None:
            raise Stuck(f"it cannot be watched: {self._error!r}", disturber.applied)
        sequences = [event.sequence for event in self._events]
        assert sequences == list(range(1, len(sequences) + 1)), "events are missing or repeated"
        return self._events


@contextmanager
def chaos(
    kind: Kind, folder: Path, *, clock: bool = False, disks: bool = True, undisturbed: Undisturbed | None = None
) -> Iterator[Chaos]:
    """Run an installation with a scripted provider until the end of the block."""
    with installation(kind, folder, clock=clock, disks=disks) as running, Provider(running.provider_port) as provider:
        yield Chaos(running, provider, {} if undisturbed is None else undisturbed)


def plan(seed: int) -> tuple[Kind, bool, str]:
    """Return on which installation a seed's session runs, whether its clock can be set, and the session's method."""
    block = seed // _BLOCK
    # A training takes longer than the other methods' sessions, so fewer sessions are trainings.
    # Every 32 seeds the methods change their kind of installation, so that each one meets both.
    methods = ("parameters", "code", "program", "parameters", "code", "program", "reward", "reward")
    method = methods[(seed + _BLOCK * (seed // 32)) % 8]
    return ("sqlite", "postgres")[block % 2], block % 4 >= 2, method  # type: ignore[return-value]


def run(seeds: Iterable[int], results: Path, *, kills: int, kinds: Iterable[str], methods: Iterable[str]) -> int:
    """Disturb a session for each seed and append a line for each; returns the number of sessions with differences."""
    done = {line["seed"] for line in lines_of(results)}
    pending = [seed for seed in seeds if seed not in done and plan(seed)[0] in kinds and plan(seed)[2] in methods]
    undisturbed: Undisturbed = {}
    failed = 0
    while pending:
        kind, clock, _ = plan(pending[0])
        with tempfile.TemporaryDirectory(prefix="dressage-chaos-") as name:
            folder = Path(name)
            with chaos(kind, folder, clock=clock, undisturbed=undisturbed) as running:
                while pending and plan(pending[0])[:2] == (kind, clock):
                    seed = pending.pop(0)
                    line = {**_line(running, seed, kills), "commit": _commit(), "machine": platform.platform()}
                    with results.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    failed += bool(line["differences"])
                    _show(line)
                    if line["differences"]:
                        _keep_logs(folder, _LOGS / f"chaos-{seed}")
                        if any(text.startswith(("stuck", "error")) for text in line["differences"]):
                            break  # what is left of it would disturb the next session
    return failed


def _line(running: Chaos, seed: int, kills: int) -> dict[str, Any]:
    method = plan(seed)[2]
    try:
        return running.disturbed(seed, method, kills=kills)
    except Exception:
        kind = running.running.kind
        problem = traceback.format_exc()
        print(problem, file=sys.stderr)
        return {"seed": seed, "method": method, "installation": kind, "faults": [], "kills": 0, "seconds": 0,
                "repeats": 0, "differences": [f"error: {problem[-1500:]}"]}  # fmt: skip


def _keep_logs(folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("*.log"), *folder.glob("data/logs/*.log")]:
        (target / path.name).write_bytes(path.read_bytes())


def _show(line: dict[str, Any]) -> None:
    faults = " ".join(f"{entry['kind']}:{entry['target']}" for entry in line["faults"])
    print(f"{line['seed']} {line['method']} {line['installation']} {line['seconds']} s  {faults}", flush=True)
    for difference in line["differences"]:
        print(f"    {difference}", flush=True)


def lines_of(results: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="Kill and disturb sessions; compare them with undisturbed ones.")
    parser.add_argument("--seeds", default="0-7", help="seeds of schedules: FIRST-LAST (default: 0-7)")
    parser.add_argument("--kills", type=int, default=12, help="kill -9 of processes in each session (default: 12)")
    parser.add_argument("--results", type=Path, default=Path("build/chaos.jsonl"), help="file to append to")
    parser.add_argument("--installations", default="sqlite,postgres", help="kinds of installations")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods of the sessions")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that processes and mounts of this run end with it
    first, _, last = arguments.seeds.partition("-")
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    return min(1, run(
        range(int(first), int(last or first) + 1), arguments.results, kills=arguments.kills,
        kinds=arguments.installations.split(","), methods=arguments.methods.split(","),
    ))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
