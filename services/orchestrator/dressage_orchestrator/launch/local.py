"""Trainers as child processes of this machine.

A bounded number runs at a time and the cores are divided among them. A trainer is told our process id and ends with us
(it arms PR_SET_PDEATHSIG itself, so nothing runs between fork and exec here); each has a process group of its own, so
that it is signalled with its children. Its output goes to a log file whose size is bounded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog
from dressage.errors import Unavailable

from dressage_orchestrator.launch.protocol import Ended, ExitKind, Launch, Listener

T = TypeVar("T")

DEFAULT_COMMAND = (sys.executable, "-m", "dressage_trainer")
EXIT_CHECKPOINTED = 75
MAX_LOG_BYTES = 16 * 1024 * 1024
_REPORT_SECONDS = 600.0
_REPORT_PAUSE_SECONDS = 2.0
_TAIL_BYTES = 4096
_TAIL_LINES = 12

_KEPT_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "TMPDIR",
        "USER",
        "LOGNAME",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "DRESSAGE_ENVIRONMENTS",
    }
) | {
    "DRESSAGE_S3_CA_FILE"  # a certificate, by which presigned URLs are trusted
}
_KEPT_PREFIXES = ("LC_", "PYTHON", "XDG_", "JAX_", "XLA_", "OMP_", "MUJOCO_", "DRESSAGE_TRAINER_")


def trainer_environment(environment: Mapping[str, str], token: str) -> dict[str, str]:
    """What a trainer inherits: what programs need to run and its token; no key, no secret of ours."""
    kept = {k: v for k, v in environment.items() if k in _KEPT_NAMES or k.startswith(_KEPT_PREFIXES)}
    return {**kept, "DRESSAGE_RUN_TOKEN": token}


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class LocalLauncher:
    """See `Launcher`.

    :param log_folder: gets one ``{run}.log`` for each run, its slashes replaced.
    :param on_end: told of every trainer that ended by itself.
    :param hello_seconds: a trainer that has not said hello by then is killed.
    :param stop_seconds: a trainer asked to stop is killed after so long.
    """

    def __init__(
        self,
        *,
        log_folder: Path,
        on_end: Listener,
        max_parallel: int,
        command: Sequence[str] = (),
        hello_seconds: float = 60.0,
        stop_seconds: float = 15.0,
    ) -> None:
        self._log_folder = log_folder
        self._on_end = on_end
        self._slots = asyncio.Semaphore(max_parallel)
        self._command = tuple(command) or DEFAULT_COMMAND
        self._hello_seconds = hello_seconds
        self._stop_seconds = stop_seconds
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._hellos: dict[tuple[str, int], asyncio.Event] = {}
        self._log = structlog.get_logger("dressage.launcher")
        self.pools: frozenset[str] | None = None
        self.attempts_per_launch = 1
        self.placing_seconds = 0.25  # from the row to a free slot: a turn of the event loop and a transaction
        self._cores = max(1, available_cores() // max_parallel)

    def cores(self, pool: str) -> int:
        """Cores that a run may use: all are divided evenly, whatever the pool."""
        return self._cores

    async def start(self) -> int:
        """Nothing outlives its process here."""
        return 0

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        """Queues an attempt (see `Launcher.submit`). Call from the event loop."""
        key = (launch.run, launch.attempt)
        if key in self._tasks:
            return
        self._hellos[key] = asyncio.Event()
        task = asyncio.create_task(self._attempt(launch, starting), name=f"trainer {launch.run} {launch.attempt}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def knows(self, run: str, attempt: int) -> bool:
        """Whether the attempt is queued or under way."""
        return (run, attempt) in self._tasks

    def known(self) -> frozenset[str]:
        """Runs that have a trainer queued or under way."""
        return frozenset(run for run, _ in self._tasks)

    def said_hello(self, run: str, attempt: int) -> None:
        """Its trainer is there."""
        if (run, attempt) in self._hellos:
            self._hellos[run, attempt].set()

    async def stop(self, run: str, attempt: int | None = None) -> None:
        """Ends a run's trainers: SIGTERM, then SIGKILL."""
        chosen = [t for (name, number), t in self._tasks.items() if name == run and attempt in (None, number)]
        await self._cancel(chosen)

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        """The end of the run's log file (see `Launcher.logs`)."""
        return await asyncio.to_thread(_tail_of, self._log_path(run), tail_bytes)

    async def close(self) -> None:
        """Ends all trainers."""
        await self._cancel(list(self._tasks.values()))

    async def _cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: tuple[str, int], task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        self._hellos.pop(key, None)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("launching failed", run=key[0], attempt=key[1], exc_info=task.exception())

    async def _attempt(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        async with self._slots:
            if not await self._patiently(starting):
                return
            ended = await self._run(launch)
        self._tasks.pop((launch.run, launch.attempt), None)  # so that the listener may submit the next attempt
        await self._patiently(lambda: self._on_end(ended))

    async def _patiently(self, report: Callable[[], Awaitable[T]]) -> T:
        """Report; again, while the database is away: how a trainer ended is written nowhere else.

        :raises Unavailable: when it has been away for too long; the run's next attempt then starts as if this one had
            said nothing.
        """
        deadline = time.monotonic() + _REPORT_SECONDS
        while True:
            try:
                return await report()
            except Unavailable as error:
                if time.monotonic() > deadline:
                    raise
                self._log.warning("could not report on a trainer yet", error=error.message)
            await asyncio.sleep(_REPORT_PAUSE_SECONDS)

    async def _run(self, launch: Launch) -> Ended:
        arguments = ["--address", launch.address, "--run", launch.run, "--attempt", str(launch.attempt)]
        command = [*self._command, *arguments, "--parent-pid", str(os.getpid())]
        environment = trainer_environment(os.environ, launch.token)
        if launch.deadline_seconds > 0:
            environment["DRESSAGE_RUN_DEADLINE_SECONDS"] = f"{launch.deadline_seconds:g}"
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=STDOUT, process_group=0
            )
        except OSError as error:
            message = f"cannot start {command[0]}: {error.strerror}"
            return Ended(launch.run, launch.attempt, ExitKind.FAILED, message)
        self._log.info("trainer started", run=launch.run, attempt=launch.attempt, pid=process.pid)
        copying = asyncio.create_task(self._copy_output(process, launch))
        try:
            silent = await self._watch(process, launch)
            tail = await copying
        finally:
            await self._end(process)
            copying.cancel()
        kind = _classify(process.returncode or 0, silent=silent)
        self._log.info("trainer ended", run=launch.run, code=process.returncode, kind=kind.value)
        said = f"no hello within {self._hello_seconds:g} s" if silent else f"exit code {process.returncode}"
        return Ended(launch.run, launch.attempt, kind, f"{said}; its log ends with:\n{tail}" if tail else said)

    async def _watch(self, process: Process, launch: Launch) -> bool:
        """Waits for the process; True when it was killed because it never said hello."""
        exit_ = asyncio.create_task(process.wait())
        hello = asyncio.create_task(self._hellos[launch.run, launch.attempt].wait())
        try:
            done, _ = await asyncio.wait(
                {exit_, hello}, timeout=self._hello_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                _signal(process, signal.SIGKILL)
                await exit_
                return True
            await exit_
            return False
        finally:
            hello.cancel()
            exit_.cancel()

    async def _end(self, process: Process) -> None:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(process.wait()), self._stop_seconds)
        # The group may outlive its leader: whatever is left of it goes now.
        _signal(process, signal.SIGKILL)
        await process.wait()

    def _log_path(self, run: str) -> Path:
        return self._log_folder / f"{run.replace('/', '_')}.log"

    async def _copy_output(self, process: Process, launch: Launch) -> str:
        """Writes what the trainer says to its log, up to a bound; returns the last lines."""
        assert process.stdout is not None
        self._log_folder.mkdir(parents=True, exist_ok=True)
        path = self._log_path(launch.run)
        tail = b""
        with path.open("ab") as log:
            log.write(f"--- attempt {launch.attempt}\n".encode())
            while chunk := await process.stdout.read(65536):
                tail = (tail + chunk)[-_TAIL_BYTES:]
                if log.tell() < MAX_LOG_BYTES:
                    log.write(chunk)
                    log.flush()
        text = tail.decode("utf-8", "replace").replace(launch.token, "[token]")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


def _tail_of(path: Path, limit: int) -> bytes | None:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            return file.read(limit)
    except FileNotFoundError:
        return None


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _classify(code: int, *, silent: bool) -> ExitKind:
    if silent:
        return ExitKind.NO_HELLO
    known = {0: ExitKind.DONE, EXIT_CHECKPOINTED: ExitKind.CHECKPOINTED}
    return known.get(code, ExitKind.FAILED)
