"""Starts a sandboxed process and watches over it from outside.

One thread per process starts it, polls its memory, threads, scratch folder and clock, ends it when a bound is passed,
and reaps it. That this thread also *starts* the process matters: the kernel's parent-death signal fires when the starting
thread ends, so the starter has to live as long as the child.

The child gets nothing that is not listed here: a cleaned environment, /dev/null as input, its standard output and
error in a bounded buffer, two pipes. It is a session of its own, without a terminal, and is killed as a group.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.sandbox import child
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import MAX_BYTES, Channel
from dressage.sandbox.watch import Usage, scratch_size, usage_of

ExitKind = Literal["ok", "timeout", "memory", "killed", "error"]

_POLL_SECONDS = 0.025
_SCRATCH_POLL_SECONDS = 1.0
_STDERR_KEPT = 32 * 1024
_START_TIMEOUT = 30.0
_PIPE_BYTES = 1 << 20
_LEADER_GONE = "its main thread ended while others ran on"
_BOUND_SIGNALS = (signal.SIGXCPU, signal.SIGXFSZ, signal.SIGSYS)
# Names the folder of custom environments (dressage.envs.custom): cards and models, which sandboxed code reads too.
_ENVIRONMENTS = "DRESSAGE_ENVIRONMENTS"


@dataclass(frozen=True)
class Exit:
    """How a sandboxed process ended."""

    kind: ExitKind
    """ok: by itself, code 0; timeout: wall-clock or processor time; memory; killed: another bound, `kill`, or a signal
    from elsewhere; error: by itself, another code (an exception, or no sandbox)."""
    code: int
    """Exit code, or the negative number of the signal."""
    reason: str
    """One sentence for people; empty when ok."""
    stderr_tail: str
    """The last part of what it wrote to standard output and error."""
    bound: bool = False
    """Whether it was ended for passing one of its bounds, or for a call that is not allowed. Other signals, those of crashes
    among them, are not the generated code's doing as far as is known."""


def import_path() -> list[str]:
    """Return the folders of sys.path that a child may import from (and read).

    The current folder and the home folder are left out, whatever put them there, unless they hold a package of ours:
    they hold more than packages. The folder that holds this package always belongs.
    """
    own = str(Path(child.__file__).resolve().parents[2])
    private = {"/", os.getcwd(), os.path.expanduser("~")}
    entries = [entry or os.getcwd() for entry in sys.path]
    found = [entry for entry in entries if os.path.exists(entry) and (entry not in private or _holds_ours(entry))]
    return list(dict.fromkeys([*found, own]))


def _check_target(target: str) -> None:
    module, _, function = target.partition(":")
    if not module or not function:
        raise InvalidArgument(field="target", value=target, expected='"module:function"')


def _holds_ours(folder: str) -> bool:
    return any(Path(folder).glob("dressage*/__init__.py"))


def _environment(scratch: Path, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    count = str(threads)
    pools = (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NPROC",
        "PJRT_NPROC",
    )
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        # Sets of strings iterate in one order, so that a resumed run repeats itself.
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        # No display here. Stock Gymnasium imports glfw all the same, which starts a process to look for its library
        # unless it is told where that is.
        "MUJOCO_GL": "disable",
        **_window_library(),
        **dict.fromkeys(pools, count),
        **extra,
    }


def _with_own_environments(
    env: Mapping[str, str], read_only: Sequence[Path]
) -> tuple[Mapping[str, str], Sequence[Path]]:
    folder = os.environ.get(_ENVIRONMENTS, "")
    if not folder or not Path(folder).is_dir():
        return env, read_only
    resolved = Path(folder).resolve()
    return {_ENVIRONMENTS: str(resolved), **env}, (*read_only, resolved)


def _window_library() -> dict[str, str]:
    candidates = (Path(entry) / "glfw" / "x11" / "libglfw.so" for entry in import_path())
    return next(({"PYGLFW_LIBRARY": str(path)} for path in candidates if path.is_file()), {})


class SandboxProcess:
    """A running sandboxed process; make one with `start`, end it with `kill` or as a context manager."""

    def __init__(self, *, command: list[str], environment: dict[str, str], limits: Limits, scratch: Path) -> None:
        """Use `start` instead."""
        self._command, self._environment = command, environment
        self._limits, self._scratch = limits, scratch
        self._popen: subprocess.Popen[bytes] | None = None
        self._start_error: OSError | None = None
        self._verdict: tuple[ExitKind, str] | None = None
        self._exit: Exit | None = None
        self._started, self._ended, self._killed = threading.Event(), threading.Event(), threading.Event()
        self._usage = Usage()
        self._begin = time.monotonic()
        self._waits = False
        """It has no target yet."""
        self.channel: Channel
        """Messages to and from the target."""

    @classmethod
    def start(
        cls,
        target: str | None,
        *,
        limits: Limits,
        scratch: Path,
        preload: Sequence[str] = (),
        read_only: Sequence[Path] = (),
        threads: int = 1,
        cpus: Iterable[int] | None = None,
        env: Mapping[str, str] | None = None,
        devices: Sequence[Path] = (),
        max_message_bytes: int = MAX_BYTES,
        allow_unsandboxed: bool = False,
    ) -> SandboxProcess:
        """Start ``target`` in a locked-down process.

        :param target: "module:function"; called with the `Channel` as its only argument, after the lock-down. None: the
            process is locked down, imports ``preload`` and waits for `assign`.
        :param limits: bounds, enforced from outside and by the kernel.
        :param scratch: existing folder, the only one it may write; its current folder, HOME and TMPDIR.
        :param preload: modules of ours to import after the lock-down and before the target.
        :param read_only: further files and folders that it may read.
        :param threads: size of the numerical libraries' thread pools.
        :param cpus: processors to run on; None: the parent's.
        :param env: variables to set besides the fixed few; of the parent's environment only ``DRESSAGE_ENVIRONMENTS`` is
            passed on, and the folder that it names may be read.
        :param devices: device files it may open (a GPU's).
        :param allow_unsandboxed: run with rlimits only where the kernel lacks a barrier; for trusted code.
        :raises FailedPrecondition: the kernel lacks Landlock or seccomp and ``allow_unsandboxed`` is not set.
        :raises InvalidArgument: a malformed target or a scratch folder that does not exist.
        """
        if target is not None:
            _check_target(target)
        if not scratch.is_dir():
            raise InvalidArgument(field="scratch", value=str(scratch), expected="an existing folder")
        if threads < 1:
            raise InvalidArgument(field="threads", value=threads, expected="at least 1")
        env, read_only = _with_own_environments(env or {}, read_only)
        unsandboxed = _without_barriers(allow_unsandboxed)
        scratch = scratch.resolve()
        to_child_read, to_child_write = os.pipe()
        from_child_read, from_child_write = os.pipe()
        config = {
            "parent": os.getpid(),
            "target": target,
            "preload": list(preload),
            "read_fd": to_child_read,
            "write_fd": from_child_write,
            "max_bytes": max_message_bytes,
            "import_path": import_path(),
            "scratch": str(scratch),
            "read_only": [str(path.resolve()) for path in read_only],
            "devices": [str(path) for path in devices],
            "cpus": sorted(cpus) if cpus is not None else None,
            "limits": limits.to_dict(),
            "unsandboxed": unsandboxed,
        }
        # -P, -s and -S with an environment made here isolate as -I does, and leave PYTHONHASHSEED in force.
        command = [sys.executable, "-P", "-s", "-S", "-B", child.__file__, json.dumps(config)]
        process = cls(
            command=command,
            environment=_environment(scratch, threads, env),
            limits=limits,
            scratch=scratch,
        )
        process._waits = target is None
        process.channel = Channel(from_child_read, to_child_write, max_bytes=max_message_bytes)
        _widen(from_child_read, to_child_write)
        try:
            process._launch((to_child_read, from_child_write))
        except BaseException:
            process.channel.close()
            raise
        finally:
            os.close(to_child_read)
            os.close(from_child_write)
        return process

    def assign(self, target: str) -> None:
        """Give a process that was started without a target its target; wall-clock time counts from here.

        :param target: "module:function".
        :raises InvalidArgument: a malformed target.
        :raises ChannelClosed: the process has ended.
        """
        _check_target(target)
        self._begin, self._waits = time.monotonic(), False
        self.channel.send({"target": target}, timeout=_START_TIMEOUT)

    @property
    def scratch(self) -> Path:
        """The folder that it may write."""
        return self._scratch

    @property
    def pid(self) -> int:
        """Process id of the child."""
        assert self._popen is not None
        return self._popen.pid

    @property
    def peak_memory_bytes(self) -> int:
        """Largest resident size seen so far."""
        return self._usage.peak_memory_bytes

    def poll(self) -> Exit | None:
        """Return how it ended, or None while it runs."""
        return self._exit

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait for the end, at most ``timeout`` seconds; None: it still runs."""
        self._ended.wait(timeout)
        return self._exit

    def kill(self, *, timeout: float = 10.0) -> Exit:
        """End it at once, and return how it ended; harmless when it has ended already."""
        self._killed.set()
        self._signal()
        exit_ = self.wait(timeout)
        return exit_ or Exit("killed", -signal.SIGKILL, "it was killed, but the kernel has not ended it yet", "")

    def close(self) -> None:
        """End it and close its channel."""
        self.kill()
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self, descriptors: tuple[int, int]) -> None:
        threading.Thread(target=self._watch, args=(descriptors,), name="sandbox-watch", daemon=True).start()
        self._started.wait(_START_TIMEOUT)
        if self._start_error is not None:
            raise FailedPrecondition(f"the sandboxed process could not be started: {self._start_error}")

    def _watch(self, descriptors: tuple[int, int]) -> None:
        try:
            self._popen = popen = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                start_new_session=True,
            )
        except OSError as error:
            self._start_error = error
            self._started.set()
            return
        self._begin = time.monotonic()
        tail = bytearray()
        reader = threading.Thread(target=_keep_tail, args=(popen, tail), name="sandbox-stderr", daemon=True)
        reader.start()
        self._started.set()
        code = self._wait_within_bounds(popen)
        reader.join(timeout=5.0)
        self._exit = self._describe(code, tail.decode("utf-8", "replace"))
        self._ended.set()

    def _wait_within_bounds(self, popen: subprocess.Popen[bytes]) -> int:
        next_scratch = self._begin + _SCRATCH_POLL_SECONDS
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return popen.wait(_POLL_SECONDS)
            now = time.monotonic()
            self._usage = usage_of(popen.pid, self._usage)
            verdict = self._violation(now - self._begin)
            if verdict is None and now >= next_scratch:
                next_scratch = now + _SCRATCH_POLL_SECONDS
                size = scratch_size(self._scratch, self._limits.scratch_bytes)
                if size > self._limits.scratch_bytes:
                    verdict = (
                        "killed",
                        f"it filled its scratch folder beyond {self._limits.scratch_bytes} bytes",
                    )
            if verdict is not None:
                self._verdict = verdict
                self._signal()
                return popen.wait()

    def _violation(self, elapsed: float) -> tuple[ExitKind, str] | None:
        limits, usage = self._limits, self._usage
        if self._killed.is_set():
            # Said before the process existed, or while it was being started.
            return "killed", "it was killed by its owner"
        if limits.wall_seconds is not None and not self._waits and elapsed > limits.wall_seconds:
            return "timeout", f"it ran longer than {limits.wall_seconds:g} s"
        if usage.memory_bytes > limits.memory_bytes:
            return "memory", _memory_reason(usage.memory_bytes, limits)
        if usage.threads > limits.processes:
            return "killed", f"it started {usage.threads} threads, {limits.processes} are allowed"
        if usage.leader_gone:
            return "killed", _LEADER_GONE
        return None

    def _describe(self, code: int, tail: str) -> Exit:
        verdict = self._verdict
        gone = verdict is not None and verdict[1] == _LEADER_GONE
        if gone and code >= 0:
            verdict = None  # seen just as it ended by itself, when threads of libraries are the last to go
        kind, reason = verdict or self._cause(code)
        # One that the kernel kills for want of memory looks as if its main thread had ended, too.
        judged = verdict is not None and not gone and not self._killed.is_set()
        bound = judged or kind in ("timeout", "memory") or -code in _BOUND_SIGNALS
        return Exit(kind, code, reason, tail[-_STDERR_KEPT:], bound)

    def _cause(self, code: int) -> tuple[ExitKind, str]:
        limits = self._limits
        if code == 0:
            return "ok", ""
        if code == child.EXIT_NO_MEMORY:
            return "memory", _memory_reason(self._usage.memory_bytes, limits)
        if code == child.EXIT_NO_SANDBOX:
            return "error", "the sandbox could not be set up"
        if code > 0:
            return "error", f"it ended with code {code}"
        if self._killed.is_set():
            return "killed", "it was killed by its owner"
        spent = self._usage.cpu_seconds
        if limits.cpu_seconds is not None and (code == -signal.SIGXCPU or spent >= limits.cpu_seconds):
            return "timeout", f"it used more than {limits.cpu_seconds} s of processor time"
        if code == -signal.SIGKILL and self._usage.memory_bytes > limits.memory_bytes // 2:
            return "memory", "the system ended it, most likely because memory ran out"
        return "killed", f"it was ended by {signal.Signals(-code).name}"

    def _signal(self) -> None:
        # Not by os.killpg alone: until the child has made its session, the group does not exist.
        if self._popen is None or self._popen.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(signal.SIGKILL)


def _memory_reason(seen: int, limits: Limits) -> str:
    return f"it used or asked for more memory than {limits.memory_bytes / 2**20:.0f} MiB ({seen / 2**20:.0f} MiB were in use)"


def _without_barriers(allowed: bool) -> bool:
    found = capabilities()
    if found.sufficient:
        return False
    if allowed:
        return True
    raise FailedPrecondition(
        f"this system lacks {' and '.join(found.missing)}, so generated code is not run here. {found.remedy}",
        reason="SANDBOX_UNAVAILABLE",
    )


def _widen(*descriptors: int) -> None:
    import fcntl

    number = getattr(fcntl, "F_SETPIPE_SZ", None)
    if number is None:
        return
    for descriptor in descriptors:
        # Fewer wake-ups for large messages; users near their pipe quota keep the default size.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, number, _PIPE_BYTES)


def _keep_tail(popen: subprocess.Popen[bytes], tail: bytearray) -> None:
    assert popen.stdout is not None
    with popen.stdout as stream:
        while data := os.read(stream.fileno(), 65536):
            tail += data
            if len(tail) > 2 * _STDERR_KEPT:
                del tail[:-_STDERR_KEPT]
