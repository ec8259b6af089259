"""Trainers as local child processes.

A bounded number of trainers runs at a time, and the cores are divided among them. A trainer gets the id of this process and
exits with it (it sets PR_SET_PDEATHSIG itself, so no code runs between fork and exec here). Each trainer has its own
process group, which is signalled as a whole. Its output goes to a log file of bounded size.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog
from dressage.artifacts.atomic import make_private_file, make_private_folder
from dressage.errors import Unavailable
from dressage.log_tails import without_tracebacks
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, wait_fixed

from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind, Launch, ResultListener

T = TypeVar("T")

DEFAULT_COMMAND = (sys.executable, "-m", "dressage_trainer")
EXIT_CHECKPOINTED = 75
MAX_LOG_BYTES = 16 * 1024 * 1024
_REPORT_SECONDS = 600.0
_REPORT_PAUSE_SECONDS = 2.0
_TAIL_BYTES = 4096
_TAIL_LINES = 12

# An allow-list: this process has keys of providers and secrets of services, whatever they are called.
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
        "DRESSAGE_PACKS",
    }
) | {
    "DRESSAGE_S3_CA_FILE"  # the CA certificate for presigned URLs
}
_KEPT_PREFIXES = ("LC_", "PYTHON", "XDG_", "JAX_", "XLA_", "OMP_", "MUJOCO_", "DRESSAGE_TRAINER_")


def trainer_environment(environment: Mapping[str, str], token: str) -> dict[str, str]:
    """Environment variables of a trainer: those that programs need and its token, without keys and secrets."""
    variables = {k: v for k, v in environment.items() if k in _KEPT_NAMES or k.startswith(_KEPT_PREFIXES)}
    return {**variables, "DRESSAGE_RUN_TOKEN": token}


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class LocalLauncher:
    """Runs trainers as child processes.

    :param log_folder: folder of the logs, one ``{run}.log`` for each run, with slashes replaced.
    :param on_result: called when a trainer has exited by itself.
    :param hello_seconds: time for a trainer to connect before it is killed.
    :param stop_seconds: time between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        *,
        log_folder: Path,
        on_result: ResultListener,
        max_parallel: int,
        command: Sequence[str] = (),
        hello_seconds: float = 60.0,
        stop_seconds: float = 15.0,
    ) -> None:
        self._log_folder = log_folder
        self._on_result = on_result
        self._slots = asyncio.Semaphore(max_parallel)
        self._command = tuple(command) or DEFAULT_COMMAND
        self._hello_seconds = hello_seconds
        self._stop_seconds = stop_seconds
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._hellos: dict[tuple[str, int], asyncio.Event] = {}
        self._log = structlog.get_logger("dressage.launcher")
        self.pools: frozenset[str] | None = None
        self.attempts_per_launch = 1
        self.scheduling_seconds = 0.25  # from the row to a free slot: one iteration of the event loop and a transaction
        self._cores = max(1, available_cores() // max_parallel)

    def cores(self, pool: str) -> int:
        """Number of cores that a run may use: all cores are divided evenly, independent of the pool."""
        return self._cores

    async def start(self) -> int:
        """Local trainers end with the process that started them, so none is left to adopt."""
        return 0

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        """Queue an attempt (see `Launcher.submit`). Call it from the event loop."""
        key = (launch.run, launch.attempt)
        if key in self._tasks:
            return
        self._hellos[key] = asyncio.Event()
        task = asyncio.create_task(self._attempt(launch, starting), name=f"trainer {launch.run} {launch.attempt}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def has_trainer(self, run: str, attempt: int) -> bool:
        """Whether the attempt is queued or running."""
        return (run, attempt) in self._tasks

    def active_runs(self) -> frozenset[str]:
        """Runs with a queued or running trainer."""
        return frozenset(run for run, _ in self._tasks)

    def trainer_connected(self, run: str, attempt: int) -> None:
        """Record that the attempt's trainer has connected."""
        if (run, attempt) in self._hellos:
            self._hellos[run, attempt].set()

    async def stop(self, run: str, attempt: int | None = None) -> None:
        """Terminate a run's trainers with SIGTERM, then SIGKILL."""
        chosen = [t for (name, number), t in self._tasks.items() if name == run and attempt in (None, number)]
        await self._cancel(chosen)

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        """Read the end of the run's log file (see `Launcher.logs`)."""
        return await asyncio.to_thread(_tail_of, self._log_path(run), tail_bytes)

    def delete_logs(self, run: str) -> None:
        """Delete the run's log file."""
        self._log_path(run).unlink(missing_ok=True)

    async def close(self) -> None:
        """Terminate all trainers."""
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
            if not await self._with_retries(starting):
                return
            ended = await self._run(launch)
        self._tasks.pop((launch.run, launch.attempt), None)  # so that the listener may submit the next attempt
        await self._with_retries(lambda: self._on_result(ended))

    async def _with_retries(self, report: Callable[[], Awaitable[T]]) -> T:
        """Report, with retries during an outage of the database, because the exit of a trainer is recorded nowhere else.

        :raises Unavailable: when the outage lasts too long; the run's next attempt then starts without this report.
        """

        def log(state: RetryCallState) -> None:
            outcome = state.outcome
            self._log.warning("could not report on a trainer yet", error=str(outcome and outcome.exception()))

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Unavailable),
            stop=stop_after_delay(_REPORT_SECONDS),
            wait=wait_fixed(_REPORT_PAUSE_SECONDS),
            before_sleep=log,
            reraise=True,
        )

        async def attempt() -> T:  # tenacity awaits coroutine functions alone
            return await report()

        return await retrying(attempt)

    async def _run(self, launch: Launch) -> AttemptResult:
        arguments = ["--address", launch.address, "--run", launch.run, "--attempt", str(launch.attempt)]
        command = [*self._command, *arguments, "--parent-pid", str(os.getpid())]
        environment = trainer_environment(os.environ, launch.token)
        if launch.deadline_seconds > 0:
            environment["DRESSAGE_RUN_DEADLINE_SECONDS"] = f"{launch.deadline_seconds:g}"
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                process_group=0,
                umask=0o077,  # what a trainer writes is for this user only
            )
        except OSError as error:
            message = f"cannot start {command[0]}: {error.strerror}"
            return AttemptResult(launch.run, launch.attempt, ExitKind.FAILED, message)
        self._log.info("trainer started", run=launch.run, attempt=launch.attempt, pid=process.pid)
        copying = asyncio.create_task(self._copy_output(process, launch))
        try:
            unresponsive = await self._watch(process, launch)
            tail = await copying
        finally:
            await self._terminate(process)
            copying.cancel()
        kind = _classify(process.returncode or 0, unresponsive=unresponsive)
        self._log.info("trainer ended", run=launch.run, code=process.returncode, kind=kind.value)
        cause = f"no hello within {self._hello_seconds:g} s" if unresponsive else f"exit code {process.returncode}"
        return AttemptResult(
            launch.run, launch.attempt, kind, f"{cause}; its log ends with:\n{tail}" if tail else cause
        )

    async def _watch(self, process: Process, launch: Launch) -> bool:
        """Wait for the process to exit; True if it was killed because it did not connect."""
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

    async def _terminate(self, process: Process) -> None:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(process.wait()), self._stop_seconds)
        # Child processes may outlive the leader of the group.
        _signal(process, signal.SIGKILL)
        await process.wait()

    def _log_path(self, run: str) -> Path:
        return self._log_folder / f"{run.replace('/', '_')}.log"

    async def _copy_output(self, process: Process, launch: Launch) -> str:
        """Write the output of a trainer to its log, up to a limit; returns the last lines."""
        assert process.stdout is not None
        make_private_folder(self._log_folder)
        path = self._log_path(launch.run)
        make_private_file(path)
        tail = b""
        with path.open("ab") as log:
            log.write(f"--- attempt {launch.attempt}\n".encode())
            while chunk := await process.stdout.read(65536):
                tail = (tail + chunk)[-_TAIL_BYTES:]
                # Beyond the limit the output is still read: a full pipe would stop the trainer.
                if log.tell() < MAX_LOG_BYTES:
                    log.write(chunk)
                    log.flush()
        # The text becomes the failure of a run, which every user may read.
        text = without_tracebacks(tail.decode("utf-8", "replace").replace(launch.token, "[token]"))
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


def _classify(code: int, *, unresponsive: bool) -> ExitKind:
    if unresponsive:
        return ExitKind.NO_HELLO
    kinds = {0: ExitKind.DONE, EXIT_CHECKPOINTED: ExitKind.CHECKPOINTED}
    return kinds.get(code, ExitKind.FAILED)
