"""`dressage serve` as a process of its own, to be talked to, killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from dressage.client import Client

DRESSAGE = str(Path(sys.executable).with_name("dressage"))


class Server:
    """One server on a data folder.

    :param environment: variables besides a few of this process's.
    """

    def __init__(self, data_dir: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self._command = [DRESSAGE, "serve", "--data-dir", str(data_dir), "--address", "127.0.0.1:0", *arguments]
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "OMP_NUM_THREADS") if name in os.environ}
        # Short waits: a test asks for recovery at once, not within half a minute.
        quick = {"DRESSAGE_ORCHESTRATOR_CHECKPOINT_SECONDS": "1", "DRESSAGE_ORCHESTRATOR_WAIT_SECONDS": "2"}
        self._environment = {**inherited, **quick, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 240.0) -> str:
        """Starts it and returns its address."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        log = (self.data_dir / "serve.log").open("ab")
        self._process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        log.close()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"the server ended: {self.log()[-3000:]}")
            address = self._announced()
            if address:
                return address
            time.sleep(0.1)
        raise AssertionError(f"the server does not come up: {self.log()[-3000:]}")

    def _announced(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            facts = json.loads((self.data_dir / "server.json").read_text())
            if self._process is not None and facts["pid"] == self._process.pid:
                return str(facts["address"])
        return ""

    def client(self) -> Client:
        """A client of it."""
        return Client.connect(environ={"DRESSAGE_HOME": str(self.data_dir)})

    def log(self) -> str:
        """What it has written."""
        return (self.data_dir / "serve.log").read_text(errors="replace")

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self._process is None or self._process.poll() is not None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.log()[-6000:])
        self.stop()


def run_cli(
    *arguments: str, timeout: float = 240.0, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a `dressage` command to its end, in a folder."""
    variables = {**os.environ, **environment}
    return subprocess.run(
        [DRESSAGE, *arguments], capture_output=True, text=True, timeout=timeout, env=variables, cwd=folder
    )


def trainers_of(run: str) -> list[int]:
    """Process ids of the trainers of runs whose names begin so."""
    entries = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "dressage_trainer" in arguments and any(word.startswith(run) for word in arguments):
                    entries.append(int(entry.name))
    return entries
