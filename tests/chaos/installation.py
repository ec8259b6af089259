"""A whole installation on this machine: each service is a process, and every connection between two of them is a link.

The orchestrator starts trainers as its local launcher does. All services run as `python -m dressage_…`, with settings from the
environment as in a pod. Only the model provider is scripted.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from dressage.artifacts import ArtifactStore, DirectoryStore
from dressage.artifacts.s3 import S3Store
from dressage.client import Client
from dressage.client.calls import CallPolicy

from tests.chaos.clock import Clock
from tests.chaos.links import Link, Loop
from tests.servers.ports import free_ports
from tests.servers.postgres import Postgres, postgres
from tests.servers.seaweed import seaweed

Kind = Literal["sqlite", "postgres"]
"""SQLite and a folder, or PostgreSQL and S3."""

SERVICES = ("llm_agent", "renderer", "judge", "orchestrator")
"""In the order in which they start."""
_START_SECONDS = 240.0
_TERM_SECONDS = 60.0
_DISK = "size=192m"
_BUCKET = "chaos"
_QUICK = {
    "CHECKPOINT_SECONDS": "0.5",
    "WAIT_SECONDS": "2",
    "HEARTBEAT_SECONDS": "0.5",
    "LEASE_SECONDS": "4",
    "STOP_SECONDS": "5",
    "GRACE_SECONDS": "2",
    # A process that is killed counts as a failure of its assignment. The default ends a session after the third, by design.
    "MAX_RUN_FAILURES": "1000",
    "MAX_REVIEWS": "0",
    "RETENTION_SECONDS": "0",
}
_KEPT = ("PATH", "HOME", "OMP_NUM_THREADS", "LANG", "PYTHONPATH", "DRESSAGE_PACKS")
_TARGET = "dressage_trainer."
_TRAINER = "trainer"
_TOKEN = secrets.token_urlsafe(16)


@dataclass
class Installation:
    """The running processes, the links between them, and what they store.

    :param kind: which database and store.
    :param folder: for logs, and for data unless it has disks of its own.
    """

    kind: Kind
    folder: Path
    ports: dict[str, int]
    links: dict[str, Link]
    clock: Clock | None
    disks: dict[str, Path]
    """Small file systems by what they hold; empty where none can be mounted."""
    database: Postgres | None
    store: ArtifactStore
    environments: dict[str, dict[str, str]]
    token: str
    provider_port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, service: str) -> None:
        """Start a service, if it does not run; returns when it listens."""
        if self.alive(service):
            return
        log = (self.folder / f"{service}.log").open("ab")
        with log:
            self.processes[service] = subprocess.Popen(
                [sys.executable, "-m", f"dressage_{service}"],
                env=self.environments[service],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                process_group=0,
            )

    def alive(self, service: str) -> bool:
        """Return whether the service's process runs."""
        return service in self.processes and self.processes[service].poll() is None

    def wait_until_up(self) -> None:
        """Wait until every service listens; a service that ended by itself is started again, as an operator's init does."""
        deadline = time.monotonic() + _START_SECONDS
        while missing := [name for name in SERVICES if not self._listens(name)]:
            assert time.monotonic() < deadline, f"{missing} do not start: {self.tail(missing[0])}"
            for name in missing:
                self.start(name)
            time.sleep(0.1)

    def _listens(self, service: str) -> bool:
        with socket.socket() as probe:
            return self.alive(service) and probe.connect_ex(("127.0.0.1", self.ports[service])) == 0

    def kill(self, service: str) -> None:
        """Send SIGKILL to a service; its trainers or sandboxes end with it."""
        self.processes[service].kill()
        self.processes[service].wait(30)

    def terminate(self, service: str) -> int:
        """Send SIGTERM to a service and wait for its end; returns its exit status."""
        process = self.processes[service]
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_TERM_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
            raise AssertionError(f"{service} does not end on SIGTERM: {self.tail(service)}") from None

    def children(self) -> dict[str, list[psutil.Process]]:
        """Return the processes below the services, by kind: trainers, their sandboxes, and those of judge and renderer."""
        kinds: dict[str, list[psutil.Process]] = {}
        for service in SERVICES:
            if not self.alive(service):
                continue
            with contextlib.suppress(psutil.Error):
                for process in psutil.Process(self.processes[service].pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        if name := _kind_of(service, process.cmdline()):
                            kinds.setdefault(name, []).append(process)
        return kinds

    def client(self) -> Client:
        """Return a client that continues through long outages."""
        policy = CallPolicy(total_seconds=240.0, watch_reconnects=1000, max_backoff=0.5)
        return Client.connect(f"http://127.0.0.1:{self.ports['orchestrator']}", self.token, policy=policy)

    def tail(self, service: str, size: int = 3000) -> str:
        """Return the end of a service's log."""
        path = self.folder / f"{service}.log"
        return path.read_text(errors="replace")[-size:] if path.exists() else ""


def _kind_of(service: str, command: list[str]) -> str:
    """Return the kind of a service's child process; empty for helpers of the interpreter."""
    if "dressage_trainer" in command:
        return _TRAINER
    for word in command:
        if word.startswith("{"):
            target = str(json.loads(word).get("target", ""))
            name = target.rpartition(":")[0].rpartition(".")[2]
            return name if target.startswith(_TARGET) else f"{service}-{name}"
    if service == "renderer" and any("renderer" in word for word in command):
        return "renderer-worker"
    return ""


@contextlib.contextmanager
def installation(kind: Kind, folder: Path, *, clock: bool = False, disks: bool = True) -> Iterator[Installation]:
    """Run an installation until the end of the block.

    :param clock: run the services with a clock that can be set, where libfaketime is installed.
    :param disks: mount small file systems for data folder and store, where this user may.
    """
    with ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        mounted = {}
        for name in ("data", "artifacts") if kind == "sqlite" else ("data",):
            (folder / name).mkdir()
            if disks and stack.enter_context(_mounted(folder / name)):
                mounted[name] = folder / name
        set_clock = Clock.find(folder) if clock else None
        loop = Loop()
        stack.callback(loop.close)
        names = ("trainer>orchestrator", "orchestrator>llm_agent", "orchestrator>judge", "orchestrator>renderer",
                 "judge>llm_agent", "judge>renderer", "services>store", "orchestrator>database")  # fmt: skip
        numbers = free_ports(len(SERVICES) + len(names) + 1)
        ports = dict(zip((*SERVICES, *names, "provider"), numbers, strict=True))
        targets = {name: ports[name.partition(">")[2]] for name in names[:6]}
        environments = _environments(ports, folder)
        database: Postgres | None = None
        store: ArtifactStore = DirectoryStore(folder / "artifacts")
        if kind == "postgres":
            database, store = stack.enter_context(postgres()), _s3(stack, folder, ports, targets, environments)
            targets["orchestrator>database"] = database.port
            url = database.database().replace(f":{database.port}/", f":{ports['orchestrator>database']}/")
            environments["orchestrator"]["DRESSAGE_ORCHESTRATOR_DATABASE_URL"] = url
        if set_clock is not None:
            for values in environments.values():
                values.update(set_clock.environment())
        links = {name: Link(loop, name, port=ports[name], target=target) for name, target in targets.items()}
        for link in links.values():
            stack.callback(link.close)
        running = Installation(
            kind, folder, ports, links, set_clock, mounted, database, store, environments, _TOKEN, ports["provider"]
        )
        try:
            running.wait_until_up()
            yield running
        finally:
            for service in reversed([*running.processes]):
                if running.alive(service):
                    running.kill(service)


def _environments(ports: Mapping[str, int], folder: Path) -> dict[str, dict[str, str]]:
    """Return the environment variables of each service: addresses of links, a token for each pair, short waits."""
    inherited = {name: os.environ[name] for name in _KEPT if name in os.environ}
    result: dict[str, dict[str, str]] = {}
    for service in SERVICES:
        result[service] = {
            **inherited,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            f"DRESSAGE_{service.upper()}_ADDRESS": f"127.0.0.1:{ports[service]}",
            f"DRESSAGE_{service.upper()}_STORE_URL": str(folder / "artifacts"),
        }
    peers = {"llm_agent": ("orchestrator", "judge"), "renderer": ("orchestrator", "judge"), "judge": ("orchestrator",)}
    for service, callers in peers.items():
        tokens = {caller: secrets.token_urlsafe(16) for caller in callers}
        result[service][f"DRESSAGE_{service.upper()}_PEER_TOKENS"] = json.dumps(tokens)
        for caller, token in tokens.items():
            prefix = f"DRESSAGE_{caller.upper()}_{service.upper()}"
            result[caller] |= {
                f"{prefix}_ADDRESS": f"127.0.0.1:{ports[f'{caller}>{service}']}", f"{prefix}_TOKEN": token
            }  # fmt: skip
    result["llm_agent"] |= {
        "DRESSAGE_LLM_AGENT_API_BASE": f"http://127.0.0.1:{ports['provider']}/v1",
        "DRESSAGE_LLM_AGENT_API_KEY": "sk-test",
        "DRESSAGE_LLM_AGENT_FIRST_WAIT_SECONDS": "0.2",
    }
    result["orchestrator"] |= {
        **{f"DRESSAGE_ORCHESTRATOR_{name}": value for name, value in _QUICK.items()},
        "DRESSAGE_ORCHESTRATOR_DATA_DIR": str(folder / "data"),
        "DRESSAGE_ORCHESTRATOR_AUTH_TOKEN": _TOKEN,
        "DRESSAGE_ORCHESTRATOR_ADVERTISED_ADDRESS": f"127.0.0.1:{ports['trainer>orchestrator']}",
        "DRESSAGE_ORCHESTRATOR_EXECUTOR_NAME": "chaos",
    }
    return result


def _s3(
    stack: ExitStack, folder: Path, ports: Mapping[str, int], targets: dict[str, int], environments: Mapping[str, Any]
) -> ArtifactStore:
    """Start an S3 server, and have every service reach it through its link; returns the store without the link."""
    server = stack.enter_context(seaweed(folder / "s3"))
    targets["services>store"] = int(server.endpoint.rpartition(":")[2])
    through = server.environment() | {"DRESSAGE_S3_ENDPOINT": f"http://127.0.0.1:{ports['services>store']}"}
    for service, values in environments.items():
        values.update(through, **{f"DRESSAGE_{service.upper()}_STORE_URL": f"s3://{_BUCKET}/"})
    return S3Store(_BUCKET, options=server.options())


@contextlib.contextmanager
def _mounted(folder: Path) -> Iterator[bool]:
    """Mount a small file system on a folder; yields whether this user may."""
    command = ["mount", "-t", "tmpfs", "-o", _DISK, "dressage-chaos", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
