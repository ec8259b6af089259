"""A bounded pool of drawing processes.

Each worker is a fresh interpreter that is started at its first job, kept warm, and replaced after a crash, a timeout or a
cancelled job; a job that lost its worker to a crash is tried once more. Two videos are drawn at once by two workers. The
calls block: the service makes them from threads.
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

from dressage_renderer.child import child_environment
from dressage_renderer.frames import Sampled
from dressage_renderer.options import RenderOptions
from dressage_renderer.sampling import SamplingOptions
from dressage_renderer.video import RenderReport
from dressage_renderer.worker import restore_error

_POLL_SECONDS = 0.1
_ATTEMPTS = 2
WORKER_COMMAND = (sys.executable, "-m", "dressage_renderer.worker")


@dataclass(frozen=True)
class RenderJob:
    """A video to draw.

    :param trajectory: file to read.
    :param video: file to write.
    :param stills: folder for single frames, or None.
    """

    trajectory: Path
    video: Path
    options: RenderOptions
    stills: Path | None = None

    def request(self) -> dict[str, Any]:
        """What a worker is handed."""
        return {
            "kind": "video",
            "trajectory": str(self.trajectory),
            "video": str(self.video),
            "options": self.options.to_dict(),
            "stills": str(self.stills) if self.stills else None,
        }


@dataclass(frozen=True)
class FramesJob:
    """Frames to take.

    :param trajectory: file to read.
    :param folder: where the pictures go.
    """

    trajectory: Path
    folder: Path
    options: SamplingOptions

    def request(self) -> dict[str, Any]:
        """What a worker is handed."""
        return {
            "kind": "frames",
            "trajectory": str(self.trajectory),
            "folder": str(self.folder),
            "options": self.options.to_dict(),
        }


class RenderPool:
    """Draws videos in child processes.

    :param workers: videos drawn at once.
    :param max_waiting: jobs that may wait for a worker; more are refused.
    :param command: how to start a worker.
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
        """Draw a video; blocks until it is there. Raises as `sample` does."""
        report = self._do(job, timeout=timeout, cancelled=cancelled)
        return RenderReport(report["frames"], report["duration"], report["seconds"], tuple(map(Path, report["stills"])))

    def sample(self, job: FramesJob, *, timeout: float, cancelled: threading.Event | None = None) -> Sampled:
        """Take frames; blocks until they are there.

        :param timeout: seconds, waiting for a worker included.
        :param cancelled: when set, the drawing is stopped.
        :raises ResourceExhausted: when too many jobs wait already.
        :raises DeadlineExceeded: when it took longer than ``timeout``; the worker is stopped.
        :raises Aborted: when it was cancelled.
        :raises Internal: when the worker crashed twice.
        """
        report = self._do(job, timeout=timeout, cancelled=cancelled)
        files: dict[str, Any] = {name: tuple(map(Path, report[name])) for name in ("frames", "pages")}
        clip = Path(report["clip"]) if report["clip"] else None
        return Sampled(**(report | files | {"times": tuple(report["times"]), "clip": clip}))

    def _do(self, job: RenderJob | FramesJob, *, timeout: float, cancelled: threading.Event | None) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        if not self._places.acquire(blocking=False):
            raise ResourceExhausted(
                f"{self._limit} videos are being drawn or waiting already", reason="RENDER_QUEUE_FULL"
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
        """Stop all workers; jobs under way end with an error."""
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
    """The worker ended without an answer."""


class _Worker:
    """One child process, started when it is needed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        self._stopped = False

    def do(
        self, job: RenderJob | FramesJob, *, deadline: float, timeout: float, cancelled: threading.Event
    ) -> dict[str, Any]:
        """Hand the job over and wait for the worker's report."""
        request = job.request()
        for attempt in range(_ATTEMPTS):
            try:
                reply = self._ask(request, deadline=deadline, timeout=timeout, cancelled=cancelled)
                break
            except _Crash as crash:
                self._discard()
                if attempt == _ATTEMPTS - 1 or self._stopped:
                    raise Internal(f"the drawing process crashed: {crash}", reason="RENDER_WORKER_CRASHED") from crash
            except BaseException:
                # It is still busy with this job, so it cannot take another one.
                self._discard()
                raise
        if "error" in reply:
            raise restore_error(reply["error"])
        report: dict[str, Any] = reply["report"]
        return report

    def kill(self) -> None:
        """End the process for good. A thread that waits for its answer sees it end and cleans up."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, request: dict[str, Any], *, deadline: float, timeout: float, cancelled: threading.Event) -> Any:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise _Crash(self._last_words()) from error
        received = bytearray()
        while not received.endswith(b"\n"):
            _check(deadline, timeout, cancelled)
            ready, _, _ = select.select([process.stdout], [], [], _POLL_SECONDS)
            if ready:
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    raise _Crash(self._last_words())
                received += part
        return json.loads(received)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._discard()
        if self._stopped:
            raise Aborted("the renderer is stopping", reason="STOPPING")
        if self._process is None:
            self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env=child_environment(),
                start_new_session=True,  # Ctrl-C in a terminal is the service's to handle
            )
        return self._process

    def _last_words(self) -> str:
        process, complaints = self._process, self._complaints
        code = None if process is None else process.poll()
        if process is not None and code is None:
            try:
                code = process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                code = None
        tail = ""
        if complaints is not None:
            size = complaints.seek(0, os.SEEK_END)
            complaints.seek(max(0, size - 400))
            tail = " ".join(complaints.read().decode(errors="replace").split())
        return f"exit code {code}; {tail}" if tail else f"exit code {code}"

    def _discard(self) -> None:
        process, complaints = self._process, self._complaints
        self._process = self._complaints = None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _close(pipe)
        if complaints is not None:
            complaints.close()


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        return  # unsent bytes to a process that is gone


def _check(deadline: float, timeout: float, cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise Aborted("the caller gave up on this video", reason="RENDER_CANCELLED")
    if time.monotonic() >= deadline:
        raise DeadlineExceeded(f"the video was not drawn within {timeout:.3g} s", reason="RENDER_TIMEOUT")
