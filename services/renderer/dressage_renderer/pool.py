"""A bounded pool of rendering processes.

Each worker is an interpreter that starts with its first job, is reused, and is replaced after a crash, a timeout or a cancelled
job. A job whose worker crashed is retried once. Calls block: the service makes them from threads.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dressage.errors import Aborted, DeadlineExceeded, Internal, ResourceExhausted

from dressage_renderer.frames import FrameSamples
from dressage_renderer.options import RenderOptions, SamplingOptions
from dressage_renderer.probe import child_environment
from dressage_renderer.video import RenderReport
from dressage_renderer.worker import restore_error

_POLL_SECONDS = 0.1
_ATTEMPTS = 2
WORKER_COMMAND = (sys.executable, "-m", "dressage_renderer.worker")


@dataclass(frozen=True)
class RenderJob:
    """A video to render.

    :param trajectory: file to read.
    :param video: file to write.
    :param stills: folder for single frames, or None.
    """

    trajectory: Path
    video: Path
    options: RenderOptions
    stills: Path | None = None

    def request(self) -> dict[str, Any]:
        """Return the job as a message to a worker."""
        return {
            "kind": "video",
            "trajectory": str(self.trajectory),
            "video": str(self.video),
            "options": self.options.to_dict(),
            "stills": str(self.stills) if self.stills else None,
        }


@dataclass(frozen=True)
class FramesJob:
    """Frames to render.

    :param trajectory: file to read.
    :param folder: folder of the frames.
    """

    trajectory: Path
    folder: Path
    options: SamplingOptions

    def request(self) -> dict[str, Any]:
        """Return the job as a message to a worker."""
        return {
            "kind": "frames",
            "trajectory": str(self.trajectory),
            "folder": str(self.folder),
            "options": self.options.to_dict(),
        }


@dataclass(frozen=True)
class PosesJob:
    """Poses to compute.

    :param trajectory: file to read.
    :param poses: file to write.
    """

    trajectory: Path
    poses: Path

    def request(self) -> dict[str, Any]:
        """Return the job as a message to a worker."""
        return {"kind": "poses", "trajectory": str(self.trajectory), "poses": str(self.poses)}


Job = RenderJob | FramesJob | PosesJob


class RenderPool:
    """Renders videos in child processes.

    :param workers: maximum number of concurrent videos.
    :param max_waiting: maximum number of waiting jobs; more are refused.
    :param command: command of a worker.
    """

    def __init__(self, workers: int, *, max_waiting: int = 64, command: Sequence[str] = WORKER_COMMAND) -> None:
        self._workers = [_Worker(command) for _ in range(workers)]
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._places = threading.Semaphore(workers + max_waiting)
        self._limit = workers + max_waiting
        self._closed = False

    def render(self, job: RenderJob, *, timeout: float, cancelled: threading.Event | None = None) -> RenderReport:
        """Render a video; blocks until it is complete. Raises the errors of `sample`."""
        report = self._do(job, timeout=timeout, cancelled=cancelled)
        return RenderReport(report["frames"], report["duration"], report["seconds"], tuple(map(Path, report["stills"])))

    def sample(self, job: FramesJob, *, timeout: float, cancelled: threading.Event | None = None) -> FrameSamples:
        """Render frames; blocks until they are complete.

        :param timeout: seconds, including the wait for a worker.
        :param cancelled: stops the rendering when set.
        :raises ResourceExhausted: if too many jobs are waiting.
        :raises DeadlineExceeded: after ``timeout``; the worker is stopped.
        :raises Aborted: if it was cancelled.
        :raises Internal: if the worker crashed twice.
        """
        report = self._do(job, timeout=timeout, cancelled=cancelled)
        files: dict[str, Any] = {name: tuple(map(Path, report[name])) for name in ("frames", "pages")}
        clip = Path(report["clip"]) if report["clip"] else None
        return FrameSamples(**(report | files | {"times": tuple(report["times"]), "clip": clip}))

    def poses(self, job: PosesJob, *, timeout: float, cancelled: threading.Event | None = None) -> int:
        """Compute poses; blocks until they are written. Return the number of states. Raises the errors of `sample`."""
        return int(self._do(job, timeout=timeout, cancelled=cancelled)["rows"])

    def _do(self, job: Job, *, timeout: float, cancelled: threading.Event | None) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        if not self._places.acquire(blocking=False):
            raise ResourceExhausted(
                f"{self._limit} videos are being rendered or waiting already, the limit of this server; try again later",
                reason="RENDER_QUEUE_FULL",
            )
        try:
            worker = self._take(deadline, timeout, cancelled or threading.Event())
            try:
                return worker.do(job, deadline=deadline, timeout=timeout, cancelled=cancelled or threading.Event())
            finally:
                self._idle.put(worker)
        finally:
            self._places.release()

    def close(self) -> None:
        """Stop all workers; running jobs end with an error."""
        self._closed = True
        for worker in self._workers:
            worker.kill()

    def _take(self, deadline: float, timeout: float, cancelled: threading.Event) -> _Worker:
        while True:
            _check(deadline, timeout, cancelled)
            if self._closed:
                raise Aborted("the renderer is stopping", reason="STOPPING")
            try:
                return self._idle.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue


class _Crash(Exception):
    """A worker that ended without an answer."""


class _Worker:
    """One child process, which starts with its first job."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._stopped = False

    def do(self, job: Job, *, deadline: float, timeout: float, cancelled: threading.Event) -> dict[str, Any]:
        """Send the job to the worker and wait for its report."""
        request = job.request()
        for attempt in range(_ATTEMPTS):
            try:
                reply = self._ask(request, deadline=deadline, timeout=timeout, cancelled=cancelled)
                break
            except _Crash as crash:
                self._discard()
                if attempt == _ATTEMPTS - 1 or self._stopped:
                    raise Internal(f"the rendering process crashed: {crash}", reason="RENDER_WORKER_CRASHED") from crash
            except BaseException:
                # The worker is still busy with this job and cannot be reused.
                self._discard()
                raise
        if "error" in reply:
            raise restore_error(reply["error"])
        report: dict[str, Any] = reply["report"]
        return report

    def kill(self) -> None:
        """End the process permanently. A thread that waits for its answer cleans up."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, request: dict[str, Any], *, deadline: float, timeout: float, cancelled: threading.Event) -> Any:
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise _Crash(self._exit_details()) from error
        received = bytearray()
        while not received.endswith(b"\n"):
            _check(deadline, timeout, cancelled)
            ready, _, _ = select.select([process.stdout], [], [], _POLL_SECONDS)
            if ready:
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    raise _Crash(self._exit_details())
                received += part
        return json.loads(received)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._discard()
        if self._stopped:
            raise Aborted("the renderer is stopping", reason="STOPPING")
        if self._process is None:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=child_environment(),
                start_new_session=True,  # the service handles Ctrl-C in a terminal
            )
        return self._process

    def _exit_details(self) -> str:
        process, stderr = self._process, self._stderr
        code = None if process is None else process.poll()
        if process is not None and code is None:
            try:
                code = process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                code = None
        tail = ""
        if stderr is not None:
            size = stderr.seek(0, os.SEEK_END)
            stderr.seek(max(0, size - 400))
            tail = " ".join(stderr.read().decode(errors="replace").split())
        return f"exit code {code}; {tail}" if tail else f"exit code {code}"

    def _discard(self) -> None:
        process, stderr = self._process, self._stderr
        self._process = self._stderr = None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _close(pipe)
        if stderr is not None:
            stderr.close()


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        return  # unsent bytes to a process that has ended


def _check(deadline: float, timeout: float, cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise Aborted("the caller cancelled this video", reason="RENDER_CANCELLED")
    if time.monotonic() >= deadline:
        raise DeadlineExceeded(f"the video was not rendered within {timeout:.3g} s", reason="RENDER_TIMEOUT")
