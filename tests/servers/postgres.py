"""A real PostgreSQL for tests, started as an unprivileged user on a free port, without durability."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers.ports import free_ports

_SECONDS = 60
_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60"}


@dataclass
class Postgres:
    """A server under test."""

    binaries: Path
    folder: Path
    port: int
    account: dict[str, Any]

    def url(self, database: str = "postgres") -> str:
        """Of a database."""
        return f"postgresql://dressage@127.0.0.1:{self.port}/{database}"

    def database(self, *, like: str = "template1") -> str:
        """The URL of a new database: empty, or a copy of another without connections."""
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {like}")  # type: ignore[call-overload]
        return self.url(name)

    def start(self) -> None:
        """Starts the server; returns when it answers."""
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} {settings}"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-o", options, "-w", "start"
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stops the server at once, as a crash does."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        # Output to a file: the server inherits it, and would keep a pipe open for ever.
        with (self.folder / "commands.log").open("ab") as log:
            subprocess.run(
                [str(self.binaries / program), *arguments],
                check=True, env=environment, cwd=self.folder, stdout=log, stderr=log, timeout=_SECONDS, **self.account,
            )  # fmt: skip


def binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs, of the newest installed version."""
    programs = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0])
    )
    if programs:
        return programs[-1].parent
    program = shutil.which("initdb")
    return Path(program).resolve().parent if program else None


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Runs the server until the end of the block; skips the test where there is none."""
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: tools/system-packages postgresql")
    folder = Path(tempfile.mkdtemp(prefix="dressage-pg-", dir=_base()))
    server = Postgres(programs, folder, free_ports(1)[0], _account(folder))
    try:
        data = str(folder / "data")
        server._run("initdb", "-D", data, "-U", "dressage", "-A", "trust", "-E", "UTF8", "--no-sync")
        server.start()
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _base() -> str:
    """A folder for temporary files that other accounts may enter; some machines close /tmp to them."""
    for name in (tempfile.gettempdir(), "/var/tmp", "/dev/shm"):
        path = Path(name).resolve()
        if path.is_dir() and (os.geteuid() != 0 or all(part.stat().st_mode & 1 for part in (path, *path.parents))):
            return name
    pytest.skip("no folder for temporary files that an unprivileged account may enter")
    raise AssertionError


def _account(folder: Path) -> dict[str, Any]:
    """Whom to be: the server refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL refuses to run as root, and there is no other account to run it as")
    raise AssertionError


def restart(server: Postgres, *, away: float) -> None:
    """Kills the server and starts it again after so many seconds."""
    server.stop()
    time.sleep(away)
    server.start()
